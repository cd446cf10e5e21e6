// The package over the real engine in Firefox and WebKit. Debian's WebKit has no shared memory, no
// OPFS and no relaxed SIMD, so it tests the fallbacks.
import assert from 'node:assert/strict';
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { buildSite } from '../../examples/browser/build.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { all, longOnly } from '../extent.mjs';
import { crossOrigin, servePages } from './chromium.mjs';
import { launchFirefox, launchWebKit, missing } from './drivers.mjs';
import { root } from './helpers.mjs';
import { check, sample, story, tell } from './story.mjs';

const dist = join(root, 'dist');
const models = join(root, 'examples', 'models');
const memoryBudget = Math.floor(statSync(sample).size * 0.8);
const limits = { timeout: 300_000 }; // a test that hangs fails by name
const long = { ...limits, skip: longOnly };
const site = join(root, 'build', 'web-tests', 'site-for-others');
const shots = join(root, 'build', 'screenshots');

before(async () => {
  if (all) await buildSite({ site });
  mkdirSync(shots, { recursive: true });
});

/** Opens a page of its own origin with the package; `work` gets it and the server of the models. */
async function inPage(browser, isolation, work) {
  const pages = await servePages(dist, { isolation });
  const files = await serve([['/', models]], crossOrigin);
  let page;
  try {
    page = await browser.open(`${pages.url}/`);
    await page.evaluate(`async () => {
      Object.assign(window, await import('/dist/index.js'));
      window.tell = ${tell};
      window.workers = [];
      window.Worker = class extends Worker {
        constructor(...options) {
          super(...options);
          workers.push(this);
        }
      };
    }`);
    const run = (args) =>
      page.evaluate((a) => window.tell(a), { ...story, maxTokens: story.tokens.length, ...args });
    return await work({ page, files, run, url: `${files.url}/sluice-tales-F16.gguf` });
  } finally {
    await pages.close(); // first, since an open server keeps the process alive
    await files.close();
    await page?.close();
  }
}

const capabilities = () => ({
  isolated: crossOriginIsolated,
  threads: typeof SharedArrayBuffer === 'function' && navigator.hardwareConcurrency > 1,
  store: typeof navigator.storage?.getDirectory === 'function',
});

/** Waits until the page is isolated, if it will be: without the headers it reloads itself once. */
async function isolated(page) {
  const is = () =>
    page
      .evaluate(
        () =>
          crossOriginIsolated ||
          !isSecureContext ||
          !navigator.serviceWorker ||
          performance.getEntriesByType('navigation')[0]?.type === 'reload',
      )
      .catch(() => false); // it was about to reload
  for (let i = 0; i < 100 && !(await is()); i++) await new Promise((ok) => setTimeout(ok, 200));
}

/** In the page: one click loads the sample model; asks for a story and waits for its end. */
async function useThePage() {
  const by = (id) => document.getElementById(id);
  const until = async (what, test) => {
    for (let i = 0; !test(); i++) {
      if (i === 1200) throw new Error(`${what}: ${by('problem').textContent}`);
      await new Promise((ok) => setTimeout(ok, 100));
    }
  };
  await until('starting', () => !by('load').disabled);
  document.querySelector('[data-sample]').click();
  await until('loading', () => document.body.classList.contains('loaded') && !by('send').disabled);
  by('prompt').value = 'Tell me a story about a dog and a boat.';
  by('prompt').dispatchEvent(new Event('input', { bubbles: true }));
  by('send').click();
  await until('answering', () => document.querySelector('.note:not(:empty)'));
  by('settings-open').click();
  await until('opening the settings', () => by('settings').matches(':modal'));
  by('schema').value = '{';
  by('schema').dispatchEvent(new Event('input', { bubbles: true }));
  const wrong = by('schema-wrong').textContent;
  by('settings-close').click();
  await until('closing the settings', () => !by('settings').open);
  return {
    wrong,
    budget: by('budget-value').textContent,
    suggestions: document.querySelectorAll('#find-list .pick').length,
    answer: document.querySelector('main').textContent,
    problem: by('problem').textContent.trim(),
    width: document.documentElement.scrollWidth,
    room: document.documentElement.clientWidth,
  };
}

