// @instructor-ai/instructor in each of its modes, with schemas of Zod 3, the only ones it reads.
import assert from 'node:assert/strict';

import { asks, key } from './servers.mjs';

const { hello, json, weather } = asks;

export async function instructor({ load, script }) {
  const { default: create } = await load('@instructor-ai/instructor');
  const { default: OpenAI } = await load('openai');
  const { z } = await load('zod/v3');
  const client = new OpenAI({ baseURL: `${script.url}/v1`, apiKey: key, maxRetries: 0 });
  const call = z.object({ city: z.string().describe('A city.') });
  const report = z.object({ city: z.string(), degrees: z.number() });

  const asked = (mode) => {
    const calls = mode === 'TOOLS';
    return {
      model: 'any',
      messages: [{ role: 'user', content: calls ? hello.prompt : json.prompt }],
      response_model: { schema: calls ? call : report, name: 'weather' },
    };
  };
  const value = (mode) => (mode === 'TOOLS' ? weather.call.arguments : json.value);
  const modes = ['TOOLS', 'JSON', 'MD_JSON', 'JSON_SCHEMA'];
  return Object.fromEntries([
    ...modes.map((mode) => [
      mode,
      async () => {
        const { chat } = create({ client, mode });
        const { _meta, ...answer } = await chat.completions.create(asked(mode));
        assert.deepEqual(answer, value(mode));
      },
    ]),
    ...modes.map((mode) => [
      `${mode}: stream`,
      async () => {
        const { chat } = create({ client, mode });
        let last;
        for await (const part of await chat.completions.create({ ...asked(mode), stream: true }))
          last = part;
        const { _meta, ...answer } = last;
        assert.deepEqual(answer, value(mode));
      },
    ]),
  ]);
}
