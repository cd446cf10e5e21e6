// LoRA adapters on the GPU, in Node on a software adapter, against the references of
// ../shared/fixtures/lora and the CPU: one and several, set on load and later, with other scales, in
// queued steps, beside weights that stream, layers on the CPU and several sequences. What the GPU
// cannot apply, and all behind a lost GPU, the CPU computes.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { extent, longOnly } from '../extent.mjs';
import { noSoftwareAdapter, openNode } from './gpu-node.mjs';
import { budgetOf, checkLogits, kNmse, setup } from './gpu-page.mjs';
import { root } from './helpers.mjs';

const fixtures = join(root, '..', 'shared', 'fixtures');
const folder = join(fixtures, 'lora');
const skip = noSoftwareAdapter || (existsSync(folder) ? false : 'no ../shared/fixtures/lora');
const cases = skip ? [] : JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
const kPositions = 4;
const kTokens = extent(6, 12); // more than a queue of four steps
/** Tokens whose log-probabilities are closer may swap. With quantized weights, the CPU rounds activations. */
const kGap = 0.02;
const kGapQuantized = 0.2;

const named = (name) => cases.find((one) => one.name === name);
const fileOf = ({ model }) => join(fixtures, model);
const adaptersOf = ({ adapters }) =>
  adapters.map(({ file, scale }) => ({ source: join(folder, file), scale }));
/** Experts of a mixture are changed by these. */
const kExperts = /^qwen3moe/;

function check(one, logits) {
  const bytes = readFileSync(join(folder, one.logits));
  const reference = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)); // prettier-ignore
  const allowance = kNmse + 10 * one.llama_cpp_nmse;
  checkLogits({ logits: new Uint8Array(logits.buffer) }, { ...one, reference }, allowance);
}

/** The tokens of a CPU engine, with gaps to the second. */
async function choices(engine, prompt, maxTokens) {
  const out = [];
  const greedy = { maxTokens, temperature: 0, ignoreEos: true, logprobs: 2 };
  for await (const { token, topLogprobs } of engine.generate(prompt, greedy))
    if (topLogprobs) out.push([token, topLogprobs[0].logprob - topLogprobs[1].logprob]);
  return out;
}

/** The first other token must be a near tie. */
function agree(found, expected, what) {
  const at = expected.findIndex(([token], i) => token !== found[i]);
  const gap = what.startsWith('llama-Q4_K') ? kGapQuantized : kGap;
  if (at >= 0) assert.ok(expected[at][1] < gap, `${what}: token ${at}, gap ${expected[at][1]}`);
}

