// sluice-llm/inline, the single-file entry: on a page that hosts no other file, from another
// origin, and in an HTML file opened from disk with a model that the user picks.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { launch } from '../web/chromium.mjs';
import { scratch, storyInNode } from './tarball.mjs';

const model = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');
const entry = inRoot('dist', 'inline.js');
const policy =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src blob:; connect-src 'self'";
const use = (from) => `
import { Engine } from ${JSON.stringify(from)};
window.tell = async (source, options) => {
  const engine = await Engine.load(source, { contextLength: 256, ...options });
  const text = await engine.generate('Once upon a time', { maxTokens: 16, temperature: 0 }).text();
  const chat = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'A story.' }], max_tokens: 8 });
  const { threads, kernels } = engine.stats();
  await engine.dispose();
  return { text, threads, kernels, answered: chat.choices[0].message.content.length > 0 };
};`;

let folder;
let browser;
let expected;
before(async () => {
  folder = scratch();
  browser = await launch();
  expected = await storyInNode(model);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Runs `work` on a new page; if the page fails, reports its failed requests and errors. */
async function onPage(url, work) {
  const page = await browser.newPage();
  const said = [];
  page.on('console', (message) => message.type() === 'error' && said.push(message.text()));
  page.on('pageerror', (error) => said.push(String(error)));
  try {
    await page.goto(url);
    await page
      .waitForFunction(() => window.tell, null, { timeout: 240_000 })
      .catch(() => assert.fail(said.join('\n')));
    return await work(page);
  } finally {
    await page.close();
  }
}

test('a policy that forbids the worker is an error that says what to allow', async () => {
  const server = await serve([['/inline.js', entry]], {
    onRequest: (request, response) => {
      response.setHeader(
        'Content-Security-Policy',
        policy.replace('worker-src blob:', "worker-src 'self'"),
      );
      if (request.url !== '/') return false;
      response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html>');
      return true;
    },
  });
  const page = await browser.newPage();
  try {
    await page.goto(server.url);
    const told = await page.evaluate(async () => {
      const { Engine } = await import('/inline.js');
      return Engine.load(new Blob(['x'])).catch(({ code, message }) => ({ code, message }));
    });
    assert.equal(told.code, 'WORKER_LOAD');
    assert.match(
      told.message,
      /from blob:.*: the Content-Security-Policy forbids it; allow it in worker-src, with blob:\.$/,
    );
  } finally {
    await page.close();
    await server.close();
  }
});

test('a page needs no other script', async () => {
  const requested = [];
  for (const isolation of [true, false]) {
    const server = await serve(
      [
        ['/model.gguf', model],
        ['/inline.js', entry],
      ],
      {
        isolation,
        onRequest: (request, response) => {
          requested.push(request.url);
          response.setHeader('Content-Security-Policy', policy);
          const answers = {
            '/': ['text/html', '<!doctype html><script type="module" src="/main.js"></script>'],
            '/main.js': ['text/javascript', use('/inline.js')],
          };
          const answer = answers[request.url];
          if (!answer) return false;
          response.writeHead(200, { 'Content-Type': answer[0] }).end(answer[1]);
          return true;
        },
      },
    );
    try {
      await onPage(server.url, async (page) => {
        for (const [kernels, table] of [
          ['', /^wasmrelaxed/],
          ['wasm128', /^wasm128$/],
        ]) {
          const told = await page.evaluate((options) => window.tell('/model.gguf', options), {
            threads: 2,
            kernels,
          });
          assert.match(told.kernels, table);
          assert.deepEqual(
            [told.text, told.threads, told.answered],
            [expected, isolation ? 2 : 1, true],
          );
        }
      });
    } finally {
      await server.close();
    }
  }
  const files = new Set(requested.filter((url) => url !== '/favicon.ico'));
  assert.deepEqual([...files].sort(), ['/', '/inline.js', '/main.js', '/model.gguf']);
});

test("QSF works; device 'auto' falls back to the CPU, 'webgpu' is an error", async () => {
  const qsf = inRoot('tests', 'data', 'qsf', 'zstd.qsf');
  const server = await serve(
    [
      ['/model.qsf', qsf],
      ['/model.gguf', model],
      ['/inline.js', entry],
    ],
    {
      onRequest: (request, response) =>
        request.url === '/' &&
        !!response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html>'),
    },
  );
  const page = await browser.newPage();
  try {
    await page.goto(server.url);
    const told = await page.evaluate(async () => {
      const { Engine } = await import('/inline.js');
      const engine = await Engine.load('/model.qsf', { device: 'auto', cache: 'none' });
      const logits = Array.from(await engine.logits([1, 17, 29]));
      await engine.dispose();
      const refused = await Engine.load('/model.gguf', { device: 'webgpu' }).catch(
        ({ code, message }) => ({ code, message }),
      );
      return { logits, refused };
    });
    assert.ok(told.logits.length > 0 && told.logits.every(Number.isFinite));
    assert.equal(told.refused.code, 'NOT_SUPPORTED');
    assert.match(told.refused.message, /inline/);
  } finally {
    await page.close();
    await server.close();
  }
});

test('the entry works from another origin', async () => {
  const cors = (_request, response) => {
    response.setHeader('Access-Control-Allow-Origin', '*');
    return false;
  };
  const cdn = await serve([['/', inRoot('dist')]], { onRequest: cors });
  mkdirSync(join(folder, 'cdn'));
  writeFileSync(
    join(folder, 'cdn', 'index.html'),
    '<!doctype html><script type="module" src="/main.js"></script>',
  );
  writeFileSync(join(folder, 'cdn', 'main.js'), use(`${cdn.url}/inline.js`));
  const page = await serve(
    [
      ['/model.gguf', model],
      ['/', join(folder, 'cdn')],
    ],
    {},
  );
  try {
    const told = await onPage(page.url, (tab) =>
      tab.evaluate(() => window.tell('/model.gguf', {})),
    );
    assert.deepEqual([told.text, told.answered], [expected, true]);
  } finally {
    await page.close();
    await cdn.close();
  }
});

test('the entry works in an HTML file on disk, with a model that the user picks', async () => {
  const bundle = await build({
    stdin: { contents: use(entry), resolveDir: folder },
    bundle: true,
    format: 'esm',
    write: false,
    logLevel: 'error',
  });
  const script = bundle.outputFiles[0].text.replaceAll('</script', '<\\/script');
  const file = join(folder, 'page.html');
  writeFileSync(
    file,
    `<!doctype html><meta charset="utf-8"><input type="file"><script type="module">${script}</script>`,
  );
  const told = await onPage(pathToFileURL(file).href, async (page) => {
    await page.setInputFiles('input', model);
    return page.evaluate(() => window.tell(document.querySelector('input').files[0], {}));
  });
  assert.deepEqual([told.text, told.answered], [expected, true]);
});

test('the file is at most 10 % larger than its parts', () => {
  const sizes = [
    'index.js',
    'worker.js',
    'templates.js',
    'chat.wasm',
    'hosts.js',
    'pictures.js',
    'sources.js',
    'qsf.js',
    'safetensors.js',
    'safetensors.wasm',
    'engine.relaxed-full.wasm',
    'engine.relaxed16-full.wasm',
    'engine.simd128-full.wasm',
  ].map((name) => gzipSync(readFileSync(inRoot('dist', name))).length);
  const parts = sizes.reduce((sum, size) => sum + size, 0);
  const whole = gzipSync(readFileSync(entry)).length;
  assert.ok(whole < 1.1 * parts, `${whole} bytes gzipped, its parts have ${parts}`);
});
