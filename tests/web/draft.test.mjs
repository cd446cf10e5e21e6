// Speculative decoding through the package on the sample models: n-gram drafts and a draft model
// change the number of forward passes but not the output. A draft model shares the budget, which
// holds for both.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { extent, longOnly } from '../extent.mjs';
import { inTab, launch, testMounts } from './chromium.mjs';
import { root } from './helpers.mjs';
import { slowWorker } from './slow-disk.mjs';

const sample = (type) => join(root, 'examples', 'models', `sluice-tales-${type}.gguf`);
const foreign = join(root, 'tests', 'data', 'arch', 'qwen3.gguf');
const model = sample('Q8_0');
const options = { memoryBudget: 64e6, contextLength: 256, threads: 1, cache: 'none' };
const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);

const scripts = mkdtempSync(join(tmpdir(), 'sluice-slow-'));
after(() => rmSync(scripts, { recursive: true, force: true }));
/**
 * kPays and the ms of slow(): reads of files whose path contains `match` take `ms` longer. With
 * kPays drafting is faster on any machine.
 */
const kPays = 0.2;
const slow = (match, ms = 0.05) => ({
  workerUrl: slowWorker(scripts, join(root, 'dist'), match, ms),
});

async function using(engines, work) {
  const loaded = [];
  try {
    for (const [source, how] of engines) loaded.push(await Engine.load(source, how));
    return await work(...loaded);
  } finally {
    await Promise.all(loaded.map((engine) => engine.dispose()));
  }
}

const piecesOf = async (generation) => {
  const pieces = [];
  for await (const piece of generation) pieces.push(piece);
  return pieces;
};

const prompt = 'Once upon a time there was a girl. Once upon a time there was a girl';
const long = Array.from({ length: 236 }, (_, i) => 5 + ((i * 31 + (i >> 2)) % 400));

// A large bias towards one token makes the text repeat itself.
const ways = [
  { temperature: 0 },
  { temperature: 1, seed: 3 },
  { temperature: 0, ignoreEos: true, logitBias: { 65: 100 } },
  { temperature: 0.9, seed: 11, topK: 0, repeatPenalty: 1.2 },
  { temperature: 0, stop: ['and', '.'] },
];

/** Compares the outputs of two engines for every way of sampling. */
async function agree(plain, drafting, label, { maxTokens = 50, chosen = ways } = {}) {
  for (const way of chosen) {
    const expected = await plain.generate(prompt, { maxTokens, ...way }).result;
    const found = await drafting.generate(prompt, { maxTokens, ...way }).result;
    for (const name of ['text', 'finishReason', 'stopString'])
      assert.equal(found[name], expected[name], `${label} ${JSON.stringify(way)}`);
    assert.equal(found.usage.completionTokens, expected.usage.completionTokens);
  }
}

describe('n-grams', () => {
  test('the output is the same, and counters separate draft tokens from passes', () =>
    using(
      [
        [model, options],
        [model, { ...options, draft: 'ngram' }],
      ],
      async (plain, drafting) => {
        // Whether drafting pays is measured: on a busy machine a round may draft nothing.
        for (let round = 0; round < 6 && !drafting.stats().acceptedTokens; round++)
          await agree(plain, drafting, 'ngram', { maxTokens: 120 });
        const { draftedTokens, acceptedTokens, forwardPasses } = drafting.stats();
        assert.ok(
          acceptedTokens > 0 && draftedTokens >= acceptedTokens,
          `${draftedTokens} drafted, ${acceptedTokens} accepted`,
        );
        assert.equal(forwardPasses + acceptedTokens, plain.stats().forwardPasses);
        assert.equal(plain.stats().draftedTokens, 0);
        assert.equal(drafting.memory().draft, 0);
      },
    ));
});

