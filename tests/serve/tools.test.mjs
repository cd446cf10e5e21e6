// Tool calls and reasoning in the responses of both servers, on a model that says a script.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { scriptedModel } from '../web/scripted-model.mjs';
import { inNode, Server } from './server.mjs';

const parameters = { type: 'object', properties: {}, additionalProperties: false };
const tools = ['get', 'put'].map((name) => ({ type: 'function', function: { name, parameters } }));
const strict = tools.map(({ function: f }) => ({
  type: 'function',
  function: { ...f, strict: true },
}));
/** Teaches a format, and begins the script that the last message names. */
const teaching = (format) =>
  `{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson if tools }}` +
  `{% if false %}${format}{% endif %}` +
  `{% if messages[-1].content == 'call' %}<|call|>{% else %}<|reason|>{% endif %}`;
const models = {
  hermes: {
    format: '<think></think><tool_call>{"name": …}</tool_call>',
    controls: [],
    scripts: {
      '<|reason|>': ['<think>Hmm', '.</think>', '\n\nNo.'],
      '<|call|>': [
        ...['I look.', '<tool_call>\n', '{"name": "put", "arguments": {"id": 1e400', '}}\n'],
        ...['</tool_call>', '\n<tool_call>\n{"name": "get", ', '"arguments": {}}\n</tool_call>\n'],
      ],
    },
  },
  harmony: {
    format: '<|channel|>analysis<|message|><|start|>assistant<|call|>',
    controls: ['<|start|>', '<|channel|>', '<|message|>'],
    scripts: { '<|reason|>': ['<|channel|>', 'final', '<|message|>', 'Sure.'] },
  },
};
const servers = {};

before(async () => {
  for (const [name, { format, controls, scripts }] of Object.entries(models)) {
    const bytes = scriptedModel({ template: teaching(format), controls, scripts });
    servers[name] = await Server.startWithBytes(bytes, '-c', '512');
  }
});
after(async () => {
  for (const server of Object.values(servers)) await server.stop();
});

const post = (name, content, more) =>
  servers[name].post('/v1/chat/completions', {
    messages: [{ role: 'user', content }],
    temperature: 0,
    ...more,
  });

async function ask(name, content, more) {
  const response = await post(name, content, more);
  const body = await response.json();
  assert.equal(response.status, 200, JSON.stringify(body));
  return body.choices[0];
}

/** The deltas of a stream, put together as clients do it. */
async function streamed(name, content, more) {
  const response = await post(name, content, { ...more, stream: true });
  const message = { content: '', tool_calls: [] };
  let finish = null;
  for (const line of (await response.text()).split('\n')) {
    if (!line.startsWith('data: {')) continue;
    const [{ delta, finish_reason: reason }] = JSON.parse(line.slice(6)).choices;
    message.content += delta.content ?? '';
    for (const { index, ...call } of delta.tool_calls ?? []) message.tool_calls[index] = call;
    finish = reason ?? finish;
  }
  return { message, finish_reason: finish };
}

test('tool calls keep the text of their arguments', async () => {
  for (const choice of [
    await ask('hermes', 'call', { tools }),
    await streamed('hermes', 'call', { tools }),
  ]) {
    const { message, finish_reason: finish } = choice;
    assert.equal(message.content.trim(), 'I look.');
    assert.deepEqual(
      message.tool_calls.map(({ type, function: f }) => [type, f.name, f.arguments]),
      [
        ['function', 'put', '{"id": 1e400}'],
        ['function', 'get', '{}'],
      ],
    );
    assert.match(message.tool_calls[0].id, /^call_\w+$/);
    assert.notEqual(message.tool_calls[0].id, message.tool_calls[1].id);
    assert.equal(finish, 'tool_calls');
  }
});

test('a required and a named function are called', async () => {
  const called = async (choice) => {
    const { message } = await ask('hermes', 'reason', { tools: strict, tool_choice: choice });
    return message.tool_calls.map(({ function: f }) => `${f.name} ${f.arguments}`);
  };
  assert.match((await called('required'))[0], /^(get|put) \{ ?\}$/);
  assert.match((await called({ type: 'function', function: { name: 'put' } }))[0], /^put \{ ?\}$/);
});

test(
  'only allowed functions are called',
  { skip: inNode && 'the package has no allowed_tools' },
  async () => {
    const allowed = { mode: 'required', tools: [{ type: 'function', function: { name: 'get' } }] };
    const { message } = await ask('hermes', 'reason', {
      tools: strict,
      tool_choice: { type: 'allowed_tools', allowed_tools: allowed },
    });
    assert.deepEqual(
      message.tool_calls.map(({ function: f }) => f.name),
      ['get'],
    );
  },
);

test('functions that must not be called are not read', async () => {
  const { message, finish_reason: finish } = await ask('hermes', 'call', {
    tools,
    tool_choice: 'none',
  });
  assert.match(message.content, /<tool_call>/);
  assert.equal(message.tool_calls, undefined);
  assert.equal(finish, 'stop');
});

test('reasoning is separated in every format', async () => {
  const one = (await ask('hermes', 'reason')).message;
  assert.deepEqual([one.reasoning_content, one.content], ['Hmm.', 'No.']);
  const two = (await ask('harmony', 'reason')).message;
  assert.equal(two.content, 'Sure.');
});