describe('LoRA adapters on the GPU', { skip, timeout: 900_000 }, () => {
  let tab;
  before(async () => (tab = await openNode(setup)));
  after(async () => {
    const complaints = globalThis.complaints;
    await tab.close();
    assert.deepEqual(complaints, [], 'errors of the device');
  });

  /** Runs `work` with an engine on the GPU, and its warnings. */
  async function onGpu(one, options, work) {
    const warnings = [];
    const gpu = await globalThis.load(fileOf(one), {
      contextLength: 128,
      onProgress: ({ phase, code }) => phase === 'warning' && warnings.push(code),
      ...options,
    });
    try {
      assert.equal(gpu.stats().device, 'webgpu');
      return await work(gpu, warnings);
    } finally {
      await gpu.dispose();
    }
  }
  const logitsOf = (engine, { prompt }) => engine.logits(prompt.slice(0, kPositions));
  const tokensOf = (engine, { prompt }, options) =>
    globalThis.tokensOf(engine, prompt, kTokens, { cachePrompt: false, ...options });
  /** A step at a time, and queued ones, which replay what was recorded. */
  async function generated(engine, one) {
    const tokens = await tokensOf(engine, one);
    const queued = [];
    const greedy = { maxTokens: kTokens, temperature: 0, ignoreEos: true, cachePrompt: false };
    for await (const { token } of engine.generate(one.prompt, greedy))
      if (token >= 0) queued.push(token);
    assert.deepEqual(queued, tokens, 'queued steps');
    return tokens;
  }

  for (const model of [
    ...new Set(cases.filter(({ name }) => !kExperts.test(name)).map(({ model }) => model)),
  ])
    // prettier-ignore
    test(model, { skip: !/llama-gqa/.test(model) && longOnly }, async () => {
      // The short suite has one adapter, and both.
      const every = cases.filter((one) => one.model === model);
      const own = longOnly ? [every[0], every.at(-1)] : every;
      const [first] = own;
      const cpu = await globalThis.loadCpu(fileOf(first), { contextLength: 128 });
      const bare = await onGpu(first, {}, async (gpu, warnings) => {
        const plain = [await logitsOf(gpu, first), await generated(gpu, first)];
        const uploaded = gpu.stats().engine.uploaded;
        for (const one of own) {
          await gpu.setAdapters(adaptersOf(one));
          const before = gpu.stats().engine.gpuPasses;
          check(one, await logitsOf(gpu, one));
          await cpu.setAdapters(adaptersOf(one));
          const tokens = await generated(gpu, one);
          agree(tokens, await choices(cpu, one.prompt, kTokens), one.name);
          assert.ok(gpu.stats().engine.gpuPasses > before + 4, 'the GPU computes');
        }
        assert.equal(gpu.stats().engine.uploaded, uploaded, "the model's weights stay");
        const none = adaptersOf(first).map((adapter) => ({ ...adapter, scale: 0 }));
        for (const lora of longOnly ? [[]] : [none, []]) {
          await gpu.setAdapters(lora);
          assert.deepEqual(await logitsOf(gpu, first), plain[0]);
          assert.deepEqual(await generated(gpu, first), plain[1]);
        }
        assert.deepEqual(warnings, []);
        return plain;
      });
      const both = own.at(-1);
      assert.equal(both.adapters.length, 2);
      const options = { lora: adaptersOf(both) };
      const whole = await onGpu(both, options, async (gpu) => {
        const logits = await logitsOf(gpu, both);
        check(both, logits);
        assert.notDeepEqual(logits, bare[0]);
        const { uploaded } = gpu.stats().engine;
        return { logits, tokens: await tokensOf(gpu, both), gpu: gpu.memory().gpu, uploaded };
      });
      const refused = await onGpu(both, { gpuBudget: 1 << 16 }, () => {}).catch(
        ({ message }) => message,
      );
      // A quarter of the weights, with adapters on load, and set later.
      const gpuBudget = budgetOf(refused, whole.gpu, 1 / 4);
      for (const lora of longOnly ? [[]] : [adaptersOf(both), []])
        await onGpu(both, { gpuBudget, lora }, async (gpu, warnings) => {
          const small = async () => [await logitsOf(gpu, both), await tokensOf(gpu, both)];
          if (!lora.length) assert.deepEqual((await small())[0], bare[0]);
          await gpu.setAdapters(adaptersOf(both));
          assert.deepEqual(await small(), [whole.logits, whole.tokens], 'streamed weights');
          assert.ok(gpu.memory().gpu <= gpuBudget, `${gpu.memory().gpu} bytes of ${gpuBudget}`);
          assert.ok(gpu.stats().engine.uploaded > whole.uploaded, 'weights stream');
          await gpu.setAdapters([]);
          assert.deepEqual((await small())[0], bare[0]);
          assert.deepEqual(warnings, []);
        });
      await cpu.dispose();
    });

  test('int8 activations and long prompts', { skip: longOnly }, async () => {
    const one = named('llama-Q4_K.ab');
    const lora = adaptersOf(one);
    const kernels = { subgroups: true, f16: false, int8: { gemv: true, gemm: true } };
    const cpu = await globalThis.loadCpu(fileOf(one), { contextLength: 128, lora });
    const workerUrl = globalThis.workerFor(kernels);
    await onGpu(one, { lora, workerUrl }, async (gpu) => {
      check(one, await logitsOf(gpu, one));
      agree(await generated(gpu, one), await choices(cpu, one.prompt, kTokens), one.name);
    });
    await cpu.dispose();
  });

  test('sessions side by side, drafts and layers on both devices', { skip: longOnly }, async () => {
    const one = named('llama.ab');
    const lora = adaptersOf(one);
    const cpu = await globalThis.loadCpu(fileOf(one), { contextLength: 128, lora });
    const prompts = ['mill river and fox', ' fox', ' 42 and mill river river'];
    const expected = [];
    for (const prompt of prompts) expected.push(await choices(cpu.session(), prompt, 12));
    await cpu.dispose();
    for (const options of [{ parallel: 3 }, { draft: 'ngram' }, { gpuLayers: 1 }])
      await onGpu(one, { ...options, lora }, async (gpu, warnings) => {
        const found = await Promise.all(
          prompts.map((prompt) => globalThis.tokensOf(gpu.session(), prompt, 12)),
        );
        for (const [i, tokens] of found.entries())
          agree(tokens, expected[i], `${JSON.stringify(options)} ${i}`);
        assert.ok(gpu.stats().engine.gpuPasses > 10);
        assert.deepEqual(warnings, []);
      });
  });

  test('the CPU computes what the GPU cannot apply, with a warning', async () => {
    const one = named('qwen3moe.ab');
    const plain = { ...one, adapters: [] };
    await onGpu(one, {}, async (gpu, warnings) => {
      const bare = await logitsOf(gpu, plain);
      const { gpuPasses } = gpu.stats().engine;
      await gpu.setAdapters(adaptersOf(one));
      check(one, await logitsOf(gpu, one));
      assert.equal(gpu.stats().engine.gpuPasses, gpuPasses);
      assert.deepEqual(warnings, ['CPU_FALLBACK']);
      await gpu.setAdapters([]);
      assert.deepEqual(await logitsOf(gpu, plain), bare);
      assert.ok(gpu.stats().engine.gpuPasses > gpuPasses);
    });
  });

  test('without room for adapters in gpuBudget the CPU computes', async () => {
    const one = named('llama.ab');
    const refused = await onGpu(one, { gpuBudget: 1 << 16 }, () => {}).catch(
      ({ message }) => message,
    );
    const gpuBudget = budgetOf(refused, 0, 0);
    await onGpu(one, { gpuBudget, lora: adaptersOf(one) }, async (gpu, warnings) => {
      check(one, await logitsOf(gpu, one));
      assert.equal(gpu.stats().engine.gpuPasses, 0);
      assert.ok(gpu.memory().gpu <= gpuBudget);
      assert.deepEqual(warnings, ['CPU_FALLBACK']);
      await gpu.setAdapters([]);
      await gpu.logits(one.prompt.slice(0, 1));
      assert.ok(gpu.stats().engine.gpuPasses > 0);
    });
  });

  test('the CPU goes on when the GPU is lost', async () => {
    const one = named('llama.ab');
    const warnings = [];
    const lora = adaptersOf(one);
    const gpu = await globalThis.load(fileOf(one), {
      contextLength: 128,
      lora,
      onProgress: ({ phase, code }) => phase === 'warning' && warnings.push(code),
    });
    const cpu = await globalThis.loadCpu(fileOf(one), { contextLength: 128, lora });
    const expected = await choices(cpu, one.prompt, kTokens);
    const found = [];
    for await (const { token, topLogprobs } of gpu.generate(one.prompt, {
      maxTokens: kTokens,
      temperature: 0,
      ignoreEos: true,
      logprobs: 1,
    })) {
      if (topLogprobs) found.push(token);
      if (found.length === 2) await globalThis.loseGpu();
    }
    agree(found, expected, 'lost');
    agree(await tokensOf(gpu, one), expected, 'behind the loss');
    assert.ok(warnings.includes('DEVICE_LOST'));
    assert.ok(!warnings.includes('CPU_FALLBACK'));
    assert.equal(gpu.stats().device, 'wasm');
    await Promise.all([cpu.dispose(), gpu.dispose()]);
  });
});
