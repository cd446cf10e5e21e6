// The package over the fake engine in Chromium: model cache, tabs, isolation, quota, crashes.
import assert from 'node:assert/strict';
import { after, before, test as plainTest } from 'node:test';
import { extent, longOnly } from '../extent.mjs';
import { inTab, launch, openPage } from './chromium.mjs';
import { buildFakePackage, fakeModel, faultyServer, random } from './helpers.mjs';

const dist = await buildFakePackage();
const bytes = fakeModel();
const kChunk = 16384;
const tuning = { chunkSize: kChunk, streamBytes: 131072, retryMs: 1, retryMaxMs: 5, stallMs: 2000 };
let browser;
let server;
// A test that hangs fails by name.
const test = (name, work, more) => plainTest(name, { timeout: 300_000, ...more }, work);
let expected;

before(async () => {
  browser = await launch();
  server = await faultyServer({ bytes, etag: '"1"' });
  const tab = await openPage(browser, dist);
  expected = (await load(tab.page, server.url, { cache: 'none' })).text;
  await tab.close();
  assert.match(expected, /^[a-z]{12}$/);
});
after(async () => {
  await browser.close();
  await server.close();
});

/** In the page: loads, generates, waits for the download, disposes. */
function load(page, url, options = {}) {
  return page.evaluate(
    async ([source, loadOptions]) => {
      const warnings = [];
      const onProgress = (event) => event.phase === 'warning' && warnings.push(event.code);
      const engine = await Engine.load(source, { ...loadOptions, onProgress });
      const text = await engine.generate('hello', { maxTokens: 12, temperature: 0 }).text();
      const stored = await engine.downloaded.then(
        () => true,
        (error) => error.code,
      );
      const stats = engine.stats();
      await engine.dispose();
      return { text, stored, stats, warnings, isolated: crossOriginIsolated };
    },
    [url, { memoryBudget: 700_000, tuning, ...options }],
  );
}

async function withSlowServer(work) {
  const slow = await faultyServer({ bytes, etag: '"1"' }, () => 'slow');
  try {
    return await work(slow);
  } finally {
    await slow.close();
  }
}

for (const isolation of [true, false]) {
  test(`the same text ${isolation ? 'with' : 'without'} isolation; the second load reads the cache`, () =>
    inTab(browser, dist, { isolation }, async ({ page }) => {
      for (const memoryBudget of [4e6, 700_000, 350_000]) {
        const { text, isolated } = await load(page, server.url, { memoryBudget });
        assert.deepEqual([text, isolated], [expected, isolation]);
      }
      const { stats } = await load(page, server.url);
      assert.ok(stats.bytesFetched <= 65536, `${stats.bytesFetched} fetched`);
      const {
        stats: { threads },
      } = await load(page, server.url, { threads: 2 });
      assert.equal(threads, isolation ? 2 : 1);
    }));
}

for (const isolation of [true, false]) {
  test(
    `large sessions are swapped to OPFS and survive budget changes, ${isolation ? 'with' : 'without'} isolation`,
    { skip: !isolation && longOnly },
    () =>
      inTab(browser, dist, { isolation }, async ({ page }) => {
        const found = await page.evaluate(
          async ([source, tuning]) => {
            const engine = await Engine.load(source, {
              memoryBudget: 700_000,
              contextLength: 2e5,
              tuning,
            });
            const greedy = { maxTokens: 12, temperature: 0 };
            const sessions = [engine.session(), engine.session()];
            const names = async () => {
              const root = await navigator.storage.getDirectory();
              const folder = await root.getDirectoryHandle('sluice-sessions', { create: true });
              const list = [];
              for await (const name of folder.keys()) list.push(name);
              return list.length;
            };
            const engines = await Promise.all(
              [0, 1].map(() =>
                Engine.load(source, { memoryBudget: 4e6, contextLength: 2e5, tuning }),
              ),
            );
            const alone = engines.map((undisturbed) => undisturbed.session());
            for (const set of [sessions, alone]) {
              for (const [i, session] of set.entries())
                await session.generate('xy'[i].repeat(70_000), greedy).result;
            }
            const kept = [];
            const texts = [];
            const waiting = [];
            for (const budget of [350_000, 4e6]) {
              await engine.setMemoryBudget(budget);
              waiting.push(await names());
              for (const [i, session] of sessions.entries()) {
                const { text, usage } = await session.generate(' more', greedy).result;
                kept.push(usage.cachedTokens >= 70_000);
                texts.push(text === (await alone[i].generate(' more', greedy).text()));
              }
            }
            for (const each of [engine, ...engines]) await each.dispose();
            return { kept, texts, waiting, left: await names(), isolated: crossOriginIsolated };
          },
          [server.url, tuning],
        );
        const all = [true, true, true, true];
        assert.deepEqual(found, {
          kept: all,
          texts: all,
          waiting: [2, 2],
          left: 0,
          isolated: isolation,
        });
      }),
  );
}

