// Ollama's API over the wire: a round of tools, streams, and gaps that a model fills. The model
// follows a script.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { scriptedModel } from '../web/scripted-model.mjs';
import { Server } from './server.mjs';

const template =
  `{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}` +
  `{{ c.function.arguments | tojson }}{% endfor %}{{ m.name if m.name }}{% endfor %}` +
  `{{ tools | tojson if tools }}{% if false %}<think></think><tool_call>{"name": …}</tool_call>` +
  `{% endif %}{% if messages[-1].role == 'tool' %}<|result|>{% else %}<|call|>{% endif %}`;
const scripts = {
  '<|call|>': [
    ...[
      '<think>Hmm',
      '.</think>',
      '\n\nI look.',
      '<tool_call>\n',
      '{"name": "put", "arguments":\n',
    ],
    ...[' {"id": 123456789012345678901', '}}\n', '</tool_call>'],
  ],
  '<|result|>': ['It is', ' four.'],
  '<|fim_middle|>': ['return', ' a'],
};
const controls = ['<|fim_prefix|>', '<|fim_suffix|>'];
const tools = [{ type: 'function', function: { name: 'put', parameters: { type: 'object' } } }];
const asked = [{ role: 'user', content: 'Two and two?' }];
let server;

before(async () => {
  server = await Server.startWithBytes(scriptedModel({ template, controls, scripts }), '-c', '512');
});
after(() => server.stop());

const options = { temperature: 0 };

async function post(path, body) {
  const response = await server.post(path, { model: 'any', options, ...body });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return { text, type: response.headers.get('content-type') };
}

/** The lines of a stream, put together as clients do it. */
async function streamed(path, body) {
  const { text, type } = await post(path, body);
  assert.match(type, /^application\/x-ndjson/);
  assert.ok(text.endsWith('\n'));
  const lines = text.trimEnd().split('\n');
  const parts = lines.map((line) => JSON.parse(line));
  assert.ok(parts.length > 2, text);
  for (const [i, { done }] of parts.entries()) assert.equal(done, i === parts.length - 1);
  const joined = (name) => parts.map((part) => (part.message ?? part)[name] ?? '').join('');
  return {
    ...parts.at(-1),
    content: joined('content') || joined('response'),
    thinking: joined('thinking'),
    calls: parts.flatMap(({ message }) => message?.tool_calls ?? []),
    text,
  };
}

const kArguments = '"arguments":{"id":123456789012345678901}';

test('a chat with tools, in lines and in one document', async () => {
  const lines = await streamed('/api/chat', { messages: asked, tools });
  const { text, type } = await post('/api/chat', { messages: asked, tools, stream: false });
  assert.match(type, /^application\/json/);
  const { message, ...rest } = JSON.parse(text);
  for (const [content, thinking, calls, whole] of [
    [lines.content, lines.thinking, lines.calls, lines.text],
    [message.content, message.thinking, message.tool_calls, text],
  ]) {
    assert.equal(content.trim(), 'I look.');
    assert.equal(thinking, 'Hmm.');
    assert.deepEqual(
      calls.map(({ function: f }) => f.name),
      ['put'],
    );
    assert.ok(whole.includes(kArguments), whole);
  }
  for (const one of [lines, rest]) {
    assert.deepEqual([one.done_reason, one.load_duration], ['stop', 0]);
    assert.ok(one.prompt_eval_count > 10 && one.eval_count > 5);
    assert.ok(one.total_duration >= one.prompt_eval_duration + one.eval_duration - 1);
  }

  const call = { function: { name: 'put', arguments: { id: 7 } } };
  const round = [
    ...asked,
    { role: 'assistant', content: '', thinking: 'Hmm.', tool_calls: [call] },
    { role: 'tool', tool_name: 'put', content: '4' },
  ];
  assert.equal((await streamed('/api/chat', { messages: round, tools })).content, 'It is four.');
});

test('generate: a prompt of the user, raw text and a gap', async () => {
  const prompt = 'Two and two?';
  const lines = await streamed('/api/generate', { prompt, system: 'Be brief.' });
  assert.equal(lines.thinking, 'Hmm.');
  assert.match(lines.content, /I look\./);
  const ask = async (body) =>
    JSON.parse((await post('/api/generate', { ...body, stream: false })).text);
  const raw = await ask({ prompt: '2 + 2 = <|result|>', raw: true });
  assert.equal(raw.response, 'It is four.');
  const gap = await ask({ prompt: 'def f(a):\n  ', suffix: '\n<|result|>' });
  assert.equal(gap.response, 'return a');
  const limited = await ask({ prompt, options: { ...options, num_predict: 2 } });
  assert.deepEqual([limited.done_reason, limited.eval_count], ['length', 2]);
});

test('the model says that it can use tools, reason and fill gaps', async () => {
  const { text } = await post('/api/show', { options: undefined });
  assert.deepEqual(JSON.parse(text).capabilities, ['completion', 'tools', 'insert', 'thinking']);
});

test('completions with a suffix', async () => {
  const body = { prompt: 'def f(a):', suffix: 'end', options: undefined, temperature: 0 };
  const { choices } = JSON.parse((await post('/v1/completions', body)).text);
  assert.equal(choices[0].text, 'return a');
});

test("llama-server's /infill", async () => {
  const body = {
    input_prefix: 'def f(a):\n',
    input_suffix: '\n<|result|>',
    prompt: '  ',
    input_extra: [{ filename: 'g.py', text: 'def g(a): pass' }],
    temperature: 0,
  };
  const whole = JSON.parse((await post('/infill', { ...body, options: undefined })).text);
  assert.deepEqual([whole.content, whole.stop, whole.stop_type], ['return a', true, 'eos']);
  // Files that do not fit are omitted.
  const files = Array.from({ length: 200 }, (_, i) => ({ filename: `${i}`, text: 'x'.repeat(i) }));
  const { content, error } = await server.json('/infill', { ...body, input_extra: files });
  assert.equal(content, 'return a', error?.message);
  const response = await server.post('/infill', { ...body, stream: true });
  assert.match(response.headers.get('content-type'), /^text\/event-stream/);
  const frames = (await response.text())
    .split('\n\n')
    .filter(Boolean)
    .map((frame) => JSON.parse(frame.replace(/^data: /, '')));
  assert.equal(frames.map(({ content }) => content).join(''), 'return a');
  assert.deepEqual(
    frames.map(({ stop }) => stop),
    frames.map((_, i) => i === frames.length - 1),
  );
});

test('an error before a stream has its status', async () => {
  const prompt = 'x'.repeat(600);
  const response = await server.post('/api/generate', { prompt, raw: true });
  assert.equal(response.status, 400);
  assert.deepEqual(Object.keys(await response.json()), ['error']);
});
