// @anthropic-ai/sdk: messages, streams, tools, structured output, token counts, errors.
import assert from 'node:assert/strict';

import { asks, key, parameters } from './servers.mjs';

const { hello, pirate, reason, json, weather, both } = asks;
const user = (content) => [{ role: 'user', content }];
const tools = [{ name: 'weather', description: 'The weather.', input_schema: parameters }];

export async function anthropic({ load, script }) {
  const { default: Anthropic, ...errors } = await load('@anthropic-ai/sdk');
  const { betaTool } = await load('@anthropic-ai/sdk/helpers/beta/json-schema');
  const { zodOutputFormat } = await load('@anthropic-ai/sdk/helpers/zod');
  const { z } = await load('zod');
  const connect = (apiKey) =>
    new Anthropic({ baseURL: script.url, apiKey, maxRetries: 0, timeout: 60_000 });
  const { messages, beta } = connect(key);
  const ask = { model: 'any', max_tokens: 100 };

  const called = ({ content, stop_reason: reason }) => {
    assert.equal(reason, 'tool_use');
    const call = content.find(({ type }) => type === 'tool_use');
    assert.match(call.id, /^[\w-]+$/);
    assert.deepEqual({ name: call.name, arguments: call.input }, weather.call);
    return call;
  };

  return {
    messages: async () => {
      const message = await messages.create({ ...ask, messages: user(hello.prompt) });
      assert.match(message.id, /^msg_/);
      assert.deepEqual([message.type, message.role], ['message', 'assistant']);
      assert.equal(message.content.length, 1);
      assert.equal(message.content[0].text, hello.answer);
      assert.equal(message.stop_reason, 'end_turn');
      assert.ok(message.usage.input_tokens > 0 && message.usage.output_tokens > 0);
    },
    system: async () => {
      for (const system of [pirate.system, [{ type: 'text', text: pirate.system }]]) {
        const message = await messages.create({
          ...{ ...ask, system, messages: user([{ type: 'text', text: pirate.prompt }]) },
        });
        assert.equal(message.content[0].text, pirate.answer);
      }
    },
    'sampling options': async () => {
      const message = await messages.create({
        ...{ ...ask, messages: user(hello.prompt), stop_sequences: [' there'] },
        ...{ temperature: 0, top_p: 0.9, top_k: 5, metadata: { user_id: 'someone' } },
      });
      assert.equal(message.content[0].text, 'Hello');
      assert.deepEqual([message.stop_reason, message.stop_sequence], ['stop_sequence', ' there']);
      const short = await messages.create({ ...ask, max_tokens: 1, messages: user(hello.prompt) });
      assert.deepEqual([short.content[0].text, short.stop_reason], ['Hello', 'max_tokens']);
    },
    stream: async () => {
      const stream = messages.stream({ ...ask, messages: user(hello.prompt) });
      const events = [];
      const deltas = [];
      stream.on('streamEvent', ({ type }) => events.push(type));
      stream.on('text', (delta) => deltas.push(delta));
      const message = await stream.finalMessage();
      assert.equal(deltas.join(''), hello.answer);
      assert.equal(message.content[0].text, hello.answer);
      assert.equal(message.stop_reason, 'end_turn');
      assert.ok(message.usage.output_tokens > 0);
      assert.deepEqual(
        events.filter((type) => type !== 'content_block_delta'),
        [
          ...['message_start', 'content_block_start', 'content_block_stop'],
          ...['message_delta', 'message_stop'],
        ],
      );
    },
    thinking: async () => {
      const params = {
        ...{ model: 'any', max_tokens: 2000, messages: user(reason.prompt) },
        thinking: { type: 'enabled', budget_tokens: 1024 },
      };
      for (const { content } of [
        await messages.create(params),
        await messages.stream(params).finalMessage(),
      ]) {
        const [first, second] = content;
        assert.deepEqual([first.type, first.thinking.trim()], ['thinking', reason.reasoning]);
        assert.equal(typeof first.signature, 'string');
        assert.deepEqual([second.type, second.text], ['text', reason.answer]);
      }
    },
    tools: async () => {
      const talk = user(weather.prompt);
      const first = await messages.create({ ...ask, messages: talk, tools });
      const { id } = called(first);
      const result = { type: 'tool_result', tool_use_id: id, content: weather.result };
      talk.push({ role: 'assistant', content: first.content }, ...user([result]));
      const second = await messages.create({ ...ask, messages: talk, tools });
      assert.equal(second.content[0].text, weather.answer);
      assert.equal(second.stop_reason, 'end_turn');
    },
    'tools: stream': async () => {
      const stream = messages.stream({ ...ask, messages: user(weather.prompt), tools });
      const parts = [];
      stream.on('inputJson', (part) => parts.push(part));
      called(await stream.finalMessage());
      assert.deepEqual(JSON.parse(parts.join('')), weather.call.arguments);
    },
    'tools: parallel': async () => {
      const talk = user(both.prompt);
      for (const { content } of [
        await messages.create({ ...ask, messages: talk, tools }),
        await messages.stream({ ...ask, messages: talk, tools }).finalMessage(),
      ]) {
        assert.deepEqual(
          content.map(({ type }) => type),
          ['text', 'tool_use', 'tool_use'],
        );
        assert.equal(content[0].text.trim(), both.text);
        const results = content.slice(1).map(({ id, input }) => ({
          ...{ type: 'tool_result', tool_use_id: id },
          content: [{ type: 'text', text: both.results[input.city] }],
        }));
        const round = [...talk, { role: 'assistant', content }, ...user(results)];
        const second = await messages.create({ ...ask, messages: round, tools });
        assert.equal(second.content[0].text, both.answer);
      }
    },
    'tools: choice': async () => {
      for (const choice of [{ type: 'any' }, { type: 'tool', name: 'weather' }])
        called(
          await messages.create({
            ...{ ...ask, messages: user(hello.prompt), tools, tool_choice: choice },
          }),
        );
      const none = await messages.create({
        ...{ ...ask, messages: user(hello.prompt), tools, tool_choice: { type: 'none' } },
      });
      assert.equal(none.content[0].text, hello.answer);
    },
    toolRunner: async () => {
      const cities = [];
      const forecast = betaTool({
        ...{ name: 'weather', description: 'The weather.', inputSchema: parameters },
        run: ({ city }) => {
          cities.push(city);
          return weather.result;
        },
      });
      // thread: false sends the whole conversation in each turn; the default keeps it on the server.
      const params = { ...ask, messages: user(weather.prompt), tools: [forecast], thread: false };
      const { content } = await beta.messages.toolRunner(params).runUntilDone();
      assert.equal(content[0].text, weather.answer);
      assert.deepEqual(cities, ['Oslo']);
    },
    'structured output': async () => {
      const format = zodOutputFormat(z.object({ city: z.string(), degrees: z.int() }));
      const message = await messages.parse({
        ...{ ...ask, messages: user(json.prompt), output_config: { format } },
      });
      assert.deepEqual(message.parsed_output, json.value);
    },
    countTokens: async () => {
      const count = (more) =>
        messages.countTokens({ model: 'any', messages: user('Hi.'), ...more });
      const { input_tokens: few } = await count();
      const { usage } = await messages.create({ ...ask, messages: user('Hi.') });
      assert.equal(few, usage.input_tokens + usage.cache_read_input_tokens);
      assert.ok((await count({ system: pirate.system })).input_tokens > few);
      assert.ok((await count({ tools })).input_tokens > few);
    },
    errors: async () => {
      const create = (from, more) =>
        from.messages.create({ ...ask, messages: user(hello.prompt), ...more });
      for (const stream of [false, true]) {
        await assert.rejects(create(connect('wrong'), { stream }), (e) => {
          assert.equal(e.error.error.type, 'authentication_error');
          return e instanceof errors.AuthenticationError;
        });
        await assert.rejects(create(connect(key), { stream, max_tokens: 'many' }), (e) => {
          assert.equal(e.error.type, 'error');
          assert.equal(e.error.error.type, 'invalid_request_error');
          assert.match(e.error.error.message, /max_tokens/);
          return e instanceof errors.BadRequestError;
        });
      }
    },
  };
}
