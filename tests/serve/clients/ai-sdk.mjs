// The AI SDK with its two providers for OpenAI's API: @ai-sdk/openai (chat, completions, responses)
// and @ai-sdk/openai-compatible. Version 6 is tested with the first.
import assert from 'node:assert/strict';

import { asks, key } from './servers.mjs';

const { hello, pirate, reason, json, choice, weather, both } = asks;

globalThis.AI_SDK_LOG_WARNINGS = false;

/** Features that each kind of language model has. */
function withModel({ ai, z, model, providerOptions }) {
  const ask = { model, maxRetries: 0, providerOptions };
  const tools = (cities) => ({
    weather: ai.tool({
      description: 'The weather of a city.',
      inputSchema: z.object({ city: z.string() }),
      execute: ({ city }) => {
        cities.push(city);
        return both.results[city];
      },
    }),
  });
  const schema = z.object({ city: z.string(), degrees: z.int() });
  return {
    generateText: async () => {
      const { text, finishReason, usage } = await ai.generateText({
        ...ask,
        prompt: hello.prompt,
        ...{ temperature: 0, topP: 0.9, maxOutputTokens: 40, seed: 1 },
      });
      assert.equal(text, hello.answer);
      assert.equal(finishReason, 'stop');
      assert.ok(usage.outputTokens > 0);
      const pirates = await ai.generateText({
        ...ask,
        instructions: pirate.system,
        prompt: pirate.prompt,
      });
      assert.equal(pirates.text, pirate.answer);
    },
    streamText: async () => {
      const result = ai.streamText({ ...ask, prompt: hello.prompt, onError() {} });
      const deltas = [];
      for await (const delta of result.textStream) deltas.push(delta);
      assert.equal(deltas.join(''), hello.answer);
      assert.equal(await result.finishReason, 'stop');
      assert.ok((await result.usage).outputTokens > 0);
    },
    tools: async () => {
      const cities = [];
      const { text, steps } = await ai.generateText({
        ...ask,
        prompt: weather.prompt,
        tools: tools(cities),
        stopWhen: ai.isStepCount(3),
      });
      assert.equal(text, weather.answer);
      assert.equal(steps.length, 2);
      assert.deepEqual(cities, ['Oslo']);
    },
    'tools: stream': async () => {
      const cities = [];
      const result = ai.streamText({
        ...ask,
        prompt: weather.prompt,
        tools: tools(cities),
        stopWhen: ai.isStepCount(3),
        onError() {},
      });
      assert.equal(await result.text, weather.answer);
      assert.deepEqual(cities, ['Oslo']);
    },
    'tools: parallel': async () => {
      const cities = [];
      const { text } = await ai.generateText({
        ...ask,
        prompt: both.prompt,
        tools: tools(cities),
        stopWhen: ai.isStepCount(3),
      });
      assert.equal(text, both.answer);
      assert.deepEqual(cities, ['Oslo', 'Rome']);
    },
    'tools: required': async () => {
      const cities = [];
      await ai.generateText({
        ...ask,
        prompt: hello.prompt,
        tools: tools(cities),
        toolChoice: { type: 'tool', toolName: 'weather' },
      });
      assert.deepEqual(cities, ['Oslo']);
    },
    generateObject: async () => {
      const { object } = await ai.generateObject({ ...ask, prompt: json.prompt, schema });
      assert.deepEqual(object, json.value);
    },
    'Output.object': async () => {
      const format = { ...ask, prompt: json.prompt, output: ai.Output.object({ schema }) };
      const { output } = await ai.generateText(format);
      assert.deepEqual(output, json.value);
      assert.deepEqual(await ai.streamText({ ...format, onError() {} }).output, json.value);
    },
    'Output.choice': async () => {
      const { options, prompt } = choice;
      const output = ai.Output.choice({ options });
      assert.equal((await ai.generateText({ ...ask, prompt, output })).output, choice.value);
    },
    'tools: schemas': async () => {
      const schemas = {
        nothing: z.object({}),
        optional: z.object({ at: z.iso.date().optional(), note: z.string().nullable() }),
        // What cannot be enforced is the model's to follow, unless the tool is strict.
        pattern: ai.jsonSchema({
          type: 'object',
          properties: { a: { $ref: '#/$defs/text' } },
          $defs: { text: { type: 'string', pattern: '^(?=x)' } },
        }),
      };
      const others = Object.entries(schemas).map(([name, inputSchema]) => [
        name,
        ai.tool({ inputSchema }),
      ]);
      const { toolCalls } = await ai.generateText({
        ...ask,
        prompt: weather.prompt,
        tools: { ...Object.fromEntries(others), ...tools([]) },
      });
      assert.deepEqual(
        toolCalls.map(({ toolName, input }) => ({ name: toolName, arguments: input })),
        [weather.call],
      );
    },
    'messages: parts': async () => {
      const text = (...texts) => texts.map((each) => ({ type: 'text', text: each }));
      const answer = [{ type: 'reasoning', text: 'Hmm.' }, ...text('Well.')];
      const result = await ai.generateText({
        ...ask,
        instructions: pirate.system,
        messages: [
          { role: 'user', content: text('One.', 'Two.') },
          { role: 'assistant', content: answer },
          { role: 'user', content: pirate.prompt },
        ],
      });
      assert.equal(result.text, pirate.answer);
    },
    ToolLoopAgent: async () => {
      const cities = [];
      const agent = new ai.ToolLoopAgent({
        ...ask,
        instructions: 'You help.',
        tools: tools(cities),
      });
      assert.equal((await agent.generate({ prompt: weather.prompt })).text, weather.answer);
      assert.deepEqual(cities, ['Oslo']);
    },
    errors: async () => {
      await assert.rejects(
        ai.generateText({ ...ask, prompt: hello.prompt, topP: 5 }),
        (e) => ai.APICallError.isInstance(e) && e.statusCode === 400 && /top_p/.test(e.message),
      );
    },
  };
}

