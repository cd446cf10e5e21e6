// Operations that share a dispatch, with models in Node on a software adapter: norms of queries, keys and
// values with RoPE (Gemma 4), streams and LAuReL (Gemma 3n), per-layer embeddings (both). Their tokens are
// those of the reference.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generate, load } from './gpu-kv.mjs';
import { noSoftwareAdapter, useSoftwareAdapter } from './gpu-node.mjs';
import { budgetOf, models } from './gpu-page.mjs';

if (!noSoftwareAdapter) useSoftwareAdapter();

const families = models('families');
const kTokens = 6;
/** Dispatches of a decode step. */
const kDispatches = { gemma3n: 385, gemma4: 83 };

/** The tokens are the same with weights that are streamed. */
async function streamed(model, whole, once) {
  const loaded = (gpuBudget) => load(model, 'webgpu', { contextLength: 64, gpuBudget });
  const refused = await loaded(1 << 16).catch((error) => error.message);
  const gpuBudget = budgetOf(refused, whole, 1 / 4);
  const engine = await loaded(gpuBudget);
  const tokens = await generate(engine, model.prompt, 2);
  const [{ gpu }, { uploaded }] = [engine.memory(), engine.stats().engine];
  await engine.dispose();
  assert.deepEqual(tokens, model.greedy.slice(0, 2));
  assert.ok(gpu <= gpuBudget, `${gpu} bytes of ${gpuBudget}`);
  assert.ok(uploaded > once, `weights stream: ${uploaded} bytes`);
}

for (const [name, expected] of Object.entries(kDispatches)) {
  const model = families.find((model) => model.name === name);
  test(
    `a token of ${name} takes ${expected} dispatches`,
    { skip: noSoftwareAdapter || (!model && 'no ../shared/fixtures/families') },
    async () => {
      const engine = await load(model, 'webgpu', { contextLength: 64 });
      const stats = () => engine.stats().engine;
      // Log-probabilities take a step at a time.
      await generate(engine, model.prompt, 1, { logprobs: 1 });
      const whole = engine.memory().gpu;
      const before = stats();
      const tokens = await generate(engine, model.prompt, kTokens, {
        logprobs: 1,
        cachePrompt: true,
      });
      const after = stats();
      await engine.dispose();
      assert.deepEqual(tokens, model.greedy.slice(0, kTokens));
      const steps = after.gpuPasses - before.gpuPasses;
      assert.equal((after.dispatches - before.dispatches) / steps, expected);
      await streamed(model, whole, after.uploaded);
    },
  );
}
