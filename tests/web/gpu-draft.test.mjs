// A draft model beside a model on the GPU, in Node on a software adapter: it drafts on the CPU, and the
// GPU checks several tokens in a pass. The tokens are those of the GPU alone, whatever is accepted, and
// the CPU goes on when the GPU is lost.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { longOnly } from '../extent.mjs';
import { noSoftwareAdapter, openNode } from './gpu-node.mjs';
import { kPlain, setup } from './gpu-page.mjs';
import { root } from './helpers.mjs';

const sample = (type) => join(root, 'examples', 'models', `sluice-tales-${type}.gguf`);
const target = sample('F16');
const options = { structuredOutput: true };
const prompt = 'Once upon a time there was a girl. Once upon a time there was a girl';
const greedy = { temperature: 0, maxTokens: 20 };
/** Two best tokens that are closer than this may swap: the GPU checks drafts in larger batches. */
const kGap = 1e-3;

/** Results of the GPU come later. A pass of several tokens takes little longer then, so drafting pays. */
const kLater = `
  const { mapAsync } = GPUBuffer.prototype;
  GPUBuffer.prototype.mapAsync = async function (...given) {
    await new Promise((ok) => setTimeout(ok, 250));
    return mapAsync.apply(this, given);
  };
  addEventListener('message', ({ data }) => data.method === 'load' && (data.args[0].gpuKernels ??= ${JSON.stringify(kPlain)}));
`;

/** The tokens of a generation, and how far each was from the second best. */
async function tokensOf(engine, how = {}) {
  const out = [];
  const all = { ...greedy, logprobs: 2, cachePrompt: false, ...how };
  for await (const { token, topLogprobs } of engine.generate(prompt, all))
    if (topLogprobs) out.push([token, topLogprobs[0].logprob - topLogprobs[1].logprob]);
  return out;
}

/** Checks that tokens are equal up to the first near tie. Returns how many are. */
function agree(found, expected, what) {
  const at = expected.findIndex(([token], i) => token !== found[i]?.[0]);
  if (at < 0) return expected.length;
  assert.ok(expected[at][1] < kGap, `${what}: token ${at} differs, gap ${expected[at][1]}`);
  return at;
}

describe('a draft model on the GPU', { skip: noSoftwareAdapter, timeout: 600_000 }, () => {
  let tab, plain, drafting;
  before(async () => {
    tab = await openNode(setup);
    plain = await globalThis.load(target, options);
    const { workerAfter, kWorker, load } = globalThis;
    drafting = await load(target, {
      ...options,
      draft: sample('Q4_0'),
      workerUrl: workerAfter(kWorker + kLater),
    });
  });
  after(async () => {
    await Promise.all([plain, drafting].map((engine) => engine?.dispose()));
    const complaints = globalThis.complaints;
    await tab.close();
    assert.deepEqual(complaints, [], 'errors of the device');
  });

  test('the tokens are the same, and some are accepted', async () => {
    assert.equal(drafting.stats().device, 'webgpu');
    assert.ok(drafting.memory().draft > 0);
    let same = 0;
    // Whether drafting pays is measured, and the first passes wait for kernels to compile.
    for (let round = 0; round < 6 && !drafting.stats().acceptedTokens; round++)
      same += agree(await tokensOf(drafting), await tokensOf(plain), `round ${round}`);
    assert.ok(same > 10, `${same} tokens`);
    const { draftedTokens, acceptedTokens, engine } = drafting.stats();
    assert.ok(
      acceptedTokens > 0 && draftedTokens >= acceptedTokens,
      `${draftedTokens} drafted, ${acceptedTokens} accepted`,
    );
    assert.ok(engine.gpuPasses > 0);
    assert.equal(plain.stats().draftedTokens, 0);
  });

  for (const [what, how, skip] of [
    ['penalties', { repeatPenalty: 1.3, frequencyPenalty: 0.5 }, longOnly],
    ['a grammar', { jsonSchema: { type: 'array', items: { enum: ['Anna', 'Ben'] } } }, false],
  ])
    test(what, { skip }, async () => {
      const [expected, found] = [await tokensOf(plain, how), await tokensOf(drafting, how)];
      assert.ok(expected.length > 4);
      agree(found, expected, what);
    });

  test('a session is rewound, forked and saved', { skip: longOnly }, async () => {
    const tell = async (engine) => {
      const session = engine.session();
      const texts = [await session.generate(prompt, greedy).text()];
      const fork = await session.fork();
      texts.push(await fork.generate(' and', { ...greedy, maxTokens: 8 }).text());
      const saved = await session.save();
      await session.generate(' but', { ...greedy, maxTokens: 8 }).text();
      await session.restore(saved);
      texts.push(await session.generate(' and', { ...greedy, maxTokens: 8 }).text());
      return texts;
    };
    const [expected, found] = [await tell(plain), await tell(drafting)];
    assert.equal(expected[1], expected[2]);
    assert.equal(found[1], found[2]);
    assert.deepEqual(found, expected);
  });

  test('beside parallel requests', { skip: longOnly }, async () => {
    const engine = await globalThis.load(target, {
      ...options,
      draft: sample('Q4_0'),
      parallel: 2,
    });
    const all = await Promise.all(
      Array.from({ length: 3 }, () => tokensOf(engine.session(), { cachePrompt: undefined })),
    );
    const expected = await tokensOf(plain);
    for (const found of all) agree(found, expected, 'a session');
    assert.equal(engine.stats().device, 'webgpu');
    await engine.dispose();
  });

  test('the CPU goes on when the GPU is lost', { skip: longOnly }, async () => {
    const warnings = [];
    const engine = await globalThis.load(target, {
      ...options,
      draft: sample('Q4_0'),
      onProgress: ({ phase, code }) => phase === 'warning' && warnings.push(code),
    });
    const pieces = [];
    let losing;
    for await (const { token } of engine.generate(prompt, greedy)) {
      if (pieces.push(token) === 3) losing = globalThis.loseGpu();
    }
    await losing;
    assert.equal(pieces.length, greedy.maxTokens);
    assert.ok(warnings.includes('DEVICE_LOST'), `${warnings}`);
    assert.equal(engine.stats().device, 'wasm');
    const cpu = await globalThis.loadCpu(target, options);
    agree(await tokensOf(engine), await tokensOf(cpu), 'behind the loss');
    await Promise.all([engine.dispose(), cpu.dispose()]);
  });
});
