// @langchain/openai: chat models, tools, structured output, embeddings.
import assert from 'node:assert/strict';

import { asks, key } from './servers.mjs';

const { hello, pirate, json, weather } = asks;

export async function langchain({ load, script, tales }) {
  const { ChatOpenAI, OpenAI, OpenAIEmbeddings } = await load('@langchain/openai');
  const { HumanMessage, SystemMessage, ToolMessage } = await load('@langchain/core/messages');
  const { tool } = await load('@langchain/core/tools');
  const { z } = await load('zod');
  const options = ({ url }) => ({
    ...{ model: 'any', apiKey: key, maxRetries: 0 },
    configuration: { baseURL: `${url}/v1` },
  });
  const model = new ChatOpenAI(options(script));
  const responses = new ChatOpenAI({ ...options(script), useResponsesApi: true });
  const schema = z.object({ city: z.string(), degrees: z.int() });
  const forecast = tool(() => weather.result, {
    name: 'weather',
    description: 'The weather of a city.',
    schema: z.object({ city: z.string() }),
  });

  const round = async (chat, stream) => {
    const bound = chat.bindTools([forecast]);
    const messages = [new HumanMessage(weather.prompt)];
    let first;
    if (stream)
      for await (const chunk of await bound.stream(messages)) first = first?.concat(chunk) ?? chunk;
    else first = await bound.invoke(messages);
    assert.equal(first.tool_calls.length, 1);
    const [call] = first.tool_calls;
    assert.deepEqual({ name: call.name, arguments: call.args }, weather.call);
    const result = await forecast.invoke(call);
    assert.ok(result instanceof ToolMessage);
    const { text } = await bound.invoke([...messages, first, result]);
    assert.equal(text, weather.answer);
  };

  return {
    invoke: async () => {
      const { text, usage_metadata: usage } = await model.invoke(hello.prompt);
      assert.equal(text, hello.answer);
      assert.ok(usage.output_tokens > 0);
      const messages = [new SystemMessage(pirate.system), new HumanMessage(pirate.prompt)];
      assert.equal((await model.invoke(messages)).text, pirate.answer);
    },
    stream: async () => {
      let whole;
      for await (const chunk of await model.stream(hello.prompt))
        whole = whole?.concat(chunk) ?? chunk;
      assert.equal(whole.text, hello.answer);
      assert.ok(whole.usage_metadata.output_tokens > 0);
    },
    batch: async () => {
      const answers = await model.batch([hello.prompt, hello.prompt]);
      assert.deepEqual(
        answers.map(({ text }) => text),
        [hello.answer, hello.answer],
      );
    },
    bindTools: () => round(model, false),
    'bindTools: stream': () => round(model, true),
    'bindTools: strict': async () => {
      for (const choice of ['any', 'weather']) {
        const options = { strict: true, tool_choice: choice, parallel_tool_calls: false };
        const { tool_calls: calls } = await model
          .bindTools([forecast], options)
          .invoke(hello.prompt);
        assert.deepEqual([calls.length, calls[0].name], [1, weather.call.name]);
      }
    },
    streamEvents: async () => {
      let text = '';
      for await (const { event, data } of model.streamEvents(hello.prompt, { version: 'v2' }))
        if (event === 'on_chat_model_stream') text += data.chunk.text;
      assert.equal(text, hello.answer);
    },
    ...Object.fromEntries(
      ['jsonSchema', 'jsonMode', 'functionCalling'].map((method) => [
        `withStructuredOutput: ${method}`,
        async () => {
          const calls = method === 'functionCalling';
          const structured = model.withStructuredOutput(
            calls ? z.object({ city: z.string() }) : schema,
            {
              ...{ method, name: 'weather' },
            },
          );
          const value = await structured.invoke(calls ? hello.prompt : json.prompt);
          assert.deepEqual(value, calls ? weather.call.arguments : json.value);
        },
      ]),
    ),
    responses: async () => {
      assert.equal((await responses.invoke(hello.prompt)).text, hello.answer);
      let text = '';
      for await (const chunk of await responses.stream(hello.prompt)) text += chunk.text;
      assert.equal(text, hello.answer);
    },
    'responses: bindTools': () => round(responses, false),
    'responses: bindTools: stream': () => round(responses, true),
    completions: async () => {
      const writer = new OpenAI({ ...options(tales), maxTokens: 8, temperature: 0 });
      assert.match(await writer.invoke('Once upon a time'), /\w/);
    },
    embeddings: async () => {
      const embeddings = new OpenAIEmbeddings(options(tales));
      const [fox, owl] = await embeddings.embedDocuments(['a fox', 'an owl']);
      assert.deepEqual(await embeddings.embedQuery('a fox'), fox);
      assert.notDeepEqual(fox, owl);
    },
  };
}