test('a strict content security policy', () =>
  inTab(
    browser,
    dist,
    {
      headers: {
        'Content-Security-Policy':
          "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src *",
      },
    },
    async ({ page }) => assert.equal((await load(page, server.url)).text, expected),
  ));

for (const isolation of [true, false]) {
  test(`a caller's fetch() serves the workers ${isolation ? 'with' : 'without'} isolation`, () =>
    inTab(browser, dist, { isolation }, async ({ page }) => {
      const { text, asked } = await page.evaluate(
        async ([url, tuning]) => {
          const asked = [];
          const { host } = new URL(url);
          const engine = await Engine.load(url.replace(host, 'models.invalid'), {
            memoryBudget: 700_000,
            tuning,
            fetch: (input, init) => {
              asked.push(new Headers(init.headers).get('range')?.slice(0, 6));
              return fetch(input.replace('models.invalid', host), init);
            },
          });
          const text = await engine.generate('hello', { maxTokens: 12, temperature: 0 }).text();
          await engine.downloaded;
          await engine.dispose();
          return { text, asked };
        },
        [server.url, tuning],
      );
      assert.equal(text, expected);
      assert.ok(asked.length > 2 && asked.every((range) => range === 'bytes='));
    }));
}

test('a Blob is read in slices', () =>
  inTab(browser, dist, {}, async ({ page }) => {
    const text = await page.evaluate(async (url) => {
      const blob = await (await fetch(url)).blob();
      const engine = await Engine.load(new File([blob], 'x.gguf'), { memoryBudget: 350_000 });
      const result = await engine.generate('hello', { maxTokens: 12, temperature: 0 }).text();
      await engine.dispose();
      return result;
    }, server.url);
    assert.equal(text, expected);
  }));

test('two tabs at once do not disturb each other', () =>
  withSlowServer((slow) =>
    inTab(browser, dist, {}, async ({ page, open }) => {
      const other = await open();
      const both = await Promise.all([load(page, slow.url), load(other, slow.url)]);
      assert.deepEqual(
        both.map(({ text }) => text),
        [expected, expected],
      );
      const { text, stats } = await load(other, slow.url);
      assert.equal(text, expected);
      assert.ok(stats.bytesFetched <= 65536);
    }),
  ));

test('a tab that found the cache locked takes it over when the other tab closes', async () => {
  let held = true; // the server holds the second half of the file back
  const half = Math.floor(bytes.length / 2);
  const isSecond = (range) => Number(/^bytes=(\d+)/.exec(range ?? '')?.[1] ?? 0) >= half;
  const halting = await faultyServer({ bytes, etag: '"1"' }, ({ headers }) =>
    held && isSecond(headers.range) ? 'stall' : null,
  );
  try {
    await inTab(browser, dist, {}, async ({ page, open }) => {
      const start = (tab) =>
        tab.evaluate(
          async ([url, options]) => {
            globalThis.engine = await Engine.load(url, options);
          },
          [halting.url, { memoryBudget: 700_000, tuning: { ...tuning, stallMs: 300 } }],
        );
      const second = await open();
      await start(page);
      await start(second);
      const left = await page.evaluate(() => engine.dispose().then(() => Engine.modelCache.size()));
      assert.ok(left < bytes.length, 'the first tab cached the whole file');
      held = false;
      const complete = await second.evaluate(async () => {
        for (let i = 0; i < 1000; i++) {
          const [model] = await Engine.modelCache.list();
          if (model?.complete) return true;
          await new Promise((later) => setTimeout(later, 100));
        }
        return false;
      });
      assert.ok(complete, 'the missing part was not cached');
      const told = await second.evaluate(() =>
        engine.generate('hello', { maxTokens: 12, temperature: 0 }).text(),
      );
      assert.equal(told, expected);
      await second.evaluate(() => engine.dispose());
      halting.state.ranges.length = 0;
      assert.equal((await load(second, halting.url)).text, expected);
      const asked = halting.state.ranges.reduce((sum, [first, end]) => sum + end + 1 - first, 0);
      assert.ok(asked <= 65536, `${asked} fetched again`);
    });
  } finally {
    await halting.close();
  }
});

