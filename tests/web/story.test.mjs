// The real engine in Node and in Chromium: references of the sample model, and llama.cpp's outputs
// of stories260K if the fixtures exist. The tokens must be the same resident and streamed, with and
// without threads, from file, server, cache and Blob.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { serve } from '../../web/scripts/serve.mjs';
import { extent, longOnly } from '../extent.mjs';
import { crossOrigin, inTab, launch } from './chromium.mjs';
import { root } from './helpers.mjs';
import { check, sample, story, tell } from './story.mjs';

const dist = join(root, 'dist');
const models = join(root, 'examples', 'models');
const fixtures = join(root, '..', 'shared', 'fixtures', 'stories260K');
const skip = existsSync(fixtures) ? false : 'no ../shared/fixtures/stories260K';

/** llama.cpp's outputs in which rounding of activations cannot change a token. */
function stories() {
  const all = JSON.parse(readFileSync(join(fixtures, 'expected.json'), 'utf8'));
  const clear = all.filter(({ file, min_gap }) => /f32|F16/.test(file) || min_gap > 0.1);
  assert.equal(clear.length, 8);
  return clear;
}

/** A budget below the model's size, for the one file that is larger than the minimum. */
const streamed = (file) => (statSync(file).size > 1.15e6 ? [1_180_000] : []);

describe('in Node', () => {
  before(async () => {
    globalThis.Engine = (await import(pathToFileURL(join(dist, 'node.js')).href)).Engine;
  });
  for (const share of [0, 0.9, 0.75]) {
    for (const threads of [1, 2]) {
      test(`the sample model, budget ${share || 'automatic'}, ${threads} thread(s)`, async () => {
        const memoryBudget = share ? Math.floor(statSync(sample).size * share) : undefined;
        const options = { memoryBudget, threads, contextLength: 128 };
        check(await tell({ ...story, options, maxTokens: story.tokens.length }), story, 'sample');
      });
    }
  }
  test('the kernel table can be forced', async () => {
    const options = { kernels: 'wasm128', contextLength: 128 };
    const told = await tell({ ...story, options, maxTokens: story.tokens.length });
    check(told, story, 'wasm128');
    assert.equal(told.stats.kernels, 'wasm128');
  });
  test('a text that exceeds the budget is an error, and the engine still works', async () => {
    const engine = await Engine.load(sample, {
      memoryBudget: 1_900_000,
      contextLength: 128,
      threads: 1,
    });
    const sizes = [1e5, 2.5e5, 1e6, 2.5e5, 1e5];
    const codes = await Promise.all(
      sizes.map((n) => engine.tokenize('a '.repeat(n)).catch(({ code }) => code)),
    );
    assert.deepEqual(
      codes,
      sizes.map(() => 'OUT_OF_MEMORY'),
    );
    assert.equal(await engine.countTokens('a '.repeat(50)), 52);
    const pieces = [];
    for await (const { token } of engine.generate(story.prompt, { maxTokens: 8, temperature: 0 }))
      pieces.push(token);
    assert.deepEqual(pieces, story.tokens.slice(0, 8));
    await engine.dispose();
  });
  test('the smallest budget that the error names works', async () => {
    const refused = await Engine.load(sample, { memoryBudget: 400_000, contextLength: 128 }).catch(
      (e) => e,
    );
    assert.equal(refused.code, 'BUDGET_TOO_SMALL');
    const memoryBudget = Number(/smallest that works is (\d+)/.exec(refused.message)[1]);
    const told = await tell({
      ...story,
      options: { memoryBudget, contextLength: 128, threads: 1 },
      maxTokens: 8,
    });
    check({ ...told }, { tokens: story.tokens.slice(0, 8) }, `${memoryBudget}`);
  });
  test('a large smallest budget works too, and nothing smaller does', async () => {
    const options = { contextLength: 100_000, threads: 1 }; // 100 MB of KV cache
    const inspect = (memoryBudget) =>
      Engine.inspect(sample, { ...options, memoryBudget }).then(
        () => 0,
        (error) => {
          return Number(/smallest that works is (\d+)/.exec(error.message)[1]);
        },
      );
    const least = await inspect(70 << 20);
    assert.ok(least > 100e6);
    assert.equal(await inspect(least - 65536), least);
    assert.equal(await inspect(least), 0);
    assert.equal((await Engine.inspect(sample, options)).plan.minimum, least);
  });
  test('the smallest budget works with the default context', async () => {
    const refused = await Engine.inspect(sample, { memoryBudget: 1_100_000 }).catch(
      (error) => error,
    );
    assert.equal(refused.code, 'BUDGET_TOO_SMALL');
    const memoryBudget = Number(/smallest that works is (\d+)/.exec(refused.message)[1]);
    const told = await tell({ ...story, options: { memoryBudget, threads: 1 }, maxTokens: 8 });
    check(told, { tokens: story.tokens.slice(0, 8) }, `${memoryBudget}`);
  });
  test('the plan assigns units to layers', async () => {
    const { layers, plan } = await Engine.inspect(sample, {
      memoryBudget: 1.7e6,
      contextLength: 128,
    });
    const sizes = plan.layerUnits.slice(1).map((first, i) => first - plan.layerUnits[i]);
    assert.equal(plan.layerUnits[0], 0);
    assert.deepEqual(
      sizes,
      Array(layers).fill(sizes[0]),
      'equal layers have equal numbers of units',
    );
    assert.ok(sizes[0] > 1 && plan.layerUnits[layers] < plan.units);
  });
  test("llama.cpp's output of stories260K", { skip: skip || longOnly }, async () => {
    for (const expected of stories()) {
      const source = join(fixtures, expected.file);
      for (const memoryBudget of [undefined, ...streamed(source)]) {
        const told = await tell({
          source,
          prompt: expected.prompt,
          maxTokens: expected.greedy.length,
          options: { memoryBudget },
        });
        check(told, { tokens: expected.greedy }, `${expected.file}: ${expected.prompt}`);
      }
    }
  });
});

