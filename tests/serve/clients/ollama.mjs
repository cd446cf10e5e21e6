// The ollama package: chat, generate, streams, tools, structured output, models, embeddings.
import assert from 'node:assert/strict';

import { asks, key, parameters } from './servers.mjs';

const { hello, pirate, reason, json, weather, both } = asks;
const user = (content) => [{ role: 'user', content }];
const tools = [{ type: 'function', function: { name: 'weather', parameters } }];

export async function ollama({ load, script, tales }) {
  const { Ollama } = await load('ollama');
  const connect = ({ url }, secret = key) =>
    new Ollama({ host: url, headers: { 'x-api-key': secret } });
  const client = connect(script);
  const writer = connect(tales);
  const model = script.model;

  const called = ({ tool_calls: calls }) =>
    assert.deepEqual(
      calls.map(({ function: { name, arguments: values } }) => ({ name, arguments: values })),
      [weather.call],
    );

  return {
    chat: async () => {
      const answer = await client.chat({ model, messages: user(hello.prompt) });
      assert.deepEqual([answer.message.role, answer.message.content], ['assistant', hello.answer]);
      assert.deepEqual([answer.done, answer.done_reason], [true, 'stop']);
      assert.ok(!Number.isNaN(Date.parse(answer.created_at)));
      assert.ok(answer.prompt_eval_count > 0 && answer.eval_count > 0);
      assert.ok(answer.total_duration > 0);
      const messages = [{ role: 'system', content: pirate.system }, ...user(pirate.prompt)];
      assert.equal((await client.chat({ model, messages })).message.content, pirate.answer);
    },
    'chat: stream': async () => {
      let text = '';
      let last;
      for await (const part of await client.chat({
        ...{ model, messages: user(hello.prompt), stream: true },
      })) {
        text += part.message.content;
        last = part;
      }
      assert.equal(text, hello.answer);
      assert.deepEqual([last.done, last.done_reason], [true, 'stop']);
      assert.ok(last.eval_count > 0);
    },
    'chat: options': async () => {
      const { message, done_reason: done } = await client.chat({
        ...{ model, messages: user(hello.prompt), keep_alive: '5m' },
        options: { temperature: 0, num_predict: 1, top_k: 5, top_p: 0.9, seed: 1, stop: ['x'] },
      });
      assert.deepEqual([message.content, done], ['Hello', 'length']);
    },
    'chat: think': async () => {
      const { message } = await client.chat({ model, messages: user(reason.prompt), think: true });
      assert.equal(message.thinking.trim(), reason.reasoning);
      assert.equal(message.content, reason.answer);
    },
    'chat: format': async () => {
      const schema = {
        type: 'object',
        properties: { city: { type: 'string' }, degrees: { type: 'integer' } },
        required: ['city', 'degrees'],
      };
      for (const format of ['json', schema]) {
        const { message } = await client.chat({ model, messages: user(json.prompt), format });
        assert.deepEqual(JSON.parse(message.content), json.value);
      }
    },
    tools: async () => {
      const messages = user(weather.prompt);
      const { message } = await client.chat({ model, messages, tools });
      called(message);
      messages.push(message, { role: 'tool', tool_name: 'weather', content: weather.result });
      const second = await client.chat({ model, messages, tools });
      assert.equal(second.message.content, weather.answer);
    },
    'tools: stream': async () => {
      const messages = user(weather.prompt);
      const calls = [];
      for await (const { message } of await client.chat({ model, messages, tools, stream: true }))
        calls.push(...(message.tool_calls ?? []));
      called({ tool_calls: calls });
    },
    'tools: parallel': async () => {
      const messages = user(both.prompt);
      const { message } = await client.chat({ model, messages, tools });
      assert.equal(message.content.trim(), both.text);
      messages.push(message);
      for (const { function: f } of message.tool_calls)
        messages.push({ role: 'tool', tool_name: f.name, content: both.results[f.arguments.city] });
      assert.equal(messages.length, 4);
      const second = await client.chat({ model, messages, tools });
      assert.equal(second.message.content, both.answer);
    },
    generate: async () => {
      const templated = await client.generate({ model, prompt: hello.prompt });
      assert.equal(templated.response, hello.answer);
      const pirates = { model, system: pirate.system, prompt: pirate.prompt };
      assert.equal((await client.generate(pirates)).response, pirate.answer);
      const raw = { model: tales.model, prompt: 'Once upon a time', raw: true };
      const options = { num_predict: 8, temperature: 0 };
      const whole = await writer.generate({ ...raw, options });
      assert.match(whole.response, /\w/);
      assert.deepEqual([whole.done_reason, whole.eval_count], ['length', 8]);
      let text = '';
      for await (const part of await writer.generate({ ...raw, options, stream: true }))
        text += part.response;
      assert.equal(text, whole.response);
    },
    abort: async () => {
      const stream = await writer.generate({
        ...{ model: tales.model, prompt: 'Once upon a time', raw: true, stream: true },
        options: { num_predict: 400 },
      });
      await assert.rejects(
        async () => {
          for await (const part of stream) {
            assert.equal(typeof part.response, 'string');
            stream.abort();
          }
        },
        { name: 'AbortError' },
      );
    },
    models: async () => {
      const { models } = await client.list();
      assert.equal(models.length, 1);
      const [{ name, size, digest, details, modified_at: modified }] = models;
      assert.ok(name && size > 0 && typeof digest === 'string');
      assert.equal(details.format, 'gguf');
      assert.ok(!Number.isNaN(Date.parse(modified)));
      const shown = await client.show({ model: name });
      assert.match(shown.template, /tool_call/);
      assert.equal(shown.details.family, 'llama');
      assert.equal(shown.model_info['general.architecture'], 'llama');
      assert.deepEqual(
        ['completion', 'tools', 'thinking'].filter((each) => !shown.capabilities.includes(each)),
        [],
      );
    },
    version: async () => {
      assert.match((await client.version()).version, /^\d+\.\d+\.\d+/);
    },
    embed: async () => {
      const { embeddings } = await writer.embed({ model: tales.model, input: ['a fox', 'an owl'] });
      assert.equal(embeddings.length, 2);
      const one = await writer.embed({ model: tales.model, input: 'a fox' });
      assert.deepEqual(one.embeddings, [embeddings[0]]);
      assert.ok(one.prompt_eval_count > 0);
    },
    errors: async () => {
      const messages = user(hello.prompt);
      for (const stream of [false, true]) {
        await assert.rejects(connect(script, 'wrong').chat({ model, messages, stream }), {
          name: 'ResponseError',
          status_code: 401,
        });
        await assert.rejects(
          client.chat({ model, messages, stream, options: { temperature: 'hot' } }),
          (e) => e.name === 'ResponseError' && e.status_code === 400 && /temperature/.test(e.error),
        );
      }
    },
  };
}
