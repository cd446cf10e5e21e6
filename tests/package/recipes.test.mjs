// docs/recipes.md: every TypeScript block is type-checked against the package's declarations. Six
// recipes run: the plain page, the worker, semantic search, Node, the service worker, and local
// model or server.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { build } from 'esbuild';
import { inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { launch } from '../web/chromium.mjs';
import { consumerFolder, typecheck, withOtherPackages } from './typecheck.mjs';

const text = readFileSync(inRoot('docs', 'recipes.md'), 'utf8');
const recipes = {};
for (const section of text.split(/^## /m).slice(1)) {
  const title = section.slice(0, section.indexOf('\n'));
  recipes[title] = [...section.matchAll(/^```(\w*)\n(.*?)^```$/gms)].map(([, language, code]) => ({
    language,
    code,
  }));
}
const recipe = (title, language) =>
  recipes[title].find((block) => block.language === language).code;
const model = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');

let folder;
let browser;
before(async () => {
  folder = consumerFolder('recipes');
  browser = await launch();
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

async function withPage(options, work) {
  const server = await serve(
    [
      ['/model.gguf', model],
      ['/node_modules/sluice-llm/dist/', inRoot('dist')],
      ['/', folder],
    ],
    options,
  );
  const page = await (await browser.newContext()).newPage();
  page.on('pageerror', (error) => console.error(`page: ${error.message}`));
  try {
    return await work(page, server.url);
  } finally {
    await page.context().close();
    await server.close();
  }
}

test('every TypeScript recipe satisfies the compiler', () => {
  const sources = {
    // The frameworks are not installed; only the use of this package is checked.
    'shims.d.ts': `
    declare module 'react' { export const useEffect: any; export function useRef<T>(value: T | undefined): { current: T | undefined }; export function useState<T>(value: T): [T, any]; }
    declare module 'react/jsx-runtime' { export const jsx: any; export const jsxs: any; }
    declare module 'vue' { export const onUnmounted: (run: () => unknown) => void; export function ref<T>(value: T): { value: T }; }
    declare namespace JSX { interface IntrinsicElements { [name: string]: any } }
  `,
  };
  for (const [title, blocks] of Object.entries(recipes)) {
    for (const [i, { language, code }] of blocks.entries()) {
      if (/^tsx?$/.test(language)) sources[`${title.replace(/\W+/g, '-')}-${i}.${language}`] = code;
    }
  }
  assert.ok(Object.keys(sources).length > 7, `${Object.keys(sources)}`);
  const node = ['--types', 'node', '--typeRoots', inRoot('node_modules', '@types')];
  const options = [...withOtherPackages, ...node, '--jsx', 'react-jsx'];
  assert.equal(typecheck(folder, sources, options), '');
});

test('the plain HTML page generates text', async () => {
  writeFileSync(join(folder, 'index.html'), recipe('Plain HTML page', 'html'));
  await withPage({}, async (page, url) => {
    await page.goto(url);
    await page.waitForSelector('body[data-done]', { timeout: 240_000 });
    assert.ok((await page.textContent('output')).length > 40);
  });
});

test('the engine generates text inside a worker of the page', async () => {
  const { outputFiles } = await build({
    stdin: { contents: recipe('Inside your own worker', 'ts'), loader: 'ts' },
    format: 'esm',
    write: false,
  });
  const script = outputFiles[0].text.replace(
    '"sluice-llm"',
    '"/node_modules/sluice-llm/dist/index.js"',
  );
  writeFileSync(join(folder, 'own-worker.js'), script);
  writeFileSync(join(folder, 'empty.html'), '<!doctype html><title>empty</title>');
  await withPage({}, async (page, url) => {
    await page.goto(`${url}/empty.html`);
    const told = await page.evaluate(
      () =>
        new Promise((resolve, reject) => {
          const worker = new Worker('/own-worker.js', { type: 'module' });
          let story = '';
          worker.onmessage = ({ data }) => (data === null ? resolve(story) : (story += data));
          worker.onerror = (event) => reject(new Error(event.message));
          worker.postMessage({ model: '/model.gguf', prompt: 'Once upon a time' });
        }),
    );
    assert.ok(told.length > 20, told);
  });
});

test('semantic search finds notes and embeds each one once', async () => {
  const { outputFiles } = await build({
    stdin: { contents: recipe('Semantic search with embeddings', 'ts'), loader: 'ts' },
    format: 'esm',
    write: false,
  });
  writeFileSync(
    join(folder, 'notes.js'),
    outputFiles[0].text.replace('"sluice-llm"', '"/node_modules/sluice-llm/dist/index.js"'),
  );
  writeFileSync(join(folder, 'empty.html'), '<!doctype html><title>empty</title>');
  await withPage({}, async (page, url) => {
    await page.goto(`${url}/empty.html`);
    const told = await page.evaluate(async () => {
      const { openNotes } = await import('/notes.js');
      const texts = {
        bear: 'The bear slept in the snow.',
        boat: 'A boat sailed over the sea.',
        bread: 'They baked bread.',
      };
      const out = [];
      for (const change of [{}, {}, { boat: 'A ship sailed over the sea.' }]) {
        const notes = await openNotes('/model.gguf');
        out.push(await notes.keep(Object.assign(texts, change)));
        out.push(await notes.search(texts.boat, 2));
        await notes.close();
      }
      return out;
    });
    const [first, found, again, same, changed, other] = told;
    assert.deepEqual([first, again, changed], [3, 0, 1]);
    assert.equal(found[0].id, 'boat');
    assert.ok(Math.abs(found[0].score - 1) < 1e-3, JSON.stringify(found));
    assert.deepEqual(same, found);
    assert.equal(other[0].text, 'A ship sailed over the sea.');
    assert.equal(other.length, 2);
  });
});

test('the Node recipe generates text', async () => {
  await build({
    stdin: { contents: recipe('Node', 'ts'), loader: 'ts' },
    format: 'esm',
    outfile: join(folder, 'node.mjs'),
  });
  const run = spawnSync(process.execPath, ['node.mjs', model], {
    cwd: folder,
    encoding: 'utf8',
    timeout: 240_000,
  });
  assert.equal(run.status, 0, run.stderr);
  assert.ok(run.stdout.trim().length > 10, run.stdout);
});

test('a service worker adds the isolation headers but cannot run the engine', async () => {
  writeFileSync(join(folder, 'sw.js'), recipe('Service workers', 'js'));
  writeFileSync(
    join(folder, 'sw-engine.js'),
    `
    import { Engine } from '/node_modules/sluice-llm/dist/index.js';
    self.addEventListener('message', async ({ source }) => {
      source.postMessage(await Engine.load('/model.gguf').then(() => 'loaded', (error) => error.code));
    });`,
  );
  writeFileSync(join(folder, 'empty.html'), '<!doctype html><title>empty</title>');
  await withPage({ isolation: false }, async (page, url) => {
    await page.goto(`${url}/empty.html`);
    assert.equal(await page.evaluate(() => crossOriginIsolated), false);
    const code = await page.evaluate(async () => {
      const { installing, active } = await navigator.serviceWorker.register('/sw-engine.js', {
        type: 'module',
        scope: '/elsewhere/',
      });
      const answer = new Promise(
        (resolve) => (navigator.serviceWorker.onmessage = ({ data }) => resolve(data)),
      );
      (installing ?? active).postMessage('load');
      return answer;
    });
    assert.equal(code, 'NOT_SUPPORTED');
    await page.evaluate(async () => {
      await navigator.serviceWorker.register('/sw.js');
      await navigator.serviceWorker.ready;
    });
    await page.waitForFunction(() => navigator.serviceWorker.controller);
    await page.reload();
    assert.equal(await page.evaluate(() => crossOriginIsolated), true);
    const threads = await page.evaluate(async () => {
      const { Engine } = await import('/node_modules/sluice-llm/dist/index.js');
      const engine = await Engine.load('/model.gguf', { contextLength: 64, threads: 2 });
      await engine.generate('Once', { maxTokens: 2 }).text();
      const { threads: used } = engine.stats();
      await engine.dispose();
      return used;
    });
    assert.equal(threads, 2);
  });
});

test('the local model is used, or else the server', async () => {
  const file = join(folder, 'where.mjs');
  const main = `${recipe('Local model or server', 'ts')}
    const [given] = process.argv.slice(2).map((text) => JSON.parse(text));
    let text = '';
    await answer(given, 'Tell me a story about a fox.', (more) => (text += more));
    console.log(text.length > 40, (await openChat(given)) instanceof OpenAI.Chat.Completions ? 'server' : 'device');
    process.exit();`; // the recipe keeps its engines, as a page does
  await build({
    stdin: { contents: main, loader: 'ts', resolveDir: folder },
    bundle: true,
    platform: 'node',
    format: 'esm',
    outfile: file,
    external: ['sluice-llm'],
  });
  const server = spawn(
    process.execPath,
    [
      inRoot('dist', 'cli.js'),
      'serve',
      model,
      '--port',
      '0',
      '--json',
      '--threads',
      '1',
      '--quiet',
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  try {
    const [line] = await once(server.stdout.setEncoding('utf8'), 'data');
    const at = {
      server: { baseURL: `${JSON.parse(line).url}/v1`, apiKey: 'none', model: 'tales' },
    };
    for (const [where, who] of [
      [{ model }, 'device'],
      [{ model, minTokensPerSecond: 1e9 }, 'server'],
      [{ model: inRoot('package.json') }, 'server'],
    ]) {
      const { stdout, stderr } = spawnSync(
        process.execPath,
        [file, JSON.stringify({ ...where, ...at })],
        { encoding: 'utf8' },
      );
      assert.equal(stdout, `true ${who}\n`, stderr);
    }
  } finally {
    server.kill();
    await once(server, 'exit');
  }
});
