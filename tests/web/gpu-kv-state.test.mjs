// A KV cache that does not fit in memoryBudget is on the GPU alone, in Node on a software adapter: the
// tokens and saved states are those of an engine with a copy in memory, through sessions that are
// saved, forked, rewound and swapped. When the GPU is lost, the CPU recomputes what fits; otherwise the
// error is DEVICE_LOST and the tokens stay.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { extent, longOnly } from '../extent.mjs';
import { generate, named, repeated } from './gpu-kv.mjs';
import { noSoftwareAdapter, openNode } from './gpu-node.mjs';
import { checkTwins, setup } from './gpu-page.mjs';

const fileOf = ({ folder, file }) => join(folder, file);
const llama = named('llama-gqa');

/**
 * Plain; blocks, groups of them; windows; recurrent states beside attention; several sequences. Contexts
 * are so long that the KV cache is larger than the memory above the minimum.
 */
const cases = [
  ['llama-gqa', {}, false],
  ['llama-gqa', { kvType: 'q4_0', contextLength: 65536 }, longOnly],
  ['llama-gqa', { kvType: 'q8_0' }, longOnly],
  ['gemma3-scaled', { contextLength: 65536 }, longOnly],
  ['lfm2', { contextLength: 65536 }, longOnly],
  ['llama-gqa', { parallel: 2 }, longOnly],
];
const kContext = 32768;
const kTokens = extent(6, 12);

/** The smallest budget for a model on the GPU, which an error names. */
async function smallest(model, options) {
  const loading = globalThis.load(fileOf(model), { ...options, memoryBudget: 1 << 20 });
  const refused = await loading.then(
    () => assert.fail('1 MB is not enough'),
    (error) => error,
  );
  assert.equal(refused.code, 'BUDGET_TOO_SMALL', refused.message);
  return Number(/smallest that works is (\d+)/.exec(refused.message)[1]);
}

/** Loads with the KV cache on the GPU alone, and `room` bytes of memory above the minimum. */
async function loadSmall(model, options, room = 0) {
  const memoryBudget = (await smallest(model, options)) + room;
  return globalThis.load(fileOf(model), { ...options, memoryBudget });
}