/** `summaries`: the provider reads summaries of the reasoning, which open models do not have. */
const withReasoning = ({ ai, model, summaries, providerOptions }) => ({
  reasoning: async () => {
    const ask = { model, prompt: reason.prompt, maxRetries: 0, providerOptions };
    const whole = await ai.generateText(ask);
    const streamed = ai.streamText({ ...ask, onError() {} });
    for (const { text, reasoningText } of [whole, streamed]) {
      assert.equal(await text, reason.answer);
      if (!summaries) assert.equal((await reasoningText).trim(), reason.reasoning);
    }
  },
});

const withEmbeddings = ({ ai, model }) => ({
  embedMany: async () => {
    const values = ['a fox', 'an owl', 'a fox'];
    const { embeddings, usage } = await ai.embedMany({ model, values, maxRetries: 0 });
    assert.equal(embeddings.length, 3);
    assert.deepEqual(embeddings[0], embeddings[2]);
    assert.notDeepEqual(embeddings[0], embeddings[1]);
    assert.ok(usage.tokens > 0);
  },
});

const withCompletions = ({ ai, model }) => ({
  completions: async () => {
    const ask = { model, prompt: 'Once upon a time', maxOutputTokens: 8, maxRetries: 0 };
    const { text, usage } = await ai.generateText({ ...ask, temperature: 0 });
    assert.match(text, /\w/);
    assert.ok(usage.outputTokens <= 8);
    const { textStream } = ai.streamText({ ...ask, temperature: 0, onError() {} });
    let streamed = '';
    for await (const delta of textStream) streamed += delta;
    assert.equal(streamed, text);
  },
});

const prefixed = (prefix, features) =>
  Object.fromEntries(
    Object.entries(features).map(([name, check]) => [`${prefix}: ${name}`, check]),
  );

export async function aiSdkOpenAI({ load, script, tales }) {
  const ai = await load('ai');
  const { z } = await load('zod');
  const { createOpenAI } = await load('@ai-sdk/openai');
  const chat = createOpenAI({ baseURL: `${script.url}/v1`, apiKey: key });
  // Otherwise the provider sends only the ids of items that it has received.
  const providerOptions = { openai: { store: false } };
  const responses = { model: chat.responses('any'), providerOptions };
  const writer = createOpenAI({ baseURL: `${tales.url}/v1`, apiKey: key });
  return {
    ...prefixed('chat', withModel({ ai, z, model: chat.chat('any') })),
    ...prefixed('responses', withModel({ ai, z, ...responses })),
    ...prefixed('responses', withReasoning({ ai, summaries: true, ...responses })),
    ...withCompletions({ ai, model: writer.completion('any') }),
    ...withEmbeddings({ ai, model: writer.embedding('any') }),
  };
}

/** AI SDK 6 with the names of AI SDK 7. */
export function aiSdk6OpenAI({ load, ...servers }) {
  const loadOlder = async (name) => {
    if (name === '@ai-sdk/openai') return load('ai-6-openai');
    if (name !== 'ai') return load(name);
    const ai = await load('ai-6');
    const renamed =
      (call) =>
      ({ instructions, ...options }) =>
        call({ ...options, system: instructions });
    return {
      ...ai,
      isStepCount: ai.stepCountIs,
      generateText: renamed(ai.generateText),
      streamText: renamed(ai.streamText),
    };
  };
  return aiSdkOpenAI({ load: loadOlder, ...servers });
}

export async function aiSdkCompatible({ load, script, tales }) {
  const ai = await load('ai');
  const { z } = await load('zod');
  const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
  const connect = ({ url }) =>
    createOpenAICompatible({
      ...{ name: 'sluice', baseURL: `${url}/v1`, apiKey: key },
      ...{ supportsStructuredOutputs: true, includeUsage: true },
    });
  const model = connect(script).chatModel('any');
  const writer = connect(tales);
  return {
    ...withModel({ ai, z, model }),
    ...withReasoning({ ai, model }),
    ...withCompletions({ ai, model: writer.completionModel('any') }),
    ...withEmbeddings({ ai, model: writer.embeddingModel('any') }),
  };
}