test('deleting a model that is in use is an error', () =>
  inTab(browser, dist, {}, async ({ page }) => {
    const codes = await page.evaluate(async (url) => {
      const engine = await Engine.load(url, { memoryBudget: 700_000 });
      const busy = await Engine.modelCache.delete(url).catch((error) => error.code);
      await engine.dispose();
      return [busy, await Engine.modelCache.delete(url), (await Engine.modelCache.list()).length];
    }, server.url);
    assert.deepEqual(codes, ['CACHE_LOCKED', true, 0]);
  }));

test('a full quota falls back to the network with a warning', () =>
  inTab(browser, dist, {}, async ({ page, server: pages }) => {
    const cdp = await page.context().newCDPSession(page);
    await cdp.send('Storage.overrideQuotaForOrigin', { origin: pages.url, quotaSize: 400_000 });
    const { text, stored, warnings } = await load(page, server.url);
    assert.equal(text, expected);
    assert.equal(stored, 'QUOTA');
    assert.deepEqual(warnings, ['QUOTA']);
  }));

test('20 flipped bytes in the cache are detected, and only their chunks are fetched again', () =>
  inTab(browser, dist, {}, async ({ page }) => {
    await load(page, server.url);
    const next = random(11);
    const places = Array.from({ length: 20 }, () => Math.floor(next() * bytes.length));
    await page.evaluate(async (positions) => {
      const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('sluice-llm');
      for await (const entry of root.values()) {
        const handle = await entry.getFileHandle('data');
        const old = new Uint8Array(await (await handle.getFile()).arrayBuffer());
        const writer = await handle.createWritable({ keepExistingData: true });
        for (const position of positions) {
          await writer.write({ type: 'write', position, data: Uint8Array.of(old[position] ^ 16) });
        }
        await writer.close();
      }
    }, places);
    const { text, stats, warnings } = await load(page, server.url, { memoryBudget: 4e6 });
    const damaged = new Set(places.map((place) => Math.floor(place / kChunk)));
    assert.equal(text, expected);
    assert.ok(warnings.includes('CORRUPT'));
    assert.ok(stats.bytesFetched <= 65536 + damaged.size * kChunk, `${stats.bytesFetched} fetched`);
  }));

test('tabs killed at random moments of a download lose no cached chunk', () =>
  withSlowServer((slow) =>
    inTab(browser, dist, {}, async ({ open }) => {
      const next = random(4);
      const last = await open();
      const size = () => last.evaluate(() => Engine.modelCache.size());
      const rounds = extent(6, 50);
      let patience = 1;
      for (let i = 0; i < rounds || (i < 100 && (await size()) === 0); i++) {
        // Killed too early on a busy machine: wait longer.
        if (i % 10 === 9 && (await size()) === 0) patience *= 2;
        const doomed = await open();
        const options = { memoryBudget: 700_000, tuning };
        doomed
          .evaluate(([url, rest]) => void Engine.load(url, rest), [slow.url, options])
          .catch(() => {});
        await new Promise((ok) => setTimeout(ok, 60 + next() * 200 * patience));
        await doomed.close();
      }
      const stored = await size();
      slow.state.ranges.length = 0;
      const { text } = await load(last, slow.url);
      assert.equal(text, expected);
      const asked = slow.state.ranges.reduce((sum, [first, end]) => sum + end + 1 - first, 0);
      const limit = bytes.length - stored + 65536 + 1024;
      assert.ok(asked <= limit, `${asked} asked for, ${bytes.length - stored} were missing`);
      assert.ok(stored > 0, 'nothing was cached');
    }),
  ));