describe('a draft model', () => {
  const target = sample('F16');
  const draft = sample('Q4_0');
  const load = { ...options, draft };

  for (const [threads, ioWorker] of [
    [1, false],
    [2, true],
  ]) {
    test(
      `the output is the same and takes fewer passes, ${threads} thread(s), ${ioWorker ? 'with' : 'without'} an I/O worker`,
      { skip: threads === 1 && longOnly },
      () =>
        using(
          [
            [target, options],
            [
              target,
              { ...load, ...slow('F16', kPays), threads, ioWorker, memoryBudget: 3_000_000 },
            ],
          ],
          async (plain, drafting) => {
            // In memory, the next test has all of them.
            const chosen = extent(ways.slice(0, 3), ways);
            await agree(plain, drafting, 'streamed', { maxTokens: 24, chosen });
            const { draftedTokens, acceptedTokens, forwardPasses, bytesTotal } = drafting.stats();
            assert.ok(
              acceptedTokens > 0 && draftedTokens >= acceptedTokens,
              `${draftedTokens} drafted, ${acceptedTokens} accepted`,
            );
            assert.equal(forwardPasses + acceptedTokens, plain.stats().forwardPasses);
            const { draft, total, budget, heap } = drafting.memory();
            assert.ok(
              draft > 600_000 && total <= budget && heap <= budget,
              JSON.stringify(drafting.memory()),
            );
            assert.ok(bytesTotal > plain.stats().bytesTotal);
          },
        ),
    );
  }

  test('both in memory, and both streaming', () =>
    using(
      [
        [model, options],
        [model, load],
      ],
      async (plain, drafting) => {
        await agree(plain, drafting, 'in memory');
        const { plan } = await Engine.inspect(model, load);
        await using(
          [[model, { ...load, ...slow('sluice'), memoryBudget: plan.minimum }]],
          (tight) => agree(plain, tight, 'streaming', { maxTokens: 12 }),
        );
      },
    ));

  for (const [of, by, threads] of [
    ['F16', 'Q4_0', 2],
    ['Q8_0', 'Q4_0', 1],
    ['Q4_0', 'F16', 2],
  ]) {
    test(
      `the smallest budget suffices for a full context, one page less does not load: ${of} by ${by}, ${threads} thread(s)`,
      { skip: longOnly }, // memory-limits.test.mjs has a draft model
      async () => {
        const how = { ...options, threads, draft: sample(by), structuredOutput: true };
        const { plan } = await Engine.inspect(sample(of), how);
        const told = {
          code: 'BUDGET_TOO_SMALL',
          message: new RegExp(
            `the model and its draft: the smallest that works is ${plan.minimum} bytes`,
          ),
        };
        for (const memoryBudget of [plan.minimum - 1, plan.minimum >> 1, 65536]) {
          await assert.rejects(Engine.load(sample(of), { ...how, memoryBudget }), told);
        }
        await using(
          [
            [sample(of), { ...options, structuredOutput: true }],
            [sample(of), { ...how, ...slow(`tales-${of}`, kPays / 2), memoryBudget: plan.minimum }],
          ],
          async (plain, tight) => {
            for (const more of [
              {},
              { logprobs: 3, maxTokens: 12 },
              { temperature: 1, seed: 1, maxTokens: 12 },
              { jsonSchema: true, maxTokens: 20 },
            ]) {
              const how = {
                temperature: 0,
                ignoreEos: !more.jsonSchema,
                cachePrompt: false,
                ...more,
              };
              const [expected, found] = [
                await plain.generate(long, how).result,
                await tight.generate(long, how).result,
              ];
              assert.equal(found.text, expected.text);
              assert.deepEqual(found.usage, expected.usage);
            }
            await tight.setMemoryBudget(plan.minimum);
            assert.equal(
              await tight.generate(long, { temperature: 0, maxTokens: 6 }).text(),
              await plain.generate(long, { temperature: 0, maxTokens: 6 }).text(),
            );
            if (of === 'F16') assert.ok(tight.stats().draftedTokens > 0);
            const { heap, total } = tight.memory();
            assert.ok(
              heap <= plan.minimum && total <= plan.minimum,
              `${heap} held, ${total} planned of ${plan.minimum}`,
            );
            await assert.rejects(tight.setMemoryBudget(plan.minimum - 1), told);
          },
        );
      },
    );
  }

  test('logprobs and constrained decoding', () =>
    using(
      [
        [target, { ...options, structuredOutput: true }],
        [target, { ...load, ...slow('F16'), structuredOutput: true, memoryBudget: 21e6 }],
      ],
      async (plain, drafting) => {
        const schema = { type: 'array', items: { enum: ['Anna', 'Ben', 'Annabel'] }, minItems: 3 };
        for (const way of [
          { logprobs: 2 },
          { jsonSchema: schema },
          { jsonSchema: schema, logprobs: 1, temperature: 1.5, seed: 4 },
          { regex: '[a-f ]{20}' },
          { choice: ['a mill', 'a river'] },
        ]) {
          const how = { temperature: 0, maxTokens: 60, ...way };
          assert.deepEqual(
            await piecesOf(drafting.generate(prompt, how)),
            await piecesOf(plain.generate(prompt, how)),
          );
        }
      },
    ));

  // The short suite has this and the next test in its random operations.
  test('after cancel(), break and abort the next output is unchanged', { skip: longOnly }, () =>
    using(
      [
        [target, options],
        [target, { ...load, ...slow('F16'), memoryBudget: 3_000_000 }],
      ],
      async (plain, drafting) => {
        const how = { temperature: 0, ignoreEos: true };
        const expected = await plain.generate(prompt, { ...how, maxTokens: 100 }).text();
        const ends = [];
        for (let i = 0; i < 12; i++) {
          const control = new AbortController();
          const generation = drafting.generate(prompt, { ...how, signal: control.signal });
          if (i % 3 === 0) {
            await sleep(7 * i);
            generation.cancel();
          } else if (i % 3 === 1) {
            for await (const _ of generation) if (Math.random() < 0.2) break;
          } else {
            await sleep(5 * i);
            control.abort();
          }
          const { text, finishReason } = await generation.result.catch(({ name }) => ({
            text: '',
            finishReason: name,
          }));
          ends.push(finishReason); // 'length' if a busy machine slept for longer
          assert.ok(
            finishReason === (i % 3 === 2 ? 'AbortError' : 'cancelled') ||
              finishReason === 'length',
            finishReason,
          );
          assert.ok(expected.startsWith(text.slice(0, expected.length)));
        }
        for (const end of ['cancelled', 'AbortError']) assert.ok(ends.includes(end), ends.join());
        assert.equal(await drafting.generate(prompt, { ...how, maxTokens: 100 }).text(), expected);
      },
    ),
  );

  test(
    'sessions, budget changes during generation, embeddings and logits in between',
    { skip: longOnly },
    () =>
      using(
        [
          [target, options],
          [target, { ...load, ...slow('F16'), memoryBudget: 3_000_000 }],
        ],
        async (plain, drafting) => {
          const how = { temperature: 0, ignoreEos: true, maxTokens: 24 };
          const [mine, theirs] = [drafting, plain].map((engine) => [
            engine.session(),
            engine.session(),
          ]);
          const { plan } = await Engine.inspect(target, load);
          for (const [turn, budget] of [plan.minimum, 64e6, plan.minimum + 300_000].entries()) {
            for (const i of [0, 1]) {
              const text = `${turn ? ' ' : ''}${['the mill by the river', 'a fox in the wood'][i]}`;
              const going = mine[i].generate(text, how);
              const moved = i ? drafting.setMemoryBudget(budget) : null;
              assert.equal(
                await going.text(),
                await theirs[i].generate(text, how).text(),
                `turn ${turn}, session ${i}`,
              );
              await moved;
            }
            assert.deepEqual(
              await drafting.embed(['the mill', 'a river']),
              await plain.embed(['the mill', 'a river']),
            );
            assert.deepEqual(await drafting.logits([1, 2, 3]), await plain.logits([1, 2, 3]));
            const { heap, draft } = drafting.memory();
            assert.ok(heap <= budget && draft > 0, `${heap} of ${budget}`);
          }
          const fork = await mine[0].fork();
          assert.equal(
            await fork.generate(' and', how).text(),
            await theirs[0].generate(' and', how).text(),
          );
        },
      ),
  );

  test('dispose() during generation', async () => {
    const engine = await Engine.load(target, {
      ...load,
      ...slow('F16', kPays),
      memoryBudget: 3_000_000,
    });
    const generation = engine.generate(prompt, { temperature: 0, ignoreEos: true });
    await generation[Symbol.asyncIterator]().next();
    await engine.dispose();
    await assert.rejects(generation.result, { code: 'DISPOSED' });
  });

  test('inspect() reports the plan of load()', async () => {
    const how = { ...load, memoryBudget: 3_000_000 };
    const [alone, pair] = [
      await Engine.inspect(target, { ...how, draft: false }),
      await Engine.inspect(target, how),
    ];
    assert.equal(alone.plan.draft, 0);
    assert.ok(
      pair.plan.draft > 0 &&
        pair.plan.total <= pair.plan.budget &&
        pair.plan.minimum > alone.plan.minimum,
    );
    assert.ok(
      pair.plan.weights < alone.plan.weights,
      'the draft model takes its bytes from the weights',
    );
    await using([[target, how]], (engine) => {
      assert.equal(engine.memory().draft, pair.plan.draft);
      assert.equal(engine.info.plan.minimum, pair.plan.minimum);
      assert.equal(engine.memory().budget, pair.plan.budget);
    });
  });

  test('an unusable draft model is an error that names the draft', async () => {
    const refused = (draft, expected) =>
      assert.rejects(Engine.load(model, { ...options, draft }), expected);
    for (const draft of ['', true, 5, []]) await refused(draft, { code: 'INVALID_ARGUMENT' });
    await refused('no-such-model', {
      code: 'NOT_FOUND',
      message: /^The draft model: .*no-such-model/,
    });
    await refused(join(root, 'package.json'), { code: 'NOT_GGUF', message: /^The draft model: / });
    await refused(new Blob(['x'.repeat(100)]), { code: 'NOT_GGUF', message: /^The draft model: / });
    await refused(foreign, {
      code: 'INVALID_ARGUMENT',
      message: /the draft model has another vocabulary: its token \d+ differs from the model's/,
    });
    await using([[model, { ...load, device: 'auto' }]], (engine) =>
      assert.equal(engine.stats().device, 'wasm'),
    );
    await using([[model, { ...options, draft: false }]], (engine) =>
      assert.equal(engine.memory().draft, 0),
    );
  });
});

