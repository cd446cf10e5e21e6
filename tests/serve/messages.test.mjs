// /v1/messages: a round of tool calls, as a document and as a stream, and the count of its tokens.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { namedEvents, Server } from './server.mjs';
import { big, model } from './tool-rounds.mjs';

const question = { role: 'user', content: 'Put it.' };
const request = {
  max_tokens: 50,
  tools: [{ name: 'put', input_schema: { type: 'object' } }],
  temperature: 0,
};
let server;

before(async () => {
  server = await Server.startWithBytes(model(), '-c', '512');
});
after(() => server.stop());

/** The text of a request whose last messages are JSON text: JavaScript would change its numbers. */
const bodyOf = (messages, more) =>
  `${JSON.stringify({ ...request, ...more }).slice(0, -1)},"messages":[${messages.join(',')}]}`;

async function create(messages, more) {
  const response = await server.post('/v1/messages', bodyOf(messages, more));
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return text;
}

/** Puts the content together from its events, as JSON text. */
function contentOf(events) {
  const blocks = [];
  for (const { type, index, content_block: block, delta } of events) {
    if (type === 'content_block_start') blocks[index] = { ...block, json: '' };
    if (type !== 'content_block_delta') continue;
    const to = blocks[index];
    if (delta.type === 'text_delta') to.text += delta.text;
    if (delta.type === 'thinking_delta') to.thinking += delta.thinking;
    if (delta.type === 'signature_delta') to.signature += delta.signature;
    if (delta.type === 'input_json_delta') to.json += delta.partial_json;
  }
  return blocks.map(({ json, ...block }) =>
    block.type === 'tool_use'
      ? JSON.stringify(block).replace('"input":{}', `"input":${json}`)
      : JSON.stringify(block),
  );
}

test('a round of tool calls', async () => {
  const text = await create([JSON.stringify(question)]);
  const first = JSON.parse(text);
  assert.deepEqual(
    first.content.map(({ type }) => type),
    ['thinking', 'text', 'tool_use'],
  );
  const [thought, said, call] = first.content;
  assert.equal(thought.thinking, 'Hmm.');
  assert.ok(thought.signature);
  assert.equal(said.text.trim(), 'I look.');
  assert.equal(call.name, 'put');
  assert.equal(first.stop_reason, 'tool_use');
  assert.ok(text.includes(`"input":{"n":${big.n},"x":${big.x}}`), text);

  const events = await namedEvents(
    await server.post('/v1/messages', bodyOf([JSON.stringify(question)], { stream: true })),
  );
  const content = contentOf(events);
  const streamed = events.find(({ content_block: block }) => block?.type === 'tool_use');
  const given = text.slice(text.indexOf('[') + 1, text.lastIndexOf(']'));
  assert.equal(content.join(',').replace(streamed.content_block.id, call.id), given);
  assert.equal(events.find(({ type }) => type === 'message_delta').delta.stop_reason, 'tool_use');

  const result = { type: 'tool_result', tool_use_id: call.id, content: big.x };
  const messages = [
    JSON.stringify(question),
    `{"role":"assistant","content":[${given}]}`,
    JSON.stringify({ role: 'user', content: [result] }),
  ];
  const second = JSON.parse(await create(messages));
  assert.deepEqual(second.content, [{ type: 'text', text: 'It is done.' }]);
  assert.equal(second.stop_reason, 'end_turn');
  const { input_tokens: n } = await server.json('/v1/messages/count_tokens', bodyOf(messages));
  assert.equal(second.usage.input_tokens + second.usage.cache_read_input_tokens, n);
});

test('a stop sequence is named', async () => {
  const message = JSON.parse(
    await create([JSON.stringify(question)], { tools: [], stop_sequences: ['zzz', 'look'] }),
  );
  assert.equal(message.stop_reason, 'stop_sequence');
  assert.equal(message.stop_sequence, 'look');
});

test('errors have the form of the API', async () => {
  for (const [path, status, type] of [
    ['/v1/messages', 400, 'invalid_request_error'],
    ['/messages', 400, 'invalid_request_error'],
    ['/v1/messages/nothing', 404, 'not_found_error'],
  ]) {
    const response = await server.post(path, {});
    assert.equal(response.status, status);
    const { type: outer, error } = await response.json();
    assert.deepEqual([outer, error.type], ['error', type]);
  }
});
