// Embeddings on the GPU, in Node on a software adapter, against the references of
// ../shared/fixtures/embeddings and the CPU: causal models and encoders, several inputs in a batch and one
// in several, rerankers, weights that stream, layers on both devices, and a lost GPU. Models with
// bidirectional attention give logits.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { longOnly } from '../extent.mjs';
import { noSoftwareAdapter, openNode } from './gpu-node.mjs';
import { budgetOf, checkLogits, kNmse, models, setup } from './gpu-page.mjs';
import { nmse, root } from './helpers.mjs';

const folder = join(root, '..', 'shared', 'fixtures', 'embeddings');
const skip = noSoftwareAdapter || (existsSync(folder) ? false : 'no ../shared/fixtures/embeddings');
const all = skip ? [] : JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
const kCosine = 0.9999;
const kShort = /^(qwen3-last|bert-cls)$/; // causal; an encoder

function floats(file) {
  const bytes = readFileSync(join(folder, file));
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

const named = (name) => all.find((model) => model.name === name);
const fileOf = ({ file }) => join(folder, file);
const inputsOf = ({ tokens, also }) => [tokens, ...also.map((other) => other.tokens)];
const referencesOf = ({ embedding, also }) => [
  floats(embedding),
  ...also.map(({ values }) => values),
];
const raw = { normalize: false };

function cosine(a, b) {
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

/** Every row is one of the reference's direction. */
function alike(rows, references, what) {
  assert.equal(rows.length, references.length, what);
  rows.forEach((row, i) => {
    assert.equal(row.length, references[i].length, what);
    const found = cosine(row, references[i]);
    assert.ok(found >= kCosine, `${what}, input ${i}: cosine ${found}`);
  });
}

describe('embeddings on the GPU', { skip, timeout: 900_000 }, () => {
  let tab;
  before(async () => (tab = await openNode(setup)));
  after(async () => {
    const complaints = globalThis.complaints;
    await tab.close();
    assert.deepEqual(complaints, [], 'errors of the device');
  });

  /** Runs `work` with an engine on the GPU, and its warnings. */
  async function onGpu(model, options, work) {
    const warnings = [];
    const gpu = await globalThis.load(fileOf(model), {
      contextLength: 64,
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

  for (const model of all.filter(({ pooling }) => pooling !== 'rank'))
    test(model.name, { skip: !kShort.test(model.name) && longOnly }, async () => {
      const inputs = inputsOf(model);
      const references = referencesOf(model);
      const whole = await onGpu(model, {}, async (gpu, warnings) => {
        const together = await gpu.embed(inputs, raw);
        alike(together, references, model.name);
        const passes = gpu.stats().engine.gpuPasses;
        assert.ok(passes > 0, 'the GPU computes');
        for (const [i, input] of inputs.entries())
          alike(await gpu.embed([input], raw), [references[i]], `${model.name} alone`);
        assert.equal(gpu.stats().engine.gpuPasses, passes + inputs.length);
        const dispatched = async (...some) => {
          const before = gpu.stats().engine.dispatches;
          await gpu.embed(some, raw);
          return gpu.stats().engine.dispatches - before;
        };
        const [one, three] = [await dispatched(inputs.at(-1)), await dispatched(...Array(3).fill(inputs.at(-1)))]; // prettier-ignore
        assert.equal(three - one, 2 * 2 * gpu.info.layers, 'dispatches of two more inputs');
        const [rows] = await gpu.embed([model.tokens], { ...raw, pooling: 'none' });
        const error = nmse(rows, floats(model.token_embeddings), 0, rows.length);
        assert.ok(error <= kNmse, `rows of tokens: NMSE ${error}`);
        assert.deepEqual(warnings, []);
        return { together, gpu: gpu.memory().gpu, uploaded: gpu.stats().engine.uploaded };
      });
      const refused = await onGpu(model, { gpuBudget: 1 << 16 }, () => {}).catch(
        ({ message }) => message,
      );
      const gpuBudget = budgetOf(refused, whole.gpu, 1 / 4);
      await onGpu(model, { gpuBudget }, async (gpu) => {
        assert.deepEqual(await gpu.embed(inputs, raw), whole.together, 'streamed weights');
        await gpu.embed(inputs, raw);
        assert.ok(gpu.memory().gpu <= gpuBudget, `${gpu.memory().gpu} bytes of ${gpuBudget}`);
        assert.ok(gpu.stats().engine.uploaded > whole.uploaded, 'weights stream');
      });
    });

  test('an input of several batches, and many inputs', async () => {
    const model = named('qwen3-last');
    const long = Array.from({ length: 200 }, (_, i) => model.tokens[i % model.tokens.length]);
    const many = Array.from({ length: 60 }, (_, i) => model.tokens.slice(0, 1 + (i % 9)));
    const options = { contextLength: 256, memoryBudget: 2 << 20 };
    const cpu = await globalThis.loadCpu(fileOf(model), options);
    const expected = {};
    for (const pooling of ['mean', 'last', 'cls'])
      expected[pooling] = await cpu.embed([long, ...many], { ...raw, pooling });
    await onGpu(model, options, async (gpu, warnings) => {
      for (const [pooling, rows] of Object.entries(expected)) {
        const before = gpu.stats().engine.gpuPasses;
        alike(await gpu.embed([long, ...many], { ...raw, pooling }), rows, pooling);
        const passes = gpu.stats().engine.gpuPasses - before;
        assert.ok(passes > 2 && passes < 61, `${passes} passes`);
      }
      assert.deepEqual(warnings, []);
    });
    await cpu.dispose();
  });

  test('between generations, and with quantized KV caches', async () => {
    const model = named('qwen3-last');
    const inputs = inputsOf(model);
    for (const kvType of longOnly ? ['f16'] : ['f16', 'q8_0', 'q4_0'])
      await onGpu(model, { kvType }, async (gpu) => {
        const tokens = await globalThis.tokensOf(gpu, [1, 20, 30], 8);
        alike(await gpu.embed(inputs, raw), referencesOf(model), kvType);
        assert.deepEqual(await globalThis.tokensOf(gpu, [1, 20, 30], 8), tokens);
      });
  });

  for (const name of ['bert-rank', 'qwen3-rank'])
    test(`${name}: scores`, { skip: name !== 'bert-rank' && longOnly }, async () => {
      const model = named(name);
      const documents = ['the oa', 'and and to', 'or', 'the the'];
      const options = { contextLength: name === 'bert-rank' ? 64 : 128 };
      const cpu = await globalThis.loadCpu(fileOf(model), options);
      const expected = await cpu.rerank('to the', documents);
      await cpu.dispose();
      await onGpu(model, options, async (gpu, warnings) => {
        const scores = await gpu.rerank('to the', documents);
        for (const { index, score } of expected) {
          const found = scores.find((other) => other.index === index).score;
          assert.ok(Math.abs(found - score) < 1e-2 * (1 + Math.abs(score)), `${found} ${score}`);
        }
        assert.ok(gpu.stats().engine.gpuPasses > 0);
        assert.deepEqual(warnings, []);
      });
    });

  test('layers on both devices', async () => {
    for (const name of longOnly ? ['qwen3-last'] : ['qwen3-last', 'modern-bert']) {
      const model = named(name);
      await onGpu(model, { gpuLayers: 1 }, async (gpu, warnings) => {
        assert.equal(gpu.stats().gpuLayers, 1);
        alike(await gpu.embed(inputsOf(model), raw), referencesOf(model), name);
        assert.ok(gpu.stats().engine.gpuPasses > 0);
        assert.deepEqual(warnings, []);
      });
    }
  });

  test('the CPU goes on when the GPU is lost', async () => {
    for (const name of longOnly ? ['qwen3-last'] : ['qwen3-last', 'bert-cls']) {
      const model = named(name);
      const inputs = inputsOf(model);
      const warnings = [];
      const gpu = await globalThis.load(fileOf(model), {
        contextLength: 64,
        onProgress: ({ phase, code }) => phase === 'warning' && warnings.push(code),
      });
      await gpu.embed(inputs, raw);
      const many = Array.from({ length: 30 }, () => inputs).flat();
      const embedding = gpu.embed(many, raw);
      await globalThis.loseGpu();
      const references = referencesOf(model);
      alike(await embedding, many.map((_, i) => references[i % inputs.length]), name); // prettier-ignore
      alike(await gpu.embed(inputs, raw), references, name);
      assert.deepEqual([warnings, gpu.stats().device], [['DEVICE_LOST'], 'wasm']);
      await gpu.dispose();
    }
  });

  test(
    'with a KV cache that evicts, the CPU embeds, with a warning',
    { skip: longOnly },
    async () => {
      const model = named('qwen3-last');
      const options = { kvPolicy: 'window', kvCapacity: 128, contextLength: 1000 };
      await onGpu(model, options, async (gpu, warnings) => {
        alike(await gpu.embed(inputsOf(model), raw), referencesOf(model), model.name);
        gpu.stats();
        assert.deepEqual(warnings, ['CPU_FALLBACK']);
      });
    },
  );
});

const wholes = noSoftwareAdapter ? [] : models('families').filter(({ causal }) => causal === false);
describe('logits with bidirectional attention', { skip: noSoftwareAdapter || longOnly }, () => {
  let tab;
  before(async () => (tab = await openNode(setup)));
  after(() => tab.close());
  for (const model of wholes)
    test(model.name, async () => {
      const gpu = await globalThis.load(join(model.folder, model.file), { contextLength: 64 });
      assert.equal(gpu.stats().device, 'webgpu');
      const logits = new Uint8Array((await gpu.logits(model.prompt)).buffer);
      assert.ok(gpu.stats().engine.gpuPasses > 0);
      checkLogits({ logits }, model, kNmse);
      await gpu.dispose();
    });
});
