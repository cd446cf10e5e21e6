// The GPU is lost at random moments, in Node on a software adapter: while an engine loads, in prompts, steps
// and queues of steps, while sessions are saved, restored and forked, and while a picture is encoded. The
// CPU goes on, with the tokens that it computes alone.
//   SLUICE_RANDOM_SEED=n SLUICE_GPU_LOSSES=n node --test tests/web/gpu-losses.test.mjs
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { extent } from '../extent.mjs';
import { noSoftwareAdapter, openNode } from './gpu-node.mjs';
import { losses, setup } from './gpu-page.mjs';
import { root } from './helpers.mjs';

const seed = Number(process.env.SLUICE_RANDOM_SEED ?? Math.floor(Math.random() * 2 ** 31));
const times = losses(extent(3, 50));
/** The CPU's two best tokens may swap if they are closer. */
const kGap = 0.02;
/** When the GPU is lost, at most, in a kind of round that has not been measured. */
const kFirstMs = 500;

// It has few kernels to compile.
const text = { path: join(root, 'tests', 'data', 'arch', 'gpt2.gguf'), options: {} };
const fixtures = join(root, '..', 'shared', 'fixtures', 'vision');
const inFixtures = (name) => join(fixtures, name);
const pictures =
  existsSync(fixtures) &&
  JSON.parse(readFileSync(inFixtures('manifest.json'), 'utf8')).find(
    ({ name }) => name === 'gemma3',
  );
const picture = pictures && {
  path: inFixtures(pictures.model),
  options: { projector: inFixtures(pictures.mmproj) },
};

/** What an engine does in a round; the GPU is lost during the work that `during` gets. */
const rounds = {
  async queue({ during, say, words }) {
    await during(() => say(words(2), 24, { queued: true }));
  },
  async save({ during, say, words, session }) {
    await say(words(3), 3);
    const saved = await during(() => session.save());
    await say(words(2), 2);
    await session.restore(saved);
  },
  async load() {},
  async fork({ during, say, words, session }) {
    await say(words(3), 3);
    const fork = await during(() => session.fork());
    await say(words(2), 3, { teller: fork });
  },
  async steps({ during, say, words }) {
    await during(() => say(words(2), 12));
  },
  async restore({ during, say, words, session }) {
    await say(words(3), 3);
    const saved = await session.save();
    await say(words(2), 2);
    await during(() => session.restore(saved));
  },
  async prompt({ during, say, words }) {
    await during(() => say(words(20), 2));
  },
  async picture({ during, say, engine }) {
    const [{ prompt, media }] = pictures.cases;
    const images = media.map((file) => readFileSync(inFixtures(file)));
    await during(() => say(prompt, 4, { teller: engine, images }));
  },
};
const kinds = Object.keys(rounds).filter((kind) => kind !== 'picture' || pictures);

/**
 * Does what a round of this kind does, with the GPU lost by `during`, or CPU only. Resolves to the
 * answers: lists of tokens, with the gap to the second best where steps are not queued.
 */
async function play(kind, engine, roundSeed, during) {
  const alone = !during;
  const random = globalThis.seeded(roundSeed);
  const words = (n) =>
    Array.from(
      { length: n },
      () => ['mill', ' river', ' 42', ' and', ' fox'][Math.floor(5 * random())],
    ).join('');
  const session = engine.session();
  const answers = [];
  const say = async (prompt, maxTokens, { teller = session, queued = false, images } = {}) => {
    const tokens = [];
    const options = { maxTokens, temperature: 0, ignoreEos: true, ...(images && { images }) };
    if (alone || !queued) options.logprobs = 2;
    for await (const { token, topLogprobs } of teller.generate(prompt, options)) {
      const [best, second] = topLogprobs ?? [];
      if (best) tokens.push({ token, gap: best.logprob - second.logprob });
      else if (!options.logprobs && token >= 0) tokens.push({ token });
    }
    answers.push(tokens);
  };
  const lose = during ?? ((work) => work());
  await rounds[kind]({ during: lose, say, words, session, engine });
  await say(words(2), 3);
  return answers;
}

/** Whether all tokens are equal; they may differ at a near tie, after which nothing is compared. */
function agree(found, expected, what) {
  for (const [i, { token, gap }] of expected.flat().entries()) {
    const ours = found.flat()[i]?.token;
    if (ours === token) continue;
    assert.ok(gap < kGap, `${what}: token ${i} is ${ours}, not ${token}, gap ${gap}`);
    return false;
  }
  assert.equal(found.flat().length, expected.flat().length, what);
  return true;
}

describe('lost GPUs', { skip: noSoftwareAdapter, timeout: 3_000_000 }, () => {
  let tab;
  const cpus = new Map();
  before(async () => (tab = await openNode(setup)));
  after(async () => {
    const complaints = globalThis.complaints;
    for (const cpu of cpus.values()) await cpu.dispose();
    await tab.close();
    assert.deepEqual(complaints, [], 'errors of the device');
  });

  const optionsOf = ({ options }) => ({ contextLength: 128, ...options });
  async function cpuOf(model) {
    if (!cpus.has(model)) cpus.set(model, await globalThis.loadCpu(model.path, optionsOf(model)));
    return cpus.get(model);
  }

  test(`SLUICE_RANDOM_SEED=${seed}, ${times} times`, async (t) => {
    const random = globalThis.seeded(1 + (seed % 0x7ffffffe));
    const longest = new Map();
    let [within, ties] = [0, 0];
    for (let i = 0; i < times; i++) {
      const kind = kinds[i % kinds.length];
      const model = kind === 'picture' ? picture : text;
      const roundSeed = 1 + Math.floor(random() * 1e6);
      const ms = random() * (longest.get(kind) ?? kFirstMs);
      const what = `round ${i}: ${kind}, after ${ms.toFixed(0)} ms`;
      let took = 0;
      const during = async (work) => {
        const losing = globalThis.after(ms).then(() => globalThis.loseGpu());
        const began = performance.now();
        const result = await work();
        took = performance.now() - began;
        await losing;
        return result;
      };
      const warnings = [];
      const open = () =>
        globalThis.load(model.path, {
          ...optionsOf(model),
          onProgress: ({ phase, code }) => phase === 'warning' && warnings.push(code),
        });
      const engine = await (kind === 'load' ? during(open) : open());
      if (kind !== 'load') assert.equal(engine.stats().device, 'webgpu', what);
      const found = await play(kind, engine, roundSeed, during);
      ties += !agree(found, await play(kind, await cpuOf(model), roundSeed), what);
      const lost = warnings.filter((code) => code !== 'CONTEXT_NEARLY_FULL');
      assert.deepEqual(
        [lost, engine.stats().device, engine.memory().gpu],
        [['DEVICE_LOST'], 'wasm', 0],
        what,
      );
      await engine.dispose();
      within += took > ms;
      longest.set(kind, Math.max(took, longest.get(kind) ?? 0));
    }
    t.diagnostic(`${within} of ${times} were lost during the work, ${ties} near ties`);
    assert.ok(4 * ties <= times, `${ties} near ties`);
  });
});