describe('a KV cache on the GPU alone', { skip: noSoftwareAdapter }, () => {
  let tab;
  before(async () => (tab = await openNode(setup)));
  after(async () => {
    const complaints = await tab.page.evaluate('complaints');
    await tab.close();
    assert.deepEqual(complaints, [], 'errors of the device');
  });

  for (const [name, given, skip] of cases) {
    const options = { contextLength: kContext, ...given };
    test(
      `${name} ${JSON.stringify(given)}: tokens and states`,
      { skip, timeout: 900_000 },
      async () => {
        const model = named(name);
        const copied = await globalThis.load(fileOf(model), options);
        const alone = await loadSmall(model, options, 8 << 20);
        const { budget, kv, kvOnGpu, gpu, total } = alone.memory();
        const { plan } = alone.info;
        assert.equal(plan.batch, copied.info.plan.batch, 'other batches round differently');
        assert.deepEqual([copied.memory().kvOnGpu, copied.info.plan.kvOnGpu, plan.kv], [0, 0, kv]);
        // Recurrent states are in memory.
        const rows = copied.info.plan.kv - kv;
        if (name === 'lfm2') assert.ok(kv > 0 && plan.kvOnGpu > kv);
        else assert.deepEqual([kv, plan.kvOnGpu], [0, rows]);
        assert.ok(kvOnGpu >= plan.kvOnGpu && gpu > kvOnGpu && total <= budget, `${kvOnGpu} bytes`);
        if (name === 'llama-gqa' && !given.kvType)
          assert.ok(kvOnGpu > budget, `${kvOnGpu} of ${budget} bytes`);
        // More than a group of q4_0, and in the rings of windows.
        const prompt = repeated(model.prompt, 150);
        const few = prompt.slice(0, extent(8, 150)); // a pass each
        assert.deepEqual(await alone.logits(few), await copied.logits(few));
        for (const length of extent([150, 70], [150, 140, 70])) {
          const begin = [...prompt.slice(0, length), 7];
          assert.deepEqual(
            await generate(alone, begin, kTokens),
            await generate(copied, begin, kTokens),
            `rewound to ${length}`,
          );
        }
        const text = ' a stone bridge over the mill river'.repeat(extent(2, 4));
        const pairs = [0, 1].map(() => [alone.session(), copied.session()]);
        const tell = async (pair, prompt) => {
          const [ours, theirs] = [
            await generate(pair[0], prompt, kTokens),
            await generate(pair[1], prompt, kTokens),
          ];
          assert.deepEqual(ours, theirs, prompt);
        };
        // Only one of them is in a slot, unless there are several.
        for (const pair of extent([...pairs, pairs[0]], [...pairs, ...pairs, ...pairs]))
          await tell(pair, text);
        pairs.push(await Promise.all(pairs[0].map((session) => session.fork())));
        for (const pair of pairs) await tell(pair, ' and the');
        const [ours, theirs] = await Promise.all(pairs[2].map((session) => session.save()));
        assert.deepEqual(ours.tokens, theirs.tokens);
        // The budget decides how many checkpoints of recurrent states there are.
        if (!kv) assert.deepEqual(ours.state, theirs.state);
        await pairs[1][0].restore(theirs);
        await pairs[1][1].restore(ours);
        await tell(pairs[1], ' wind');
        await Promise.all([copied.dispose(), alone.dispose()]);
      },
    );
  }

  test('random operations on twins', { skip: longOnly }, async () => {
    const options = { contextLength: kContext };
    checkTwins(
      await globalThis.twinSessions(fileOf(llama), llama.prompt, {
        seed: 11,
        operations: 40,
        options,
        gpuOptions: { memoryBudget: await smallest(llama, options) },
      }),
    );
  });

  test('a damaged state is refused, and the sequence stays', async () => {
    const engine = await loadSmall(llama, { contextLength: kContext });
    const session = engine.session();
    await generate(session, 'mill river', 4);
    const saved = await session.save();
    const next = await generate(await session.fork(), ' and', 4);
    const state = saved.state.slice();
    state[state.length - 100] ^= 1;
    await assert.rejects(engine.session().restore({ ...saved, state }), { code: 'CORRUPT' });
    await assert.rejects(engine.session().restore({ ...saved, state: state.slice(0, 100) }), {
      code: 'CORRUPT',
    });
    assert.deepEqual(await generate(session, ' and', 4), next);
    await engine.dispose();
  });

  test('Engine.inspect says where the KV cache is', async () => {
    const options = { contextLength: kContext, cache: 'none', threads: 1 };
    const inspect = (more) => globalThis.Engine.inspect(fileOf(llama), { ...options, ...more });
    const memoryBudget = await smallest(llama, { contextLength: kContext });
    const [whole, alone] = [await inspect({}), await inspect({ device: 'webgpu', memoryBudget })];
    assert.deepEqual([whole.plan.kvOnGpu, alone.plan.kv], [0, 0]);
    assert.equal(alone.plan.kvOnGpu, whole.plan.kv);
    assert.equal(alone.plan.contextLength, kContext);
    await assert.rejects(inspect({ memoryBudget }), { code: 'BUDGET_TOO_SMALL' });
  });

  const kEmbeds = 'embeddings are those of a copied KV cache, and a session continues behind them';
  test(kEmbeds, { skip: longOnly }, async () => {
    const options = { contextLength: kContext };
    const engine = await loadSmall(llama, options, 4 << 20);
    const copied = await globalThis.load(fileOf(llama), options);
    const sessions = [engine.session(), copied.session()];
    const told = [];
    for (const session of sessions) told.push(await generate(session, ' mill river', 4));
    assert.deepEqual(told[0], told[1]);
    const inputs = ['mill river', 'a stone bridge over the mill river'];
    assert.deepEqual(await engine.embed(inputs), await copied.embed(inputs));
    const next = [];
    for (const session of sessions) next.push(await generate(session, ' and', 8));
    assert.deepEqual(next[0], next[1]);
    await Promise.all([engine.dispose(), copied.dispose()]);
  });

  /** Loses the GPU behind the first token of `sessions`. Returns what each generates, or its error. */
  async function lose(engine, sessions, prompt, maxTokens) {
    let begun = 0;
    let begin;
    const allBegun = new Promise((resolve) => (begin = resolve));
    const tell = async (session) => {
      const tokens = [];
      try {
        const how = { maxTokens, temperature: 0, ignoreEos: true };
        for await (const { token } of session.generate(prompt, how))
          if (token >= 0 && tokens.push(token) === 1 && ++begun === sessions.length) begin();
      } catch (error) {
        return error;
      }
      return tokens;
    };
    const telling = Promise.all(sessions.map(tell));
    await Promise.race([allBegun, telling]);
    await globalThis.loseGpu();
    const told = await telling;
    assert.equal(engine.stats().device, 'wasm');
    return told;
  }

  for (const [parallel, skip] of [
    [1, false],
    [3, longOnly],
  ])
    test(`the CPU recomputes ${parallel} sequences after a loss`, { skip }, async () => {
      const options = { contextLength: kContext, parallel };
      const engine = await loadSmall(llama, options, 2 << 20);
      const cpu = await globalThis.loadCpu(fileOf(llama), options);
      const prompt = 'a stone bridge over the mill river';
      const sessions = Array.from({ length: parallel }, () => engine.session());
      const idle = engine.session();
      await generate(idle, prompt, 4);
      const told = await lose(engine, sessions, prompt, 100);
      const expected = await generate(cpu.session(), prompt, 100);
      for (const tokens of told) assert.deepEqual(tokens, expected);
      assert.deepEqual(
        [engine.memory().kvOnGpu, engine.memory().gpu, engine.memory().kv > 0],
        [0, 0, true],
      );
      // Sequences that were not computed meanwhile, and states of both.
      const twin = cpu.session();
      await generate(twin, prompt, 4);
      assert.deepEqual(await generate(idle, ' and', 8), await generate(twin, ' and', 8));
      const again = cpu.session();
      await again.restore(await sessions[0].save());
      assert.deepEqual(await generate(sessions[0], ' wind', 8), await generate(again, ' wind', 8));
      await Promise.all([cpu.dispose(), engine.dispose()]);
    });

  test('without memory for the sequence, a loss is DEVICE_LOST and the tokens stay', async () => {
    const options = { contextLength: kContext };
    const engine = await loadSmall(llama, options);
    const session = engine.session();
    const prompt = ' a stone bridge over the mill river'.repeat(4);
    await generate(session, prompt, 8);
    const tokens = [...session.tokens];
    assert.ok(tokens.length > 50, `${tokens.length} tokens`);
    const [error] = await lose(engine, [session], prompt, 2000);
    assert.equal(error.code, 'DEVICE_LOST', error.message);
    assert.match(error.message, /memory budget has no room for the KV cache/);
    assert.deepEqual([...session.tokens], tokens);
    await assert.rejects(generate(session, prompt.repeat(20), 4), { code: 'DEVICE_LOST' });
    // With more memory, the session goes on.
    await engine.setMemoryBudget(256 << 20);
    assert.deepEqual([...session.tokens], tokens);
    assert.equal((await generate(session, ' and', 4)).length, 4);
    await engine.dispose();
  });
});
