// What tests of KV caches on the GPU share: models of tests/data, engines on both devices, and what
// these choose.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Engine } from '../../dist/node.js';
import { choicesOn } from '../bench/gpu/models.mjs';
import { root } from './helpers.mjs';

const all = ['arch', 'families'].flatMap((kind) => {
  const folder = join(root, 'tests', 'data', kind);
  const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
  return manifest.map((model) => ({ ...model, folder }));
});
export const named = (name) => all.find((model) => model.name === name);

export const load = ({ folder, file }, device, options) =>
  Engine.load(join(folder, file), {
    device,
    threads: 1,
    cache: 'none',
    ...(device === 'wasm' && { kernels: 'wasm128' }),
    ...options,
  });

/** The choice of an engine or session after `tokens`, with its gap to the second. */
export async function choice(teller, tokens) {
  const [chosen] = await choicesOn(teller, [tokens]);
  if (!chosen) throw new Error('no token');
  return chosen;
}

export async function generate(teller, prompt, maxTokens, options = {}) {
  const tokens = [];
  const greedy = { maxTokens, temperature: 0, ignoreEos: true };
  for await (const { token } of teller.generate(prompt, { ...greedy, ...options }))
    if (token >= 0) tokens.push(token);
  return tokens;
}

/** `n` tokens: those of a prompt, again and again. */
export const repeated = (prompt, n) =>
  Array.from({ length: n }, (_, i) => prompt[i % prompt.length]);
