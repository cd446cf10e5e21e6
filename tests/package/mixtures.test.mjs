// Engine.inspect on a mixture of experts: what it estimates for a budget from the header is what a
// loaded engine with that budget reads. The GGUF file, and the same with a record per expert.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';

const { Engine } = await import(inRoot('dist', 'node.js'));
const fixed = { contextLength: 64, threads: 1, kernels: '' };
// Of the model: two layers with 3 of 8 experts, whose three matrices have 64 x 32 values in F16.
const layers = 2;
const expert = 3 * 64 * 32 * 2;
const [used, all] = [3 * layers * expert, 8 * layers * expert];

/** Bytes that a pass reads, and what a few tokens have read of experts. */
async function loaded(source, memoryBudget) {
  const engine = await Engine.load(source, { ...fixed, memoryBudget });
  try {
    await engine.generate([1, 17, 29], { maxTokens: 8, temperature: 0 }).text();
    return engine.stats().engine;
  } finally {
    await engine.dispose();
  }
}

for (const name of ['families/qwen3moe.gguf', 'qsf/experts.qsf'])
  test(`inspect estimates what a token reads under a budget: ${name}`, async () => {
    const source = inRoot('tests', 'data', ...name.split('/'));
    const whole = await Engine.inspect(source, fixed);
    assert.deepEqual([whole.experts, whole.expertsUsed], [8, 3]);
    assert.deepEqual(
      [whole.speed.expertsInMemory, whole.speed.expertHitRate, whole.speed.bytesReadPerToken],
      [1, 1, 0],
    );
    const shares = [];
    for (let budget = whole.plan.minimum; shares.at(-1) !== 1; budget += 65536) {
      const { speed } = await Engine.inspect(source, { ...fixed, memoryBudget: budget });
      const share = speed.expertsInMemory;
      assert.ok(share >= 0 && share <= 1, `${share}`);
      assert.equal(speed.expertHitRate, share);
      assert.ok(speed.tokensPerSecond > 0 && speed.tokensPerSecond <= speed.computeTokensPerSecond);
      const seen = shares.includes(share);
      shares.push(share);
      if (seen) continue;
      const stats = await loaded(source, budget);
      const dense = stats.bytesPerPass - (1 - share) * all;
      assert.ok(dense >= 0, `${stats.bytesPerPass}`);
      assert.ok(Math.abs(speed.bytesReadPerToken - dense - (1 - share) * used) < 1);
      // A matrix of a missing expert may still be in the stream buffer.
      assert.ok(stats.expertBytesRead <= stats.expertMisses * expert);
      assert.equal(stats.expertBytesRead > 0, share < 1);
      assert.equal(stats.expertMisses === 0, share === 1, `${stats.expertMisses} at ${share}`);
    }
    assert.equal(shares[0], 0);
    assert.ok(new Set(shares).size > 2, `${shares}`);
  });

// From the smallest budget, under which every expert is read, to that of the whole model.
test('no budget changes a bit of what a mixture computes', async () => {
  const source = inRoot('tests', 'data', 'families', 'qwen3moe.gguf');
  const computed = async (memoryBudget) => {
    const engine = await Engine.load(source, { ...fixed, memoryBudget });
    try {
      const prompt = await engine.logits([1, 17, 29, 45, 31, 8, 12, 50]);
      const generation = engine.generate([1, 17, 29], {
        maxTokens: 24,
        temperature: 0,
        ignoreEos: true,
      });
      const text = await generation.text();
      const next = await engine.logits([1, 17, 29, 45]);
      const { expertMisses } = engine.stats().engine;
      return { values: [[...prompt], text, [...next]], expertMisses };
    } finally {
      await engine.dispose();
    }
  };
  const { plan } = await Engine.inspect(source, fixed);
  const whole = await computed(plan.total);
  assert.equal(whole.expertMisses, 0);
  for (const eighths of [0, 1, 2, 3, 5]) {
    const budget = Math.round(plan.minimum + (eighths * 2 * layers * 8 * expert) / 8);
    const { values } = await computed(budget);
    assert.deepEqual(values, whole.values, `${eighths}/8`);
  }
});
