// T5 on the GPU, in Node on a software adapter, against the references of ../shared/fixtures/families and
// the CPU: encoder, decoder and cross-attention, prompts of several lengths, embeddings, weights that
// stream, and a lost GPU.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { extent, longOnly } from '../extent.mjs';
import { generate } from './gpu-kv.mjs';
import { noSoftwareAdapter, openNode } from './gpu-node.mjs';
import { budgetOf, kNmse, models, setup } from './gpu-page.mjs';
import { nmse } from './helpers.mjs';

const t5 = models('families').filter(({ arch }) => arch === 't5');
const skip = noSoftwareAdapter || (t5.length ? false : 'no ../shared/fixtures/families');
const fileOf = ({ folder, file }) => join(folder, file);
const kTokens = 24;
/** Lengths of prompts, and how many tokens follow each. */
const kPrompts = [
  [48, kTokens],
  [20, extent(4, kTokens)],
  [47, extent(4, kTokens)],
  [2, extent(4, kTokens)],
];

describe('an encoder-decoder model on the GPU', { skip, timeout: 900_000 }, () => {
  let tab;
  before(async () => (tab = await openNode(setup)));
  after(async () => {
    const complaints = globalThis.complaints;
    await tab.close();
    assert.deepEqual(complaints, [], 'errors of the device');
  });

  const load = (model, options) =>
    globalThis.load(fileOf(model), { contextLength: 128, ...options });

  /** Logits, tokens behind prompts of several lengths, and embeddings. */
  async function measure(engine, { prompt, decoder }) {
    const logits = await engine.logits(prompt, { decoderTokens: decoder });
    const tokens = [];
    for (const [length, count] of kPrompts)
      tokens.push(await generate(engine, prompt.slice(0, length), count));
    const inputs = [prompt, prompt.slice(0, 9), prompt.slice(3, 20)];
    return { logits, tokens, vectors: await engine.embed(inputs) };
  }

  for (const [i, model] of t5.entries())
    test(model.name, { skip: i > 0 && longOnly }, async () => {
      const cpu = await globalThis.loadCpu(fileOf(model), { contextLength: 128 });
      const expected = await measure(cpu, model);
      await cpu.dispose();
      const gpu = await load(model);
      const found = await measure(gpu, model);
      const { gpuPasses } = gpu.stats().engine;
      const { gpu: bytes } = gpu.memory();
      await gpu.dispose();
      // An encoder pass and one for each token, of each output, and one for all embeddings.
      const steps = kPrompts.reduce((sum, [, count]) => sum + 1 + count, 0);
      assert.equal(gpuPasses, 1 + model.decoder.length + steps + 1);
      assert.equal(found.logits.length, model.reference.length);
      const error = nmse(found.logits, model.reference, 0, found.logits.length);
      assert.ok(error <= kNmse, `NMSE ${error}`);
      assert.deepEqual(found.tokens, expected.tokens);
      found.vectors.forEach((vector, k) => {
        const error = nmse(vector, expected.vectors[k], 0, vector.length);
        assert.ok(error <= kNmse, `embedding ${k}: NMSE ${error}`);
      });
      const refused = await load(model, { gpuBudget: 1 << 16 }).catch(({ message }) => message);
      const small = await load(model, { gpuBudget: budgetOf(refused, bytes, 1 / 4) });
      assert.deepEqual(await measure(small, model), found, 'streamed weights');
      assert.ok(small.stats().engine.gpuPasses === gpuPasses && small.memory().gpu < bytes);
      await small.dispose();
    });

  test('the CPU goes on when the GPU is lost', async () => {
    const [model] = t5;
    const cpu = await globalThis.loadCpu(fileOf(model), { contextLength: 128 });
    const expected = await generate(cpu, model.prompt, kTokens);
    await cpu.dispose();
    const engine = await load(model);
    const tokens = [];
    const how = { maxTokens: kTokens, temperature: 0, ignoreEos: true };
    for await (const { token } of engine.generate(model.prompt, how))
      if (token >= 0 && tokens.push(token) === 5) await globalThis.loseGpu();
    assert.equal(engine.stats().device, 'wasm');
    assert.deepEqual(tokens, expected);
    await engine.dispose();
  });
});