describe('in Chromium', () => {
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser?.close());

  for (const isolation of [true, false]) {
    test(
      `a draft model, ${isolation ? 'with' : 'without'} isolation: same output, cached, other budget, offline`,
      { skip: !isolation && longOnly },
      () =>
        inTab(browser, join(root, 'dist'), { isolation, mounts: testMounts }, async ({ page }) => {
          const run = (cache) =>
            page.evaluate(
              async ([cache, prompt, ways]) => {
                const at = (type) => `/data/examples/models/sluice-tales-${type}.gguf`;
                const load = { contextLength: 256, cache };
                const { plan } = await Engine.inspect(at('F16'), { ...load, draft: at('Q4_0') });
                const answers = async (engine) => {
                  const texts = [];
                  for (const way of ways)
                    texts.push(await engine.generate(prompt, { maxTokens: 16, ...way }).text());
                  return texts;
                };
                const plain = await Engine.load(at('F16'), { ...load, memoryBudget: 64e6 });
                const expected = await answers(plain);
                await plain.dispose();
                const phases = [];
                const engine = await Engine.load(at('F16'), {
                  ...load,
                  memoryBudget: 64e6,
                  draft: at('Q4_0'),
                  onProgress: ({ phase }) => phases.push(phase),
                });
                const found = [await answers(engine)];
                await engine.downloaded;
                for (const budget of [plan.minimum, plan.minimum + 500_000]) {
                  await engine.setMemoryBudget(budget);
                  found.push(await answers(engine));
                  if (engine.memory().heap > budget)
                    throw new Error(`${engine.memory().heap} of ${budget}`);
                }
                const { bytesFetched, bytesTotal, bytesCached, draftedTokens } = engine.stats();
                const { draft } = engine.memory();
                await engine.dispose();
                const stored = (await Engine.modelCache.list())
                  .filter(({ complete }) => complete)
                  .map(({ url }) => url.replace(/.*-/, ''))
                  .sort();
                return {
                  expected,
                  found,
                  phases,
                  bytesFetched,
                  bytesTotal,
                  bytesCached,
                  draftedTokens,
                  draft,
                  stored,
                  isolated: crossOriginIsolated,
                };
              },
              [cache, prompt, extent(ways.slice(1, 2), ways)],
            );
          const first = await run('default');
          assert.equal(first.isolated, isolation);
          for (const texts of first.found) assert.deepEqual(texts, first.expected);
          assert.ok(
            first.draft > 0 && first.draftedTokens > 0,
            `${first.draft} bytes, ${first.draftedTokens} guesses`,
          );
          assert.equal(first.bytesCached, first.bytesTotal);
          assert.deepEqual(first.stored, ['F16.gguf', 'Q4_0.gguf']);
          assert.equal(first.phases.filter((phase) => phase === 'cached').length, 1);
          const second = await run('only');
          assert.equal(second.bytesFetched, 0);
          assert.deepEqual(second.found, first.found);
        }),
    );
  }
});

describe('model cache, in Node', () => {
  test('both models are cached once and then load offline', async (t) => {
    const { serve } = await import('../../web/scripts/serve.mjs');
    const server = await serve([['/models/', join(root, 'examples', 'models')]]);
    const cacheDir = mkdtempSync(join(tmpdir(), 'sluice-draft-'));
    t.after(() => rmSync(cacheDir, { recursive: true, force: true }));
    const at = (type) => `${server.url}/models/sluice-tales-${type}.gguf`;
    const how = { ...options, cache: 'default', cacheDir, draft: at('Q4_0') };
    await assert.rejects(Engine.load(at('Q8_0'), { ...how, draft: at('nothing') }), {
      code: 'HTTP_STATUS',
      message: /^The draft model: .*404/,
    });
    const greedy = { temperature: 0, maxTokens: 40 };
    const text = await using([[at('Q8_0'), how]], async (engine) => {
      const text = await engine.generate(prompt, greedy).text();
      await engine.downloaded;
      return text;
    });
    await server.close();
    await using([[at('Q8_0'), { ...how, cache: 'only' }]], async (engine) => {
      assert.equal(await engine.generate(prompt, greedy).text(), text);
      assert.equal(engine.stats().bytesFetched, 0);
    });
  });
});