describe('in Chromium', () => {
  let browser;
  let files;
  before(async () => {
    browser = await launch();
    files = await serve(
      [
        ['/stories/', fixtures],
        ['/', models],
      ],
      crossOrigin,
    );
  });
  after(async () => {
    await browser.close();
    await files.close();
  });

  const telling = (options, work) =>
    inTab(browser, dist, options, async (tab) => {
      await tab.page.evaluate(`window.tell = ${tell}`);
      return work((args) => tab.page.evaluate((a) => tell(a), args), tab);
    });
  const url = () => `${files.url}/sluice-tales-F16.gguf`;

  for (const isolation of [true, false]) {
    test(
      `the budget changes while loaded ${isolation ? 'with' : 'without'} isolation`,
      { skip: isolation && longOnly },
      () =>
        telling({ isolation }, async (_, { page }) => {
          const size = statSync(sample).size;
          const budgets = [0.8, 1.6, 0.7, 0.9].map((share) => Math.floor(share * size));
          const seen = await page.evaluate(
            async ([source, prompt, list]) => {
              const engine = await Engine.load(source, { contextLength: 128 });
              const session = engine.session();
              const out = [];
              for (const budget of [0, ...list]) {
                if (budget) await engine.setMemoryBudget(budget);
                const tokens = [];
                const said = out.length === 0 ? prompt : '';
                for await (const piece of session.generate(said, {
                  maxTokens: 6,
                  temperature: 0,
                  ignoreEos: true,
                }))
                  tokens.push(piece.token);
                const { budget: limit, heap } = engine.memory();
                out.push({ tokens, fits: budget === 0 || (limit <= budget && heap <= limit) });
              }
              await engine.dispose();
              return out;
            },
            [url(), story.prompt, budgets],
          );
          assert.deepEqual(
            seen.flatMap(({ tokens }) => tokens),
            story.tokens.slice(0, 6 * seen.length),
          );
          assert.ok(seen.every(({ fits }) => fits));
        }),
    );
    test(
      `the sample model ${isolation ? 'with' : 'without'} isolation: resident, streamed, from the cache, from a Blob`,
      { skip: !isolation && longOnly },
      () =>
        telling({ isolation }, async (run) => {
          const memoryBudget = Math.floor(statSync(sample).size * 0.8);
          const base = { ...story, source: url(), maxTokens: story.tokens.length };
          for (const [label, extra] of Object.entries({
            'resident, first load': { options: { contextLength: 128 } },
            'streamed from the store': { options: { memoryBudget, contextLength: 128 } },
            'streamed from the network': {
              options: { memoryBudget, contextLength: 128, cache: 'none' },
            },
            'one thread, no I/O worker': {
              options: { memoryBudget, contextLength: 128, threads: 1, ioWorker: false },
            },
            'a Blob': { blob: true, options: { memoryBudget, contextLength: 128 } },
            'plain SIMD': { options: { contextLength: 128, kernels: 'wasm128' } },
          })) {
            const told = await run({ ...base, ...extra });
            check(told, story, label);
            if (label.includes('the store')) assert.ok(told.stats.bytesFetched <= 65536, label);
          }
        }),
    );
  }
  test("llama.cpp's output of stories260K", { skip: skip || longOnly }, () =>
    telling({}, async (run) => {
      for (const expected of stories()) {
        for (const memoryBudget of [undefined, ...streamed(join(fixtures, expected.file))]) {
          const source = `${files.url}/stories/${expected.file}`;
          const told = await run({
            source,
            prompt: expected.prompt,
            maxTokens: expected.greedy.length,
            options: { memoryBudget },
          });
          check(told, { tokens: expected.greedy }, `${expected.file}: ${expected.prompt}`);
        }
      }
    }),
  );
  test('inspect reads a small part of the file and reports measured speeds', () =>
    telling({}, async (run, { page }) => {
      const inspect = (cache) =>
        page.evaluate(
          ([source, options]) => Engine.inspect(source, options),
          [url(), { memoryBudget: 2e6, cache }],
        );
      const info = await inspect('none');
      assert.equal(info.architecture, 'llama');
      assert.ok(info.plan.minimum > 0 && info.plan.minimum <= 2e6 && info.macsPerToken > 0);
      const { speed } = info;
      assert.ok(speed.computeTokensPerSecond > 0);
      // Undefined if the header came in one piece.
      const { networkBytesPerSecond: network } = speed;
      assert.equal(speed.tokensPerSecond > 0, network > 0);
      assert.equal(speed.downloadSeconds > 0, network > 0);
      await run({ ...story, source: url(), maxTokens: 1, options: { contextLength: 128 } });
      const { speed: stored } = await inspect('default');
      assert.ok(stored.cacheBytesPerSecond > 0 && stored.downloadSeconds === 0);
      assert.ok(
        stored.tokensPerSecond > 0 && stored.tokensPerSecond <= stored.computeTokensPerSecond,
      );
    }));
  const [first, further] = extent([3, 5], [20, 80]);
  test(`${first + further} loads and disposals leak no worker and no memory`, () =>
    telling({}, async (run, { page }) => {
      const cdp = await browser.newBrowserCDPSession();
      const workers = async () =>
        (await cdp.send('Target.getTargets')).targetInfos.filter(({ type }) => type === 'worker')
          .length;
      const renderers = async () => {
        const { processInfo } = await cdp.send('SystemInfo.getProcessInfo');
        const ids = processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => id);
        return ids.reduce(
          (sum, id) => sum + 4096 * Number(readFileSync(`/proc/${id}/statm`, 'utf8').split(' ')[1]),
          0,
        );
      };
      const load = (times) =>
        page.evaluate(
          async ([source, n]) => {
            for (let i = 0; i < n; i++) {
              const engine = await Engine.load(source, { contextLength: 64 });
              await engine.generate('Once', { maxTokens: 2 }).text();
              await engine.dispose();
            }
          },
          [`${files.url}/sluice-tales-Q4_0.gguf`, times],
        );
      await load(first);
      await page.evaluate(async (source) => {
        window.held = await Engine.load(source, { contextLength: 64 });
      }, `${files.url}/sluice-tales-Q4_0.gguf`);
      assert.ok((await workers()) > 0, 'no worker was started');
      await page.evaluate(() => held.dispose());
      const before = await renderers();
      await load(further);
      // The last workers take some time to end; a leaked one stays.
      for (let i = 0; i < 100 && (await workers()) > 0; i++)
        await new Promise((ok) => setTimeout(ok, 200));
      assert.equal(await workers(), 0, 'workers remain');
      const grown = (await renderers()) - before;
      assert.ok(grown < 60e6, `${Math.round(grown / 1e6)} MB more after ${further} further loads`);
    }));
});
