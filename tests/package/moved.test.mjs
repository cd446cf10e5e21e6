// Bundles and development servers that separate the package's script from the files beside it: where
// these are found, and what the errors say.
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { build } from 'esbuild';
import { inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { launch } from '../web/chromium.mjs';
import { scratch } from './tarball.mjs';

const model = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');
const tell = `async (options) => {
  const engine = await Engine.load('/model.gguf', { contextLength: 128, ...options });
  const { choices } = await engine.chat.completions.create({
    messages: [{ role: 'user', content: 'A story.' }], max_tokens: 4 });
  await engine.dispose();
  return choices[0].finish_reason;
}`;

let folder;
let browser;
before(async () => {
  folder = scratch();
  writeFileSync(join(folder, 'index.html'), '<!doctype html><script src="/bundle.js"></script>');
  browser = await launch();
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

/** What `code` gives on a page of these mounts: its result, or the error's code and message. */
async function onPage(mounts, code) {
  const server = await serve([['/model.gguf', model], ...mounts, ['/', folder]]);
  const page = await browser.newPage();
  try {
    await page.goto(server.url);
    return await page.evaluate(
      `(${code})().catch(({ code, message }) => code + ': ' + message)`.replaceAll(
        'ORIGIN',
        server.url,
      ),
    );
  } finally {
    await page.close();
    await server.close();
  }
}

/** As Vite 7 does: scripts are elsewhere, in one of its directories. */
const moved = (to) => {
  const deps = join(folder, 'deps');
  mkdirSync(deps, { recursive: true });
  for (const name of ['index.js', 'templates.js']) cpSync(inRoot('dist', name), join(deps, name));
  const load = `async () => { const { Engine } = await import('${to}/index.js'); return (${tell})(); }`;
  return { mounts: [[`${to}/`, deps]], load };
};
for (const to of [
  '/node_modules/.vite/deps',
  '/base/node_modules/.vite/deps_temp_1a2b',
  '/node_modules/.cache/vite/client/deps',
  '/node_modules/.vite/vitest/0123abcd/deps',
])
  test(`the package is complete although its script is in ${to}`, async () => {
    const { mounts, load } = moved(to);
    const beside = to.replace(/node_modules.*/, 'node_modules/sluice-llm/dist/');
    assert.equal(await onPage([...mounts, [beside, inRoot('dist')]], load), 'length');
  });

test('where a moved script does not find the worker, the error names the option of Vite', async () => {
  const { mounts, load } = moved('/node_modules/.vite/deps');
  assert.match(
    await onPage(mounts, load),
    /^WORKER_LOAD: .*\/node_modules\/sluice-llm\/dist\/worker\.js: it answered 404; in Vite's settings add optimizeDeps: \{ exclude: \['sluice-llm'\] \}\.$/,
  );
});

test('a bundle that is no ES module is an error that says so', async () => {
  await build({
    stdin: {
      contents: `import { Engine } from ${JSON.stringify(inRoot('dist', 'index.js'))};
      window.tell = ${tell};`,
      resolveDir: folder,
    },
    bundle: true,
    format: 'iife',
    outfile: join(folder, 'bundle.js'),
    logLevel: 'error',
  });
  const dist = [['/dist/', inRoot('dist')]];
  assert.match(
    await onPage(dist, '() => tell()'),
    /^WORKER_LOAD: .*import\.meta\.url.*--format=esm.*workerUrl\.$/,
  );
  assert.match(
    await onPage(dist, "() => tell({ workerUrl: '/dist/worker.js' })"),
    /^MODULE_LOAD: chat\.wasm cannot be found .*--format=esm/,
  );
});