test('after aborts at random moments, the next load can use the cache at once', () =>
  withSlowServer((slow) =>
    inTab(browser, dist, {}, async ({ page }) => {
      const next = random(8);
      const delays = Array.from({ length: extent(4, 10) }, () => 100 + next() * 300);
      const names = await page.evaluate(
        async ([url, list, options]) => {
          const out = [];
          for (const delay of list) {
            const control = new AbortController();
            setTimeout(() => control.abort(), delay);
            const loading = Engine.load(url, { ...options, signal: control.signal });
            out.push(
              await loading.then(
                (engine) => engine.dispose().then(() => 'loaded'),
                (error) => error.name,
              ),
            );
          }
          return out;
        },
        [slow.url, delays, { memoryBudget: 700_000, tuning }],
      );
      assert.ok(
        names.every((name) => name === 'AbortError' || name === 'loaded') &&
          names.includes('AbortError'),
        names.join(),
      );
      const { text, warnings } = await load(page, slow.url);
      assert.deepEqual([text, warnings], [expected, []]);
      assert.equal((await load(page, slow.url, { cache: 'only' })).text, expected);
      assert.equal(
        await page.evaluate((url) => Engine.modelCache.delete(url), slow.url),
        true,
        'the entry is still locked',
      );
    }),
  ));

test('a crashed worker rejects everything pending with WORKER_LOST', () =>
  inTab(browser, dist, {}, async ({ page }) => {
    const codes = await page.evaluate(async (url) => {
      const engine = await Engine.load(url, { memoryBudget: 700_000 });
      const pending = [engine.generate([5, 666]), engine.generate('x')].map((g) => g.result);
      const settled = await Promise.allSettled([...pending]);
      const later = await engine.tokenize('x').catch((error) => error);
      await engine.dispose();
      return [...settled.map(({ reason }) => reason?.code), later.code];
    }, server.url);
    assert.deepEqual(codes, ['WORKER_LOST', 'WORKER_LOST', 'WORKER_LOST']);
  }));

test('losing any worker, at the start or later, ends the engine and all its workers', () =>
  inTab(browser, dist, {}, async ({ page }) => {
    const codes = await page.evaluate(async (url) => {
      const Plain = Worker;
      const workers = [];
      const ended = new Set();
      const startFrom = (scriptOf) => {
        workers.length = 0;
        ended.clear();
        globalThis.Worker = class extends Plain {
          constructor(script, options) {
            super(scriptOf(workers.length) ?? script, options);
            workers.push(this);
          }
          terminate() {
            ended.add(this);
            super.terminate();
          }
        };
      };
      const left = () => workers.filter((worker) => !ended.has(worker)).length;
      const code = (promise) =>
        promise.then(
          () => 'resolved',
          (error) => error.code,
        );
      const load = () => Engine.load(url, { memoryBudget: 700_000 });
      const out = [];
      startFrom((n) => (n === 1 ? '/dist/nothing.js' : undefined));
      out.push([await code(load()), left()]);
      startFrom((n) => {
        if (n === 1) throw new Error('refused');
      });
      out.push([await code(load()), left()]);
      startFrom(() => undefined);
      const engine = await load();
      const pending = code(engine.generate('x', { maxTokens: 1e5 }).result);
      workers.at(-1).dispatchEvent(new ErrorEvent('error', { message: 'boom' }));
      out.push([await pending, left()], [workers.length, await code(engine.tokenize('x'))]);
      return out;
    }, server.url);
    const unstarted = ['WORKER_LOAD', 0];
    assert.deepEqual(codes, [unstarted, unstarted, ['WORKER_LOST', 0], [2, 'WORKER_LOST']]);
  }));

test('the engine works inside a worker', () =>
  inTab(browser, dist, {}, async ({ page }) => {
    const text = await page.evaluate(async (url) => {
      const script = `
        const { Engine } = await import('${location.origin}/dist/index.js');
        const engine = await Engine.load('${url}', { memoryBudget: 700000 });
        postMessage(await engine.generate('hello', { maxTokens: 12, temperature: 0 }).text());`;
      const worker = new Worker(
        URL.createObjectURL(new Blob([script], { type: 'text/javascript' })),
        {
          type: 'module',
        },
      );
      return new Promise((resolve, reject) => {
        worker.onmessage = ({ data }) => resolve(data);
        worker.onerror = (event) => reject(new Error(event.message));
      });
    }, server.url);
    assert.equal(text, expected);
  }));
