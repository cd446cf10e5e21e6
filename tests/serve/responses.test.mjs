// /v1/responses: a round of tool calls, as a document and as a stream.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { namedEvents, Server } from './server.mjs';
import { big, model } from './tool-rounds.mjs';

const question = { role: 'user', content: 'Put it.' };
const request = {
  tools: [{ type: 'function', name: 'put', parameters: { type: 'object' }, strict: false }],
  temperature: 0,
  store: false,
};
let server;

before(async () => {
  server = await Server.startWithBytes(model(), '-c', '512');
});
after(() => server.stop());

async function create(input) {
  const response = await server.post('/v1/responses', { ...request, input });
  const body = await response.json();
  assert.equal(response.status, 200, JSON.stringify(body));
  return body;
}

async function stream(input) {
  const events = await namedEvents(
    await server.post('/v1/responses', { ...request, input, stream: true }),
  );
  assert.deepEqual(
    events.slice(0, 2).map(({ type }) => type),
    ['response.created', 'response.in_progress'],
  );
  return events;
}

/** Puts the items together from their events. */
function itemsOf(events) {
  const items = [];
  for (const event of structuredClone(events)) {
    const item = items[event.output_index];
    const type = event.type.replace('response.', '');
    if (type === 'output_item.added') items[event.output_index] = event.item;
    if (type === 'content_part.added') item.content[event.content_index] = event.part;
    if (/^(reasoning|output)_text.delta$/.test(type))
      item.content[event.content_index].text += event.delta;
    if (type === 'function_call_arguments.delta') item.arguments += event.delta;
    if (type === 'output_item.done')
      assert.deepEqual({ ...item, status: event.item.status }, event.item);
  }
  return items.map((item) => ({ ...item, status: 'completed' }));
}

const withoutIds = (items) => items.map((item) => ({ ...item, id: '', call_id: '' }));

test('a round of tool calls', async () => {
  const first = await create([question]);
  assert.deepEqual(
    first.output.map(({ type }) => type),
    ['reasoning', 'message', 'function_call'],
  );
  const [thought, message, call] = first.output;
  assert.equal(thought.content[0].text, 'Hmm.');
  assert.equal(message.content[0].text.trim(), 'I look.');
  assert.equal(call.arguments, `{"n": ${big.n}, "x": ${big.x}}`);
  const result = { type: 'function_call_output', call_id: call.call_id, output: big.x };
  const input = [question, ...first.output, result];
  const second = await create(input);
  assert.equal(second.output[0].content[0].text, 'It is done.');
  assert.equal(second.status, 'completed');
  assert.ok(second.usage.input_tokens > first.usage.input_tokens);
  assert.equal(second.usage.output_tokens, 2);
  assert.equal(first.usage.output_tokens_details.reasoning_tokens, 2);

  const events = await stream([question]);
  assert.deepEqual(withoutIds(itemsOf(events)), withoutIds(first.output));
  assert.equal(events.at(-1).type, 'response.completed');
  assert.deepEqual(itemsOf(events), events.at(-1).response.output);
  assert.equal(itemsOf(await stream(input))[0].content[0].text, 'It is done.');
});

test('an error before the first event is a document', async () => {
  const response = await server.post('/v1/responses', {
    ...request,
    input: 'x'.repeat(5000),
    stream: true,
  });
  assert.equal(response.status, 400);
  assert.equal((await response.json()).error.code, 'context_length_exceeded');
});
