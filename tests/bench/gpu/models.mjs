// Models on the GPU and on the CPU, in Node: greedy tokens, time to the first token, and the time and
// the work of a token. A free generation ends in another text after one near tie. So the GPU also
// computes each step behind the CPU's own tokens: there, each differing choice is one by itself.
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { inRoot } from '../../../web/scripts/lib.mjs';

const kTokens = 32;
/** Difference of log-probabilities above which both devices must choose the same token. */
export const kMinGap = 1e-3;

const kPrompt = [1, 2, 3, 4];

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

/**
 * The choice of an engine or session after each of `sequences`: its token, and its gap to the
 * second. One decode step each, if a sequence is the one before it and one more token.
 */
export async function choicesOn(engine, sequences) {
  const choices = [];
  const options = { maxTokens: 1, temperature: 0, ignoreEos: true, logprobs: 2 };
  for (const tokens of sequences)
    for await (const { topLogprobs } of engine.generate(tokens, options)) {
      if (!topLogprobs) continue;
      const [best, second] = topLogprobs;
      choices.push({ token: best.token, gap: best.logprob - second.logprob });
    }
  return choices;
}

async function run(Engine, file, device, count, forced) {
  const began = performance.now();
  const engine = await Engine.load(file, {
    device,
    contextLength: kPrompt.length + count,
    cache: 'none',
  });
  try {
    const loadMs = performance.now() - began;
    const out = await generateOn(engine, kPrompt, count);
    const tokens = forced ?? out.tokens;
    const sequences = tokens.map((_, i) => [...kPrompt, ...tokens.slice(0, i)]);
    const choices = await choicesOn(engine, sequences);
    return { loadMs, ...out, choices, kernels: engine.stats().gpuKernels };
  } finally {
    await engine.dispose();
  }
}

/**
 * Compares tokens and choices. `firstDifference`: of the free generations, with the CPU's gap there.
 * `forced`: behind the CPU's tokens, how many choices are equal, and all that are not.
 */
export function compare(gpu, cpu) {
  const at = cpu.tokens.findIndex((token, i) => token !== gpu.tokens[i]);
  const others = cpu.choices
    .map(({ token, gap }, at) => ({ at, gap, equal: token === gpu.choices[at]?.token }))
    .filter(({ equal }) => !equal)
    .map(({ at, gap }) => ({ at, gap }));
  return {
    equalTokens: at < 0 ? cpu.tokens.length : at,
    firstDifference: at < 0 ? null : { at, gap: cpu.choices[at].gap },
    forced: {
      equal: cpu.choices.length - others.length,
      of: cpu.choices.length,
      others,
      wrong: others.filter(({ gap }) => gap > kMinGap).length,
    },
  };
}

/** `done` gets the result of each of `files`, with `count` tokens. */
export async function models(files, done, count = kTokens) {
  const { Engine } = await import(inRoot('dist', 'node.js'));
  for (const file of files.length ? files : testModels()) {
    const result = { model: basename(file) };
    try {
      const cpu = await run(Engine, file, 'wasm', count);
      const gpu = await run(Engine, file, 'webgpu', count, cpu.tokens);
      Object.assign(result, { gpu, cpu, ...compare(gpu, cpu) });
    } catch (error) {
      result.error = `${error.message} [${error.code}]`;
    }
    done(result);
  }
}
