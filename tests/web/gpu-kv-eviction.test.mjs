// KV cache eviction on the GPU, in Node on a software adapter, compared with the CPU under the same
// policy: the choice behind each of the CPU's tokens while blocks are evicted, queued steps, sequences
// in turns, states that move between the devices, and a lost GPU.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { Engine } from '../../dist/node.js';
import { extent, longOnly } from '../extent.mjs';
import { choice, generate, load as loadModel, named, repeated } from './gpu-kv.mjs';
import { noSoftwareAdapter, useSoftwareAdapter } from './gpu-node.mjs';

if (!noSoftwareAdapter) useSoftwareAdapter();

const kCapacity = 128;
/** The gap above which choices must be equal. */
const kMinGap = 1e-3;
/** Positions of a prompt, which are more than the cache has. The next block leaves at 288. */
const kLong = 281;
const kTokens = extent(10, 36);

/** Plain; norms of heads; layers with windows of their own; biases; convolutions between. */
const cases = ['llama-gqa', 'qwen3', 'gemma3-scaled', 'starcoder2', 'lfm2'].flatMap((name, i) =>
  ['heavy-hitter', 'window'].map((kvPolicy, k) => [name, kvPolicy, i + k > 0 && longOnly]),
);

const load = (model, device, kvPolicy, more = {}) =>
  loadModel(model, device, { kvPolicy, kvCapacity: kCapacity, contextLength: 1500, ...more });

describe('KV cache eviction on the GPU', { skip: noSoftwareAdapter }, () => {
  const engines = [];
  after(async () => {
    for (const engine of engines) await engine.dispose();
  });
  for (const [name, kvPolicy, skip] of cases)
    test(`${name}, ${kvPolicy}`, { skip, timeout: 300_000 }, async () => {
      const model = named(name);
      const prompt = repeated(model.prompt, kLong);
      const cpu = await load(model, 'wasm', kvPolicy);
      const gpu = await load(model, 'webgpu', kvPolicy);
      engines.push(cpu, gpu);
      assert.equal(gpu.stats().device, 'webgpu');
      const tokens = await generate(cpu, prompt, kTokens);
      assert.equal(tokens.length, kTokens);
      const chosen = [];
      for (let i = 0; i < kTokens; i++) {
        const before = [...prompt, ...tokens.slice(0, i)];
        const { token, gap } = await choice(cpu, before);
        const ours = await choice(gpu, before);
        if (gap > kMinGap) assert.equal(ours.token, token, `token ${i}, gap ${gap}`);
        chosen.push(ours.token);
      }
      assert.ok(gpu.stats().engine.gpuPasses > kTokens);
      // The engine's sequence rewinds within a block, and is the same again.
      const back = kTokens - 3;
      const again = await choice(gpu, [...prompt, ...tokens.slice(0, back)]);
      assert.equal(again.token, chosen[back]);
      // Queued steps, across an eviction, and a step at a time.
      const submits = [gpu.stats().engine.submits];
      const both = [];
      for (const options of [{ logprobs: 1 }, {}]) {
        both.push(await generate(gpu, prompt, kTokens, { cachePrompt: false, ...options }));
        submits.push(gpu.stats().engine.submits);
      }
      assert.deepEqual(both[1], both[0]);
      const [begin, single, end] = submits;
      assert.ok(end - single < single - begin, `steps are queued: ${submits}`);
      await checkSessions(gpu, cpu);
    });

  test('within a gpuBudget, and layers on both devices', { skip: longOnly }, async () => {
    const model = named('llama-gqa');
    const prompt = repeated(model.prompt, kLong);
    const whole = await load(model, 'webgpu', 'heavy-hitter');
    engines.push(whole);
    const wanted = await generate(whole, prompt, kTokens);
    const small = Math.floor(0.8 * whole.memory().gpu);
    for (const more of [{ gpuBudget: small }, { gpuLayers: 1 }]) {
      const engine = await load(model, 'webgpu', 'heavy-hitter', more);
      engines.push(engine);
      if (more.gpuBudget) assert.ok(engine.memory().gpu <= small, `${engine.memory().gpu} bytes`);
      assert.deepEqual(await generate(engine, prompt, kTokens), wanted, JSON.stringify(more));
    }
  });

  test('what the GPU cannot evict is an error that names it', async () => {
    await assert.rejects(load(named('llama-gqa'), 'webgpu', 'window', { kvType: 'q8_0' }), {
      code: 'NOT_SUPPORTED',
      message: /unsupported: this type of KV cache/,
    });
  });

  test('a KV cache that evicts has to fit in memory, and is never on the GPU alone', async () => {
    const { folder, file } = named('llama-gqa');
    const inspect = (more) =>
      Engine.inspect(join(folder, file), {
        ...{ device: 'webgpu', contextLength: 32768, memoryBudget: 8e6 },
        ...{ cache: 'none', threads: 1 },
        ...more,
      });
    assert.ok((await inspect({})).plan.kvOnGpu > 8e6);
    for (const kvPolicy of ['window', 'heavy-hitter']) {
      await assert.rejects(inspect({ kvPolicy, kvCapacity: 30000 }), {
        code: 'BUDGET_TOO_SMALL',
        message: /smallest that works is \d+ bytes/,
      });
      const { plan } = await inspect({ kvPolicy, kvCapacity: 512 });
      assert.deepEqual([plan.kvOnGpu, plan.kv > 0], [0, true]);
    }
  });
});

/** Sequences in turns, and states that move from one device to the other and back. */
async function checkSessions(gpu, cpu) {
  const texts = ['a stone bridge over the mill river ', 'the wind and the fox '].map((text) =>
    text.repeat(24),
  );
  const next = ' and the mill';
  const alone = [];
  for (const text of texts) {
    const session = gpu.session();
    alone.push([await generate(session, text, 4), await generate(session, next, 4)]);
    assert.ok(session.tokens.length > kCapacity, `${session.tokens.length} tokens`);
  }
  const sessions = [gpu.session(), gpu.session()];
  const first = [];
  for (const [i, session] of sessions.entries()) first.push(await generate(session, texts[i], 4));
  for (const [i, session] of sessions.entries())
    assert.deepEqual([first[i], await generate(session, next, 4)], alone[i]);

  const [ours, theirs] = [sessions[0], cpu.session()];
  for (const [from, to] of [
    [ours, theirs],
    [theirs, ours],
  ]) {
    await to.restore(await from.save());
    const text = next.repeat(20);
    const [moved, stayed] = [await choice(theirs, text), await choice(ours, text)];
    if (moved.gap > kMinGap) assert.equal(stayed.token, moved.token);
  }
}
