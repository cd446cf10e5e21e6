// @llamaindex/openai: chat, streams, tools, structured output, responses, embeddings.
import assert from 'node:assert/strict';

import { asks, key } from './servers.mjs';

const { hello, pirate, json, weather } = asks;
const user = (content) => [{ role: 'user', content }];

export async function llamaindex({ load, script, tales }) {
  const { OpenAI, OpenAIEmbedding, OpenAIResponses } = await load('@llamaindex/openai');
  const { tool } = await load('@llamaindex/core/tools');
  const { z } = await load('zod');
  const options = ({ url }) => ({
    ...{ model: 'any', apiKey: key, maxRetries: 0, baseURL: `${url}/v1` },
  });
  const chat = new OpenAI(options(script));
  const responses = new OpenAIResponses(options(script));
  const forecast = tool(() => weather.result, {
    ...{ name: 'weather', description: 'The weather of a city.' },
    parameters: z.object({ city: z.string() }),
  });

  const textOf = (content) =>
    typeof content === 'string' ? content : content.map(({ text }) => text ?? '').join('');
  const streamed = async (llm) => {
    let text = '';
    for await (const { delta, raw } of await llm.chat({
      ...{ messages: user(hello.prompt), stream: true },
    }))
      // OpenAIResponses repeats the last delta with each event that has none.
      if (llm === chat || raw.type === 'response.output_text.delta') text += delta;
    assert.equal(text, hello.answer);
  };
  const round = async (llm) => {
    const messages = user(weather.prompt);
    const { message } = await llm.chat({ messages, tools: [forecast] });
    const [{ id, name, input }] = message.options.toolCall;
    const values = typeof input === 'string' ? JSON.parse(input) : input;
    assert.deepEqual({ name, arguments: values }, weather.call);
    const options = { toolResult: { id, result: weather.result, isError: false } };
    messages.push(message, { role: 'user', content: weather.result, options });
    const second = await llm.chat({ messages, tools: [forecast] });
    assert.equal(textOf(second.message.content), weather.answer);
  };

  return {
    chat: async () => {
      const { message } = await chat.chat({ messages: user(hello.prompt) });
      assert.equal(message.content, hello.answer);
      const messages = [{ role: 'system', content: pirate.system }, ...user(pirate.prompt)];
      assert.equal((await chat.chat({ messages })).message.content, pirate.answer);
    },
    stream: () => streamed(chat),
    complete: async () => {
      assert.equal((await chat.complete({ prompt: hello.prompt })).text, hello.answer);
    },
    tools: () => round(chat),
    'tools: stream': async () => {
      const calls = [];
      for await (const { options } of await chat.chat({
        ...{ messages: user(weather.prompt), tools: [forecast], stream: true },
      }))
        if (options?.toolCall) calls.push(...options.toolCall);
      const { name, input } = calls.at(-1);
      const values = typeof input === 'string' ? JSON.parse(input) : input;
      assert.deepEqual({ name, arguments: values }, weather.call);
    },
    responseFormat: async () => {
      const { message } = await chat.chat({
        messages: user(json.prompt),
        responseFormat: { type: 'json_object' },
      });
      assert.deepEqual(JSON.parse(message.content), json.value);
    },
    responses: async () => {
      const { message } = await responses.chat({ messages: user(hello.prompt) });
      assert.equal(textOf(message.content), hello.answer);
    },
    'responses: stream': () => streamed(responses),
    'responses: tools': () => round(responses),
    embeddings: async () => {
      const model = new OpenAIEmbedding(options(tales));
      const [fox, owl] = await model.getTextEmbeddingsBatch(['a fox', 'an owl']);
      assert.deepEqual(await model.getTextEmbedding('a fox'), fox);
      assert.notDeepEqual(fox, owl);
    },
  };
}
