// Combinations of features on the real engine in Node: sessions at the smallest budget, saved
// states, budget changes, logits in between, prompts that are too long. Each output is compared
// with that of an unlimited engine for the same tokens.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { longOnly } from '../extent.mjs';
import { root } from './helpers.mjs';

const dist = join(root, 'dist');
const { Engine } = await import(pathToFileURL(join(dist, 'node.js')).href);
const models = {
  llama: join(root, 'examples', 'models', 'sluice-tales-Q4_0.gguf'),
  lfm2: join(root, 'tests', 'data', 'families', 'lfm2.gguf'),
};
const contextLength = 700;
const greedy = { maxTokens: 10, temperature: 0, ignoreEos: true };

for (const [name, path] of Object.entries(models)) {
  describe(name, () => {
    let roomy;
    let least;
    before(async () => {
      roomy = await Engine.load(path, { contextLength, threads: 1 });
      least = roomy.info.plan.minimum;
    });
    after(() => roomy.dispose());

    /** Meaningless token ids that depend on the seed. */
    const prompt = (n, seed) =>
      Int32Array.from(
        { length: n },
        (_, i) => 5 + ((i * 31 + seed * 17 + ((i * seed) >> 3)) % 200),
      );
    const fresh = (tokens, options = greedy) =>
      roomy.generate(tokens, { ...options, cachePrompt: false }).result;
    const said = async (generation) => {
      const tokens = [];
      for await (const piece of generation) tokens.push(piece.token);
      return tokens;
    };
    /** Checks that the output equals that of a fresh prompt; returns the cached tokens. */
    async function same(engine, tokens, label) {
      const got = await engine.generate(tokens, greedy).result;
      assert.equal(got.text, (await fresh(tokens)).text, label);
      return got.usage.cachedTokens;
    }

    for (const threads of [1, 2])
      test(
        `budget changes after a long prompt, down to the minimum, ${threads} thread(s)`,
        { skip: threads !== (name === 'llama' ? 2 : 1) && longOnly },
        async () => {
          const { minimum } = (await Engine.inspect(path, { contextLength, threads })).plan;
          const engine = await Engine.load(path, { memoryBudget: minimum, contextLength, threads });
          const tokens = prompt(500, 1);
          await same(engine, tokens, 'at the minimum');
          const start = await said(engine.generate(tokens, greedy));
          for (const budget of [minimum * 2, minimum, minimum + 200_000, 64 << 20, minimum]) {
            await engine.setMemoryBudget(budget);
            assert.ok(engine.memory().heap <= budget, `heap ${engine.memory().heap} of ${budget}`);
            const longer = Int32Array.from([...tokens, ...start]);
            const cached = await same(engine, longer, `moved to ${budget}`);
            // A recurrent state cannot rewind, and the last generation may have passed this point.
            if (name === 'llama')
              assert.ok(cached >= tokens.length, `moved to ${budget}: ${cached} cached`);
            await same(engine, prompt(500, 1), `again at ${budget}`);
          }
          await assert.rejects(engine.setMemoryBudget(minimum - 131_072), {
            code: 'BUDGET_TOO_SMALL',
          });
          await same(engine, prompt(60, 2), 'after a refusal');
          await engine.dispose();
        },
      );

    test('two sessions at the smallest budget, saved, restored and forked', async () => {
      const engine = await Engine.load(path, { memoryBudget: least, contextLength, threads: 1 });
      // Several hundred tokens: no heap can hold a copy of their state.
      const long = name === 'llama' ? 60 : 25;
      const alone = roomy.session();
      const other = roomy.session();
      const sessions = [engine.session(), engine.session()];
      const texts = (i) => [
        ['once upon a time '.repeat(long), 'there was a mill '.repeat(long)][i],
        [' and the river', ' in the wood'][i],
        [' then', ' but'][i],
      ];
      const reference = [alone, other];
      const state = [];
      for (let turn = 0; turn < 3; turn++) {
        for (const i of [0, 1]) {
          const text = texts(i)[turn];
          const expected = await reference[i].generate(text, greedy).text();
          assert.equal(
            await sessions[i].generate(text, greedy).text(),
            expected,
            `session ${i}, turn ${turn}`,
          );
          state[i] = structuredClone(await sessions[i].save());
          assert.ok(state[i].state.length > 0);
        }
        await same(engine, prompt(40, turn), `the engine's own, turn ${turn}`);
      }
      for (const i of [1, 0]) {
        const restored = engine.session();
        await restored.restore(state[i]);
        const forked = await restored.fork();
        const expected = await (await reference[i].fork()).generate(' at last', greedy).result;
        for (const session of [restored, forked, sessions[i]]) {
          const { text, usage } = await session.generate(' at last', greedy).result;
          assert.equal(text, expected.text);
          assert.ok(usage.cachedTokens > 0, 'computed again');
        }
      }
      await engine.dispose();
    });

    test('states: empty, of another sequence, of another model, restored in another engine', async () => {
      const engine = await Engine.load(path, { memoryBudget: least, contextLength, threads: 1 });
      const session = engine.session();
      const first = await session.generate('the mill', greedy).text();
      const saved = await engine.saveState(); // the engine's own sequence is still empty
      assert.equal(saved.tokens.length, 0);
      const logits = await engine.logits(prompt(3, 5));
      assert.equal(logits.length, 3 * engine.info.vocabSize);
      const kept = await session.save();
      const elsewhere = await Engine.load(path, { contextLength: contextLength + 100, threads: 2 });
      const there = elsewhere.session();
      await there.restore(kept);
      const [here, onThere] = [
        await session.generate(' and', greedy).result,
        await there.generate(' and', greedy).result,
      ];
      assert.equal(here.text, onThere.text);
      assert.ok(onThere.usage.cachedTokens > 0);
      assert.equal(first.length > 0, true);
      const tokens = prompt(30, 3);
      await engine.generate(tokens, greedy).result;
      const good = await engine.saveState();
      assert.ok(good.tokens.length >= 30);
      const damaged = { tokens: good.tokens, state: good.state.slice() };
      damaged.state[4] ^= 255;
      const foreign = await Engine.load(models[name === 'llama' ? 'lfm2' : 'llama'], {
        contextLength: 100,
        threads: 1,
      });
      await foreign.generate(tokens, greedy).result;
      const wrong = [
        new Uint8Array(0),
        good.state.slice(0, -1),
        good.state.slice(0, 20),
        damaged.state,
        (await foreign.saveState()).state,
      ];
      for (const [i, state] of wrong.entries()) {
        await assert.rejects(
          engine.restoreState({ tokens: good.tokens, state }),
          ({ code }) => /CORRUPT|INVALID_ARGUMENT/.test(code),
          `${i}`,
        );
        const longer = Int32Array.from([...tokens, 7, 8, 9]);
        const cached = await same(engine, longer, `after a wrong state ${i}`);
        if (name === 'llama') assert.ok(cached >= 30, `${cached} cached after a wrong state`);
      }
      await engine.generate(prompt(50, 4), greedy).result;
      await engine.restoreState(good);
      const after = Int32Array.from([...good.tokens, 11, 12]);
      assert.equal(await same(engine, after, 'restored'), good.tokens.length);
      await elsewhere.dispose();
      await foreign.dispose();
      await engine.dispose();
    });

    test('a session continues after a prompt that was too long and after an abort', async () => {
      const session = roomy.session();
      await session.generate('the mill', greedy).result;
      const { text } = session;
      await assert.rejects(session.generate(' a b'.repeat(2000), greedy).text(), {
        code: 'PROMPT_TOO_LONG',
      });
      const control = new AbortController();
      const aborted = session.generate(' stood', {
        ...greedy,
        maxTokens: 500,
        signal: control.signal,
      });
      for await (const _ of aborted) {
        control.abort();
        break;
      }
      assert.equal(session.text, text);
      const messages = session.messages.length;
      const { usage } = await session.generate(' by', greedy).result;
      if (name === 'llama') assert.ok(usage.cachedTokens > 0); // lfm2's recurrent state has passed it
      assert.ok(session.text.startsWith(`${text} by`));
      assert.equal(session.messages.length, messages);
    });

    test('logit biases and 64-bit seeds reach the sampler', async () => {
      const tokens = prompt(20, 6);
      const [first] = await said(roomy.generate(tokens, greedy));
      const [other] = await said(
        roomy.generate(tokens, { ...greedy, logitBias: { [first]: -Infinity } }),
      );
      assert.notEqual(other, first);
      const [wanted] = await said(
        roomy.generate(tokens, { ...greedy, logitBias: { 7: 1000, [first]: 2.5 } }),
      );
      assert.equal(wanted, 7);
      const drawn = (seed) =>
        said(roomy.generate(tokens, { ...greedy, temperature: 2, topK: 0, seed }));
      const large = await drawn(2n ** 63n + 5n);
      assert.deepEqual(await drawn(-(2n ** 63n) + 5n), large); // the same modulo 2^64
      for (const seed of [5, 2n ** 63n + 6n, 2n ** 62n + 5n])
        assert.notDeepEqual(await drawn(seed), large, `${seed}`);
    });

    test('timings are correct for no tokens and for a cancelled prompt', async () => {
      const { timings } = await fresh(prompt(40, 8), { ...greedy, maxTokens: 0 });
      assert.equal(timings.tokensPerSecond, 0);
      assert.equal(timings.timeToFirstTokenMs, 0);
      const cut = roomy.generate(prompt(600, 9), { ...greedy, cachePrompt: false });
      cut.cancel();
      const { timings: none, usage, finishReason } = await cut.result;
      assert.deepEqual([finishReason, usage.completionTokens], ['cancelled', 0]);
      assert.ok(none.promptTokensPerSecond * none.promptMs <= 1000 * 600);
      assert.ok(none.promptTokensPerSecond < 100_000, `${none.promptTokensPerSecond} tokens/s`);
    });
  });
}
