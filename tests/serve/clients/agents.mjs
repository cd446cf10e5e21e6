// @openai/agents: an agent that calls a tool, through chat completions and through responses.
import assert from 'node:assert/strict';

import { asks, key } from './servers.mjs';

const { hello, pirate, json, weather } = asks;

export async function agents({ load, script }) {
  const {
    Agent,
    handoff,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    run,
    setTracingDisabled,
    tool,
  } = await load('@openai/agents');
  const { default: OpenAI } = await load('openai');
  const { z } = await load('zod');
  setTracingDisabled(true);
  const client = new OpenAI({ baseURL: `${script.url}/v1`, apiKey: key, maxRetries: 0 });

  const features = (model) => {
    const withTool = (cities) =>
      new Agent({
        name: 'Forecaster',
        instructions: 'You know the weather.',
        model,
        tools: [
          tool({
            name: 'weather',
            description: 'The weather of a city.',
            parameters: z.object({ city: z.string() }),
            execute: ({ city }) => {
              cities.push(city);
              return weather.result;
            },
          }),
        ],
      });
    return {
      run: async () => {
        const agent = new Agent({ name: 'Pirate', instructions: pirate.system, model });
        assert.equal((await run(agent, pirate.prompt)).finalOutput, pirate.answer);
      },
      stream: async () => {
        const agent = new Agent({ name: 'Friend', instructions: 'You are polite.', model });
        const result = await run(agent, hello.prompt, { stream: true });
        let text = '';
        for await (const delta of result.toTextStream()) text += delta;
        await result.completed;
        assert.equal(text, hello.answer);
      },
      tools: async () => {
        const cities = [];
        const { finalOutput } = await run(withTool(cities), weather.prompt);
        assert.equal(finalOutput, weather.answer);
        assert.deepEqual(cities, ['Oslo']);
      },
      'tools: stream': async () => {
        const cities = [];
        const result = await run(withTool(cities), weather.prompt, { stream: true });
        await result.completed;
        assert.equal(result.finalOutput, weather.answer);
        assert.deepEqual(cities, ['Oslo']);
      },
      handoff: async () => {
        const pirates = new Agent({ name: 'Pirate', instructions: pirate.system, model });
        const cities = [];
        const change = handoff(pirates, {
          toolNameOverride: 'weather',
          inputType: z.object({ city: z.string() }),
          onHandoff: (_, { city }) => cities.push(city),
        });
        const agent = new Agent({
          ...{ name: 'Friend', instructions: 'You are polite.', model, handoffs: [change] },
        });
        const { lastAgent } = await run(agent, weather.prompt);
        assert.equal(lastAgent.name, 'Pirate');
        assert.deepEqual(cities, ['Oslo']);
      },
      'tools: required': async () => {
        const cities = [];
        const agent = withTool(cities).clone({ modelSettings: { toolChoice: 'required' } });
        assert.equal((await run(agent, hello.prompt)).finalOutput, weather.answer);
        assert.deepEqual(cities, ['Oslo']);
      },
      outputType: async () => {
        const agent = new Agent({
          ...{ name: 'Reporter', instructions: 'You report.', model },
          outputType: z.object({ city: z.string(), degrees: z.int() }),
        });
        assert.deepEqual((await run(agent, json.prompt)).finalOutput, json.value);
      },
    };
  };
  const named = (prefix, model) =>
    Object.entries(features(model)).map(([name, check]) => [`${prefix}: ${name}`, check]);
  return Object.fromEntries([
    ...named('chat', new OpenAIChatCompletionsModel(client, 'any')),
    ...named('responses', new OpenAIResponsesModel(client, 'any')),
  ]);
}
