// One story, generated wherever the engine runs and compared with the trainer's reference output.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './helpers.mjs';

const models = join(root, 'examples', 'models');
const [reference] = JSON.parse(
  readFileSync(join(models, 'reference', 'outputs.json'), 'utf8'),
).prompts;

export const sample = join(models, 'sluice-tales-F16.gguf');

export const story = {
  source: sample,
  prompt: reference.text,
  tokens: reference.greedy,
  text: reference.greedy_text,
};

/** Runs in Node or in the page: loads, generates greedily and reports. */
export async function tell({ source, options, prompt, maxTokens, blob }) {
  const from = blob ? await (await fetch(source)).blob() : source;
  const engine = await Engine.load(from, options);
  const generation = engine.generate(prompt, { maxTokens, temperature: 0, ignoreEos: true });
  const tokens = [];
  for await (const piece of generation) tokens.push(piece.token);
  const out = {
    tokens,
    text: await generation.text(),
    memory: engine.memory(),
    stats: engine.stats(),
    heapLeft: engine.memory().budget - engine.memory().heap,
  };
  await engine.downloaded;
  await engine.dispose();
  return out;
}

export function check(told, expected, label) {
  assert.deepEqual(told.tokens, expected.tokens, label);
  if (expected.text) assert.equal(told.text, expected.text, label);
  assert.ok(told.heapLeft >= 0, `${label}: the heap exceeds the budget`);
}
