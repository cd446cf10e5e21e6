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
import { budgetOf, checkLogits, kNmse, models, setup } from './gpu-page.mjs';
import { nmse, root } from './helpers.mjs';
import { writeAdapter } from './lora-file.mjs';

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

/** Of families: matrices that adapters of the fixtures do not change, as [name, columns, rows, slices]. */
const kMatrices = {
  // All layers' rows of one matrix.
  gemma4: [
    ['per_layer_model_proj', 64, 192],
    ['blk.0.inp_gate', 64, 32],
  ],
  // AltUp's coefficients and streams.
  gemma3n: [
    ['per_layer_model_proj', 32, 5632],
    ['blk.0.altup_predict_coef', 4, 16],
    ['blk.1.altup_predict_coef', 4, 16],
    ['blk.0.altup_correct_coef', 4, 4],
    ['blk.21.altup_correct_coef', 4, 4],
    ['blk.1.altup_router', 32, 4],
    ['blk.0.laurel_l', 32, 64],
    ['altup_proj', 32, 32, 3],
    ['altup_unembd_proj', 32, 32, 3],
  ],
  // A matrix per head.
  deepseek2: [
    ['blk.0.attn_k_b', 32, 32, 4],
    ['blk.1.attn_v_b', 32, 32, 4],
    ['blk.1.ffn_down_exps', 32, 64, 8],
  ],
  // Experts with biases, weighed inputs, and gate and up in one tensor.
  'gpt-oss': [
    ['blk.0.ffn_gate_exps', 64, 32, 4],
    ['blk.1.ffn_up_exps', 64, 32, 4],
    ['blk.1.ffn_down_exps', 32, 64, 4],
  ],
  llama4: [
    ['blk.1.ffn_gate_exps', 32, 32, 6],
    ['blk.1.ffn_up_exps', 32, 32, 6],
    ['blk.3.ffn_down_exps', 32, 32, 6],
  ],
  'gemma4-moe': [
    ['blk.0.ffn_gate_up_exps', 64, 64, 4],
    ['blk.1.ffn_down_exps', 32, 64, 4],
  ],
};
/** What these add is far from what rounding does. */
const kChange = 1e-2;
const kFamilies = models('families');

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

  for (const model of new Set(cases.map(({ model }) => model)))
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

  for (const [name, matrices] of Object.entries(kMatrices))
    test(
      `${name}: the GPU adds to ${matrices.map(([name]) => name).join(', ')}`,
      { skip: name !== 'gemma4' && longOnly },
      async () => {
        const { prompt } = kFamilies.find((one) => one.name === name);
        const one = { model: `families/${name}.gguf`, prompt: prompt.slice(0, 12) };
        const lora = [{ source: writeAdapter(name, matrices) }];
        const cpu = await globalThis.loadCpu(fileOf(one), { contextLength: 128 });
        const bare = await cpu.logits(one.prompt);
        await cpu.setAdapters(lora);
        const expected = await cpu.logits(one.prompt);
        assert.ok(nmse(bare, expected) > kChange, `${nmse(bare, expected)}: it changes logits`);
        await onGpu(one, {}, async (gpu, warnings) => {
          const before = await gpu.logits(one.prompt);
          assert.ok(nmse(before, bare) < kNmse);
          await gpu.setAdapters(lora);
          const { gpuPasses } = gpu.stats().engine;
          for (const tokens of [one.prompt, one.prompt.slice(0, 3)]) {
            const error = nmse(await gpu.logits(tokens), await cpu.logits(tokens));
            assert.ok(error < kNmse, `NMSE ${error} of ${tokens.length} tokens`);
          }
          agree(await generated(gpu, one), await choices(cpu, one.prompt, kTokens), name);
          assert.ok(gpu.stats().engine.gpuPasses > gpuPasses + 4, 'the GPU computes');
          await gpu.setAdapters([]);
          assert.deepEqual(await gpu.logits(one.prompt), before);
          assert.deepEqual(warnings, []);
        });
        await cpu.dispose();
      },
    );

  // Experts with more hidden values than an embedding has.
  test('the CPU computes what the GPU cannot apply, with a warning', async () => {
    const { prompt } = kFamilies.find(({ name }) => name === 'jamba');
    const one = { model: 'families/jamba.gguf', prompt };
    const lora = [{ source: writeAdapter('jamba', [['blk.1.ffn_down_exps', 96, 64, 4]]) }];
    const cpu = await globalThis.loadCpu(fileOf(one), { contextLength: 128, lora });
    const expected = await logitsOf(cpu, one);
    await cpu.dispose();
    await onGpu(one, {}, async (gpu, warnings) => {
      const bare = await logitsOf(gpu, one);
      const { gpuPasses } = gpu.stats().engine;
      await gpu.setAdapters(lora);
      assert.deepEqual(await logitsOf(gpu, one), expected);
      assert.equal(gpu.stats().engine.gpuPasses, gpuPasses);
      assert.deepEqual(warnings, ['CPU_FALLBACK']);
      await gpu.setAdapters([]);
      assert.deepEqual(await logitsOf(gpu, one), bare);
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