for (const [name, launch] of [
  ['firefox', launchFirefox],
  ['webkit', launchWebKit],
]) {
  describe(name, { skip: missing[name] }, () => {
    let browser;
    before(async () => (browser = await launch()), limits);
    after(() => browser?.close());

    for (const isolation of [true, false]) {
      test(
        `the sample model ${isolation ? 'with' : 'without'} isolation: resident, streamed, from a Blob`,
        isolation ? limits : long,
        () =>
          inPage(browser, isolation, async ({ page, run, url }) => {
            const has = await page.evaluate(capabilities);
            assert.equal(has.isolated, isolation);
            assert.ok(has.store || name === 'webkit', `${name} has a file store`);
            for (const [label, extra] of Object.entries({
              'resident, first load': { options: { contextLength: 128 } },
              'streamed, second load': { options: { memoryBudget, contextLength: 128 } },
              'streamed from the network': {
                options: { memoryBudget, contextLength: 128, cache: 'none' },
              },
              'a Blob': { blob: true, options: { memoryBudget, contextLength: 128 } },
              'plain SIMD': { options: { contextLength: 128, kernels: 'wasm128' } },
            })) {
              const told = await run({ source: url, ...extra });
              check(told, story, label);
              if (label.includes('second') && has.store)
                assert.ok(told.stats.bytesFetched <= 65536, label);
              const { threads } = told.stats;
              assert.equal(threads > 1, isolation && has.threads, label);
              const started = await page.evaluate(() => workers.splice(0).length);
              assert.equal(
                started,
                threads > 1 ? threads + 1 : 1,
                `${label}: the engine, its I/O and its threads`,
              );
            }
          }),
      );
    }

    test('a cached model works offline; without a cache it is an error', long, () =>
      inPage(browser, true, async ({ page, files, run, url }) => {
        const { store } = await page.evaluate(capabilities);
        check(await run({ source: url, options: { contextLength: 128 } }), story, 'online');
        await files.close();
        const offline = run({
          source: url,
          options: { contextLength: 128, tuning: { retryMs: 1, retryMaxMs: 5 } },
        });
        if (store) check(await offline, story, 'offline');
        else await assert.rejects(offline, /NETWORK/);
      }),
    );

    test('chat, abort and break; a wrong file is an error that names it', long, () =>
      inPage(browser, true, async ({ page, files, url }) => {
        const seen = await page.evaluate(
          async ([source, base]) => {
            const code = (promise) =>
              promise.then(
                () => 'resolved',
                (e) => (e.name === 'SluiceError' ? e.code : e.name),
              );
            const engine = await Engine.load(source, { contextLength: 256 });
            const chat = await engine.chat.completions.create({
              messages: [{ role: 'user', content: 'Tell me a story about a dog and a boat.' }],
              max_tokens: 200,
              temperature: 0,
            });
            const stop = new AbortController();
            const aborted = code(
              engine.generate('Once upon a time', { maxTokens: 400, signal: stop.signal }).result,
            );
            stop.abort();
            let pieces = 0;
            for await (const piece of engine.generate('Once upon a time', { maxTokens: 400 })) {
              pieces += piece.text.length > 0;
              if (pieces === 3) break;
            }
            const out = {
              answer: chat.choices[0].message.content,
              finish: chat.choices[0].finish_reason,
              aborted: await aborted,
              pieces,
              html: await code(Engine.load(`${base}/README.md`)),
              absent: await code(Engine.load(`${base}/none.gguf`)),
              small: await code(Engine.load(source, { memoryBudget: 300_000 })),
            };
            await engine.dispose();
            out.after = await code(engine.generate('x').result);
            return out;
          },
          [url, files.url],
        );
        assert.match(seen.answer, /dog/);
        assert.match(seen.answer, /boat/);
        const { answer: _, ...rest } = seen;
        assert.deepEqual(rest, {
          finish: 'stop',
          aborted: 'AbortError',
          pieces: 3,
          html: 'NOT_GGUF',
          absent: 'HTTP_STATUS',
          small: 'BUDGET_TOO_SMALL',
          after: 'DISPOSED',
        });
      }),
    );

    test('the example page loads the sample model and answers', long, async () => {
      const server = await serve([
        ['/models/', models],
        ['/', site],
      ]);
      let page;
      try {
        page = await browser.open(`${server.url}/`);
        await isolated(page);
        const told = await page.evaluate(useThePage);
        writeFileSync(join(shots, `${name}.png`), await page.png());
        assert.match(told.answer, /boat/);
        assert.equal(told.problem, '');
        assert.match(told.wrong, /^This is not a JSON schema/);
        assert.match(told.budget, /^automatic, up to 5\d\d MB$/);
        assert.ok(told.suggestions > 3);
        assert.ok(told.width <= told.room, 'scrolls sideways');
      } finally {
        await server.close();
        await page?.close();
      }
    });
  });
}
