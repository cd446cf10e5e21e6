// Models on the GPU and on the CPU, in Node: greedy tokens, time to the first token, and the time and
// the work of a token.
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { inRoot } from '../../../web/scripts/lib.mjs';

export const kModelTokens = 32;

/** The smallest models of the tests, by folder: the kit has to stay below 30 MB. */
const kModels = {
  arch: ['llama-gqa'],
  quant: ['Q4_K'],
  families: [
    'ernie4_5',
    'starcoder2',
    'phi3-longrope-short',
    'mistral-window',
    'exaone',
    'glm4',
    'llama-biases',
    'gemma3-scaled',
    'lfm2',
    'granite',
  ],
};

/** Files of the models that are run unless others are named. */
export const testModels = () =>
  Object.entries(kModels).flatMap(([name, names]) => {
    const folder = inRoot('tests', 'data', name);
    const all = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
    return names.map((name) => join(folder, all.find((model) => model.name === name).file));
  });

/** Generates on an open engine. Resolves to tokens, times and counters of the GPU per token. */
export async function generateOn(engine, prompt, maxTokens) {
  const options = { maxTokens, temperature: 0, ignoreEos: true, cachePrompt: false };
  const began = performance.now();
  const tokens = [];
  let first;
  let before;
  for await (const { token } of engine.generate(prompt, options)) {
    first ??= performance.now();
    before ??= engine.stats().engine;
    if (token >= 0) tokens.push(token);
  }
  const out = {
    tokens,
    firstTokenMs: first - began,
    tokenMs: (performance.now() - first) / (tokens.length - 1),
  };
  const after = engine.stats().engine;
  const passes = after.gpuPasses - before.gpuPasses;
  if (passes > 0)
    for (const name of ['dispatches', 'submits', 'weightBytes'])
      out[name] = (after[name] - before[name]) / passes;
  return out;
}

async function run(Engine, file, device) {
  const began = performance.now();
  const engine = await Engine.load(file, { device, contextLength: 128, cache: 'none' });
  try {
    const loadMs = performance.now() - began;
    const out = await generateOn(engine, [1, 2, 3, 4], kModelTokens);
    return { loadMs, ...out, kernels: engine.stats().gpuKernels };
  } finally {
    await engine.dispose();
  }
}

/** `done` gets the result of each of `files`. */
export async function models(files, done) {
  const { Engine } = await import(inRoot('dist', 'node.js'));
  for (const file of files.length ? files : testModels()) {
    const result = { model: basename(file) };
    try {
      const [gpu, cpu] = [await run(Engine, file, 'webgpu'), await run(Engine, file, 'wasm')];
      const differs = cpu.tokens.findIndex((token, i) => token !== gpu.tokens[i]);
      Object.assign(result, { gpu, cpu, equalTokens: differs < 0 ? kModelTokens : differs });
    } catch (error) {
      result.error = `${error.message} [${error.code}]`;
    }
    done(result);
  }
}
