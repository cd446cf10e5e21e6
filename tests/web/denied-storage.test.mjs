// Pages without the storage or the workers that others have, in Chromium: sandboxed frames, denied
// storage, and private file systems without createWritable().
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../../web/scripts/serve.mjs';
import { crossOrigin, inTab, launch } from './chromium.mjs';
import { buildFakePackage, fakeModel, root } from './helpers.mjs';

const dist = await buildFakePackage({ name: 'denied' });
writeFileSync(join(dist, 'model.gguf'), fakeModel());
const mounts = [['/real/', join(root, 'dist')]];
let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** In the page: code and message of what each call rejects with. */
const inPage = async (address) => {
  const { Engine, SluiceError } = await import(`${address}/dist/index.js`);
  const warnings = [];
  const onProgress = (event) => event.phase === 'warning' && warnings.push(event.code);
  const engine = await Engine.load(`${address}/dist/model.gguf`, { onProgress });
  const text = await engine.generate('hello', { maxTokens: 12, temperature: 0 }).text();
  await engine.dispose();
  const calls = {
    list: () => Engine.modelCache.list(),
    size: () => Engine.modelCache.size(),
    delete: () => Engine.modelCache.delete('/model.gguf'),
    evict: () => Engine.modelCache.evictOldest(0),
    persist: () => Engine.modelCache.persist(),
    persisted: () => Engine.modelCache.persisted(),
  };
  const results = {};
  for (const [name, call] of Object.entries(calls))
    results[name] = await call().catch((error) =>
      error instanceof SluiceError ? error.code : String(error),
    );
  return { text, warnings, results };
};

const denied = {
  list: 'NOT_SUPPORTED',
  size: 'NOT_SUPPORTED',
  delete: 'NOT_SUPPORTED',
  evict: 'NOT_SUPPORTED',
  persist: false,
  persisted: false,
};

test('a sandboxed frame loads a model, and has no cache', async () => {
  const files = await serve([['/dist/', dist]], { isolation: false, ...crossOrigin });
  const frame = `<iframe sandbox="allow-scripts" src="/frame.html"></iframe>`;
  const pages = { '/': frame, '/frame.html': '' };
  const host = await serve([], {
    isolation: false,
    onRequest: (request, response) => {
      if (!(request.url in pages)) return false;
      response.writeHead(200, { 'Content-Type': 'text/html' });
      return (response.end(`<!doctype html>${pages[request.url]}`), true);
    },
  });
  const page = await browser.newPage();
  try {
    await page.goto(host.url);
    const inner = page.frames()[1];
    await inner.waitForLoadState();
    assert.equal(await inner.evaluate(() => globalThis.origin), 'null');
    const { text, warnings, results } = await inner.evaluate(inPage, files.url);
    assert.match(text, /^[a-z]{12}$/);
    assert.deepEqual([warnings, results], [['NOT_SUPPORTED'], denied]);
  } finally {
    await page.close();
    await Promise.all([host.close(), files.close()]);
  }
});

test('denied storage is NOT_SUPPORTED', () =>
  inTab(browser, dist, { mounts }, async ({ page, server }) => {
    await page.evaluate(() => {
      StorageManager.prototype.getDirectory = async () => {
        throw new DOMException('Storage is blocked.', 'SecurityError');
      };
    });
    const { text, results } = await page.evaluate(inPage, server.url);
    assert.match(text, /^[a-z]{12}$/);
    const { persist: _, persisted: __, ...calls } = denied;
    assert.deepEqual({ ...results, ...calls }, results);
    const error = await page.evaluate(async () => {
      const { SavedSessions } = await import('/real/sessions.js');
      return SavedSessions.open().catch(({ name, code, message }) => ({ name, code, message }));
    });
    assert.equal(`${error.name} ${error.code}`, 'SluiceError NOT_SUPPORTED');
    assert.match(error.message, /Storage is blocked/);
  }));

test('sessions are saved without createWritable(), as in Safari before 26', () =>
  inTab(browser, dist, { mounts }, async ({ page }) => {
    const { list, restored } = await page.evaluate(async () => {
      delete FileSystemFileHandle.prototype.createWritable;
      const { SavedSessions } = await import('/real/sessions.js');
      const saved = await SavedSessions.open();
      const engine = (tokens) => ({
        saveState: async () => ({ tokens, state: Uint8Array.of(1, 2, 3) }),
      });
      await saved.save('a', engine(Int32Array.of(5, 6)));
      await saved.save('a', engine(Int32Array.of(7)));
      await saved.save('b', engine(Int32Array.of(8)));
      let restored;
      await saved.restore('a', { restoreState: async (given) => void (restored = given) });
      const list = (await saved.list()).map(({ name, tokens, used }) => [name, tokens, used > 0]);
      const { tokens, state } = restored;
      return { list, restored: [[...tokens], [...state]] };
    });
    assert.deepEqual(restored, [[7], [1, 2, 3]]);
    assert.deepEqual(list, [
      ['a', 1, true],
      ['b', 1, true],
    ]);
  }));
