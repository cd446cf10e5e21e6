// Recurrent states stay on the GPU, in Node on a software adapter: a token brings back no state. Memory
// gets them when a request ends and before the CPU computes. So sequences that are saved, forked,
// rewound, cancelled and continued on the CPU give what a new engine gives. When the GPU is lost, the CPU
// computes again what follows the last checkpoint.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { extent, longOnly } from '../extent.mjs';
import { named, repeated } from './gpu-kv.mjs';
import { noSoftwareAdapter, openNode } from './gpu-node.mjs';
import { checkLosses, checkTwins, losses, models, setup } from './gpu-page.mjs';

const lfm2 = named('lfm2');
// Only ../shared/fixtures has them: gated delta rule, Mamba 1, RWKV.
const others = models('families').filter(({ name }) => ['qwen35', 'mamba', 'rwkv7'].includes(name));
const fileOf = ({ folder, file }) => join(folder, file);
/** Bytes of all states of a sequence. */
const stateBytesOf = { lfm2: 1024, qwen35: 16896 };

/** Tells how many bytes each read of the GPU's memory has. */
const kReads = `
  const reads = new BroadcastChannel('reads');
  const { mapAsync } = GPUBuffer.prototype;
  GPUBuffer.prototype.mapAsync = function (mode, offset = 0, size = this.size - offset) {
    if (mode === GPUMapMode.READ) reads.postMessage(size);
    return mapAsync.call(this, mode, offset, size);
  };
`;

const kGreedy = { temperature: 0, ignoreEos: true };
/** `until`: tokens behind which it is cancelled. Steps are queued, unless there are log-probabilities. */
async function say(teller, prompt, maxTokens, { until = maxTokens, ...more } = {}) {
  const pieces = [];
  for await (const piece of teller.generate(prompt, { ...kGreedy, maxTokens, ...more }))
    if (piece.token >= 0 && pieces.push(piece) >= until && until < maxTokens) break;
  return pieces;
}
const tokensOf = (pieces) => pieces.map(({ token }) => token);

/** The log-probability of the next token, with the sequence as it is, or from its tokens. */
async function next(teller, prompt, more) {
  const [{ logprob }] = await say(teller, prompt, 1, { logprobs: 0, ...more });
  return logprob;
}
const near = (ours, theirs, what, most = 1e-3) =>
  assert.ok(Math.abs(ours - theirs) < most, `${what}: ${ours} for ${theirs}`);

