// The packed package in the fresh projects of newcomer.mjs (bundlers, frameworks, runtimes), with
// Rollup, and from another origin. Pages are opened in Chromium and must generate the sample model's
// story. Skipped if the npm registry does not answer. Next.js takes two minutes of it: an install of
// 120 MB, which npm caches, and its build.
import assert from 'node:assert/strict';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { projects, Skipped, stepLine, workshop } from './newcomer.mjs';
import { online, project, run } from './tarball.mjs';

const skip = online() ? false : 'the npm registry does not answer';
const model = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');
const policy =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";

const source = (from) => `
import { Engine } from '${from}';
async function main() {
  const engine = await Engine.load('/model.gguf', { memoryBudget: 64 * 2 ** 20, contextLength: 256, threads: 2 });
  const text = await engine.generate('Once upon a time', { maxTokens: 16, temperature: 0 }).text();
  const chat = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'A story.' }], max_tokens: 8, temperature: 0 });
  const { threads } = engine.stats();
  await engine.dispose();
  return { text, threads, answer: chat.choices[0].message.content };
}
main().then((result) => { window.result = result; }, (error) => { window.result = { error: String(error?.stack ?? error) }; });
`;
const html = (script) =>
  `<!doctype html><title>test</title><script type="module" src="${script}"></script>`;

let shop;
let folder;
let tarball;
let browser;
let expected;

before(async () => {
  if (skip) return;
  shop = workshop();
  ({ folder, tarball } = shop);
  browser = await shop.context.browser();
  expected = await shop.context.expected();
});
after(() => shop?.close());

/** Serves the directory `built`, opens it and returns the result of main(). */
async function open(built, { isolation = true, csp = policy, path = '/' } = {}) {
  const server = await serve(
    [
      ['/model.gguf', model],
      ['/', built],
    ],
    {
      isolation,
      onRequest: (request, response) => {
        if (csp) response.setHeader('Content-Security-Policy', csp);
        if (request.url !== '/favicon.ico') return false;
        response.writeHead(204).end();
        return true;
      },
    },
  );
  const page = await browser.newPage();
  const said = [];
  page.on('console', (message) => message.type() === 'error' && said.push(message.text()));
  page.on('pageerror', (error) => said.push(String(error)));
  try {
    await page.goto(server.url + path);
    await page.waitForFunction(() => window.result, null, { timeout: 240_000 }).catch(() => {});
    return { ...(await page.evaluate(() => window.result)), said };
  } finally {
    await page.close();
    await server.close();
  }
}

async function tells(built, options) {
  const { text, answer, threads, error, said } = await open(built, options);
  assert.equal(error, undefined, `${error}\n${said?.join('\n')}`);
  assert.equal(text, expected, said.join('\n'));
  assert.ok(answer.length > 0);
  return threads;
}

for (const [name, { short }] of Object.entries(projects)) {
  test(`a newcomer's project: ${name}`, { skip: skip || (!short && longOnly) }, async (t) => {
    try {
      await shop.run(name, (step, seconds) => t.diagnostic(stepLine(step, seconds).trim()));
    } catch (error) {
      if (!(error instanceof Skipped)) throw error;
      t.skip(error.message);
    }
  });
}

// Rollup leaves `new URL('./worker.js', import.meta.url)` unchanged, so these files go beside the
// bundle.
const assets = [
  'worker.js',
  'engine.simd128.wasm',
  'engine.relaxed.wasm',
  'engine.relaxed16.wasm',
  'engine.simd128-full.wasm',
  'engine.relaxed-full.wasm',
  'engine.relaxed16-full.wasm',
  'chat.wasm',
];
function copyAssets(at, out) {
  for (const name of assets) run(at, 'cp', [join('node_modules', 'sluice-llm', 'dist', name), out]);
  writeFileSync(join(at, out, 'index.html'), html('/main.js'));
}

test(
  'Rollup, with the worker and the wasm beside the bundle',
  { skip: skip || longOnly },
  async () => {
    const at = project(join(folder, 'rollup'), { 'main.js': source('sluice-llm') }, [
      tarball,
      'rollup@4.68.7',
      '@rollup/plugin-node-resolve@16.0.3',
    ]);
    run(at, 'npx', [
      'rollup',
      'main.js',
      '-d',
      'out',
      '-f',
      'es',
      '-p',
      'node-resolve={browser:true}',
    ]);
    copyAssets(at, 'out');
    await tells(join(at, 'out'));
  },
);

test('a page that imports the package from another origin, like a CDN', { skip }, async () => {
  const at = join(folder, 'cdn');
  mkdirSync(at);
  symlinkSync(inRoot('dist'), join(at, 'package'));
  const cdn = await serve([['/', at]], {
    onRequest: (_request, response) => {
      response.setHeader('Access-Control-Allow-Origin', '*');
      return false;
    },
  });
  try {
    const page = join(folder, 'cdn-page');
    mkdirSync(page);
    writeFileSync(join(page, 'index.html'), html('/main.js'));
    writeFileSync(join(page, 'main.js'), source(`${cdn.url}/package/index.js`));
    for (const isolation of [true, false]) await tells(page, { csp: null, isolation });
  } finally {
    await cdn.close();
  }
});

test('importing the package on a server has no effect and does not fail', { skip }, async () => {
  const files = {
    'main.mjs': "import { Engine } from 'sluice-llm'; console.log(typeof Engine.load);",
  };
  const at = project(join(folder, 'server'), files, [tarball]);
  assert.equal(run(at, 'node', ['main.mjs']).trim(), 'function');
  const browserBuild =
    "console.log(typeof (await import('./node_modules/sluice-llm/dist/index.js')).Engine.load);";
  assert.equal(run(at, 'node', ['--input-type=module', '-e', browserBuild]).trim(), 'function');
});
