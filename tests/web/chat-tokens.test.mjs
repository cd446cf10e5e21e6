// Reasoning and tool calls end to end, on a model that says a script: marks that are control tokens,
// numbers that no double holds, and what a session keeps of a response.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { root } from './helpers.mjs';
import { scriptedModel } from './scripted-model.mjs';

const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);

const tools = ['get', 'put'].map((name) => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties: { id: { type: 'integer' } } } },
}));
/** A template that teaches a format, and then begins the script that the last message names. */
const teaching = (format) =>
  `{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson if tools }}` +
  `{% if false %}${format}{% endif %}` +
  `{% if messages[-1].content == 'call' %}<|call|>{% else %}<|reason|>{% endif %}`;

/** Scripts, by the message that asks for them. */
const models = {
  mistral: {
    format: '[THINK][/THINK][TOOL_CALLS][ARGS]',
    controls: ['[THINK]', '[/THINK]', '[TOOL_CALLS]', '[ARGS]'],
    scripts: {
      reason: ['[THINK]', 'Hm.', '[/THINK]', 'Yes.'],
      call: ['[TOOL_CALLS]', 'get', '[ARGS]', '{"id": 1234567890123456789', '}'],
    },
  },
  hermes: {
    format: '<think></think><tool_call>{"name": …}</tool_call>',
    controls: [],
    scripts: {
      reason: ['<think>Hmm', '.</think>', '\n\nNo.'],
      call: ['<tool_call>', '{"name": "put", "arguments": {"id": 1e400', '}}</tool_call>'],
    },
  },
  harmony: {
    format: '<|channel|>analysis<|message|><|start|>assistant<|call|>',
    controls: ['<|start|>', '<|channel|>', '<|message|>'],
    scripts: { reason: ['<|channel|>', 'final', '<|message|>', 'Sure.'] },
  },
};
const engines = {};

before(async () => {
  for (const [name, { format, controls, scripts }] of Object.entries(models)) {
    const named = Object.entries(scripts).map(([key, pieces]) => [`<|${key}|>`, pieces]);
    const file = scriptedModel({
      template: teaching(format),
      controls,
      scripts: Object.fromEntries(named),
    });
    engines[name] = await Engine.load(new Blob([file]), {
      memoryBudget: 64e6,
      contextLength: 512,
      threads: 1,
    });
  }
});
after(async () => {
  for (const engine of Object.values(engines)) await engine.dispose();
});

const ask = async (name, content, more) => {
  const { choices } = await engines[name].chat.completions.create({
    messages: [{ role: 'user', content }],
    temperature: 0,
    ...more,
  });
  return choices[0].message;
};

test('reasoning is recognized by its control tokens, and by its text', async () => {
  const one = await ask('mistral', 'reason');
  assert.deepEqual([one.reasoning_content, one.content], ['Hm.', 'Yes.']);
  const two = await ask('hermes', 'reason');
  assert.deepEqual([two.reasoning_content, two.content], ['Hmm.', 'No.']);
  const inline = await ask('mistral', 'reason', { reasoning_format: 'none' });
  assert.deepEqual(
    [inline.reasoning_content, inline.content],
    [undefined, '[THINK]Hm.[/THINK]Yes.'],
  );
  assert.equal((await ask('harmony', 'reason')).content, 'Sure.');
});

test('arguments are the JSON that the model wrote, whatever its numbers', async () => {
  for (const [name, called, json] of [
    ['mistral', 'get', '{"id": 1234567890123456789}'],
    ['hermes', 'put', '{"id": 1e400}'],
  ]) {
    const { content, tool_calls } = await ask(name, 'call', { tools });
    assert.equal(content, null);
    assert.deepEqual(
      tool_calls.map((call) => [call.function.name, call.function.arguments]),
      [[called, json]],
    );
  }
});

test('tokens and result of a session have reasoning and content apart', async () => {
  for (const [name, reasoning, content] of [
    ['mistral', 'Hm.', 'Yes.'],
    ['hermes', 'Hmm.', 'No.'],
    ['harmony', '', 'Sure.'],
  ]) {
    const session = engines[name].session();
    const generation = session.send('reason', { temperature: 0 });
    const parts = { content: '', reasoning: '' };
    for await (const token of generation) {
      parts.content += token.content;
      parts.reasoning += token.reasoning;
    }
    const result = await generation.result;
    assert.deepEqual(parts, { content, reasoning }, name);
    assert.deepEqual([result.content, result.reasoning], [content, reasoning], name);
    await session.dispose();
  }
});

test('the history of a session has the response without its reasoning', async () => {
  for (const [name, content] of [
    ['mistral', 'Yes.'],
    ['hermes', 'No.'],
    ['harmony', 'Sure.'],
  ]) {
    const session = engines[name].session();
    await session.send('reason', { temperature: 0 }).result;
    assert.deepEqual(session.messages.at(-1), { role: 'assistant', content }, name);
    await session.dispose();
  }
});

test('a schema of a session holds for the content, which reasoning may precede', async () => {
  const schema = { enum: ['No.'] };
  const text = JSON.stringify(schema);
  for (const [name, reasoning] of [
    ['mistral', 'Hm.'],
    ['hermes', 'Hmm.'],
    ['harmony', ''],
  ]) {
    for (const jsonSchema of [schema, text]) {
      const session = engines[name].session();
      const result = await session.send('reason', { temperature: 0, jsonSchema }).result;
      assert.deepEqual([result.content, result.reasoning], ['"No."', reasoning], name);
      await session.dispose();
    }
  }
  const session = engines.hermes.session();
  const send = (options) => session.send('reason', { temperature: 0, ...options }).result;
  await assert.rejects(send({ jsonSchema: text, grammar: 'root ::= "a"' }), /Only one of/);
  await assert.rejects(send({ jsonSchema: '{"enum' }), {
    code: 'GRAMMAR_SYNTAX',
    message: /line 1, column \d+/i,
  });
  await assert.rejects(send({ jsonSchema: '{"type": "foo"}' }), { code: 'SCHEMA_UNSUPPORTED' });
  assert.deepEqual(session.messages, [], 'a turn that fails leaves the session unchanged');
  const { content, reasoning } = await send({ jsonSchema: true, maxTokens: 40 });
  assert.equal(reasoning, 'Hmm.');
  assert.match(content, /^["[{\dtfn-]/);
  await session.dispose();
});