describe('recurrent states on the GPU', { skip: noSoftwareAdapter, timeout: 900_000 }, () => {
  let tab;
  before(async () => (tab = await openNode(setup)));
  after(async () => {
    const complaints = await tab.page.evaluate('complaints');
    await tab.close();
    assert.deepEqual(complaints, [], 'errors of the device');
  });

  for (const model of [lfm2, ...others].filter(({ name }) => stateBytesOf[name]))
    test(`${model.name}: a token reads no state, and a request ends with one`, async () => {
      const channel = new BroadcastChannel('reads');
      const reads = [];
      channel.onmessage = ({ data }) => reads.push(data);
      const workerUrl = globalThis.workerAfter(kReads);
      const engine = await globalThis.load(fileOf(model), { workerUrl });
      const state = stateBytesOf[model.name];
      for (const more of [{ logprobs: 0 }, {}]) {
        await say(engine, model.prompt.slice(0, 5), 1, more);
        reads.length = 0;
        await say(engine, [...model.prompt.slice(0, 5), 7], 9, more);
        await globalThis.eventually(() => reads.at(-1) === state, 'the state', 5);
        assert.ok(reads.length > (more.logprobs === 0 ? 9 : 2), `${reads}`);
        for (const bytes of reads.slice(0, -1))
          assert.ok(bytes < 4 * model.n_vocab + state, `${bytes} bytes with a pass`);
      }
      channel.close();
      await engine.dispose();
    });

  for (const model of [lfm2, ...others])
    test(
      `${model.name}: rewound, cancelled, saved and moved sequences`,
      { skip: model !== lfm2 && longOnly },
      async () => {
        const engine = await globalThis.gpuOf(fileOf(model));
        const cpu = await globalThis.loadCpu(fileOf(model));
        const anew = { cachePrompt: false };
        const prompt = model.prompt.slice(0, 9);
        const same = async (tokens, what) =>
          near(await next(engine, tokens), await next(engine, tokens, anew), what);
        const queue = async (n, more) => [
          ...prompt,
          ...tokensOf(await say(engine, prompt, n, more)),
        ];

        await same([...(await queue(13, anew)), 3], 'behind a queue');
        for (const kept of [17, 12, 9, 8])
          await same([...(await queue(13, anew)).slice(0, kept), 5], `rewound to ${kept}`);
        await queue(6, { ...anew, logprobs: 0 });
        await same([...prompt, 4], 'rewound over single steps');
        for (const more of [{}, { logprobs: 0 }])
          for (const until of [1, 6]) {
            const told = await queue(64, { ...anew, ...more, until });
            await same([...told, 2], `cancelled after ${until} ${JSON.stringify(more)}`);
          }
        const long = repeated(model.prompt, 150);
        for (const kept of [140, 128, 70, 64]) {
          await say(engine, long, 8, anew);
          await same([...long.slice(0, kept), 6], `a long prompt rewound to ${kept}`);
        }
        // What is saved is what the sequence has, also behind a cancelled queue.
        for (const until of [64, 5]) {
          await say(engine, prompt, 64, { ...anew, until });
          const saved = await engine.saveState();
          await say(engine, long.slice(0, 20), 2);
          await engine.restoreState(saved);
          const tokens = [...saved.tokens, 8];
          await same(tokens, `saved after ${until}`);
          await cpu.restoreState(saved);
          near(await next(cpu, tokens), await next(cpu, tokens, anew), 'moved to the CPU', 0.05);
        }
        await cpu.dispose();
      },
    );

  // Prompts on the GPU and single steps on the CPU; the first layers on the GPU.
  for (const [what, script, options] of [
    [
      'single steps',
      "addEventListener('message', ({ data }) => { if (data.method === 'load') data.args[0].gpuMinBatch = 4; });",
      {},
    ],
    ['the last layers', '', { gpuLayers: 2 }],
  ])
    test(`${what} on the CPU, the rest on the GPU`, async () => {
      const workerUrl = globalThis.workerAfter(script);
      const engine = await globalThis.load(fileOf(lfm2), { workerUrl, ...options });
      const cpu = await globalThis.loadCpu(fileOf(lfm2));
      const sessions = [engine.session(), cpu.session()];
      for (const text of ['a stone bridge', ' and the mill river', ' 42']) {
        const [ours, theirs] = await Promise.all(sessions.map((session) => say(session, text, 6)));
        assert.deepEqual(tokensOf(ours), tokensOf(theirs), text);
      }
      const { gpuPasses, passes } = engine.stats().engine;
      assert.ok(gpuPasses > 0 && gpuPasses <= passes, `${gpuPasses} of ${passes}`);
      await Promise.all([engine.dispose(), cpu.dispose()]);
    });

  test('random operations on twins', { skip: !lfm2 }, async () => {
    for (const parallel of extent([1], [1, 3]))
      checkTwins(
        await globalThis.twinSessions(fileOf(lfm2), lfm2.prompt, {
          seed: 5,
          operations: 40,
          options: { parallel },
        }),
      );
  });

  for (const model of [lfm2, ...others])
    test(
      `${model.name}: the CPU computes again what follows a checkpoint`,
      { skip: model !== lfm2 && longOnly },
      async () => {
        const times = losses(extent(4, 12));
        const prompt = repeated(model.prompt, 75);
        const how = { times, seed: 3, count: 20, options: { contextLength: 256 } };
        checkLosses(await globalThis.loseGpus(fileOf(model), prompt, how), times);
      },
    );
});
