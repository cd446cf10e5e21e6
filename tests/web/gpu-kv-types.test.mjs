// Whole models whose KV cache is on the GPU in each of its types, in Node on a software adapter,
// compared with the CPU and the same type: logits of a prompt, the choice behind each of the CPU's
// tokens, and a sequence that comes back after another one, whose rows are uploaded again. q4_0 quantizes
// groups of 64 positions, so prompts there have two and more.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { extent, longOnly } from '../extent.mjs';
import { choice, generate, load as loadModel, named, repeated } from './gpu-kv.mjs';
import { noSoftwareAdapter, useSoftwareAdapter } from './gpu-node.mjs';
import { nmse } from './helpers.mjs';

if (!noSoftwareAdapter) useSoftwareAdapter();

/** Normalized error of the logits, and the gap above which choices must be equal. */
const kNmse = 1e-3;
const kMinGap = 1e-3;
/** With q4_0 the CPU also rounds queries. */
const kMinGapQ4 = 0.1;
const kTokens = extent(4, 12);
/** Tokens of a prompt of q4_0. Those behind it end its second group. */
const kGroups = extent(2, 3) * 64 - 2;
/** Tokens with logits, a pass each: more than a group of q4_0. */
const kLogits = extent(70, 190);

/** Plain; a window; norms of heads, without and with windows; biases. */
const cases = [
  ['llama-gqa', 'q8_0', longOnly],
  ['llama-gqa', 'q4_0', false],
  ['llama-gqa', 'f16', longOnly],
  ['mistral-window', 'q8_0', longOnly],
  ['gemma3-scaled', 'q8_0', longOnly],
  ['qwen3', 'q8_0', longOnly],
  ['starcoder2', 'q8_0', longOnly],
  ['mistral-window', 'q4_0', longOnly],
  ['gemma3-scaled', 'q4_0', longOnly],
  ['qwen3', 'q4_0', longOnly],
  ['starcoder2', 'q4_0', longOnly],
];

const load = (model, device, kvType) => loadModel(model, device, { kvType, contextLength: 256 });

/** Dispatches of a decode step; log-probabilities take one at a time. None ends a group of q4_0. */
async function dispatchesOf(engine) {
  let before;
  const options = { maxTokens: 5, temperature: 0, ignoreEos: true, logprobs: 1 };
  for await (const piece of engine.generate([1, 2, 3], options))
    if (piece) before ??= engine.stats().engine;
  const after = engine.stats().engine;
  return (after.dispatches - before.dispatches) / (after.gpuPasses - before.gpuPasses);
}

/** Sequences and their prompts, in turns; the second goes beyond a group of q4_0. */
const kTurns = [
  [0, 'mill river'],
  [1, 'a stone bridge over the mill river '.repeat(4)],
  [0, 'the'],
  [1, 'wind'],
];

/** Tokens of `turns`. If sequences alternate, the GPU has the rows of one, and gets the other's again. */
async function inTurns(engine, turns) {
  const sessions = [engine.session(), engine.session()];
  const out = [];
  for (const [i, prompt] of turns) out.push([i, await generate(sessions[i], prompt, kTokens)]);
  return out.sort(([a], [b]) => a - b);
}

describe('KV cache types on the GPU', { skip: noSoftwareAdapter }, () => {
  for (const [name, kvType, skip] of cases)
    test(`${name}, ${kvType}`, { skip, timeout: 300_000 }, async (t) => {
      const model = named(name);
      const prompt = kvType === 'q4_0' ? repeated(model.prompt, kGroups) : model.prompt;
      const cpu = await load(model, 'wasm', kvType);
      const gpu = await load(model, 'webgpu', kvType);
      // The next model takes over what is compiled.
      t.after(() => Promise.all([cpu.dispose(), gpu.dispose()]));
      assert.equal(gpu.stats().device, 'webgpu');
      const few = prompt.slice(0, kLogits);
      const [wanted, ours] = [await cpu.logits(few), await gpu.logits(few)];
      assert.equal(ours.length, wanted.length);
      assert.ok(gpu.stats().engine.gpuPasses > 0, 'the GPU computes the logits');
      const error = nmse(ours, wanted);
      t.diagnostic(`NMSE ${error.toExponential(1)}`);
      assert.ok(error < kNmse, `NMSE ${error}`);
      const tokens = await generate(cpu, prompt, kTokens);
      for (let i = 0; i < kTokens; i++) {
        const before = [...prompt, ...tokens.slice(0, i)];
        const { token, gap } = await choice(cpu, before);
        if (gap > (kvType === 'q4_0' ? kMinGapQ4 : kMinGap))
          assert.equal((await choice(gpu, before)).token, token, `token ${i}, gap ${gap}`);
      }
      const one = kTurns.toSorted(([a], [b]) => a - b);
      assert.deepEqual(
        await inTurns(gpu, kTurns),
        await (kvType === 'q4_0' ? inTurns(gpu, one) : inTurns(cpu, kTurns)),
      );
      // Six of each layer, also where heads have norms, and the output head.
      if (['llama-gqa', 'qwen3'].includes(name))
        assert.equal(await dispatchesOf(gpu), 6 * gpu.stats().gpuLayers + 1);
      assert.ok(gpu.stats().engine.gpuPasses > kTokens);
    });

  test('an error names other types', async () => {
    await assert.rejects(load(named('llama-gqa'), 'webgpu', 'q2'), {
      code: 'NOT_SUPPORTED',
      message: /unsupported: this type of KV cache/,
    });
  });
});
