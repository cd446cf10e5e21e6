// The package in a Node process: when the process ends, which flags it may be started with, and what
// the stack traces of errors show.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { all, extent } from '../extent.mjs';

const entry = inRoot('dist', 'node.js');
const model = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');
const folder = mkdtempSync(join(tmpdir(), 'sluice-process-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const load = `import { Engine } from ${JSON.stringify(entry)};
const model = ${JSON.stringify(model)};
const engine = await Engine.load(model, { contextLength: 256, threads: 2 });
`;
let scripts = 0;

/** Runs a script as a file; its process must end by itself. */
function run(script, { flags = [], env = {} } = {}) {
  const file = join(folder, `${scripts++}.mjs`);
  writeFileSync(file, script);
  return ended(spawnSync(process.execPath, [...flags, file], options(env)));
}
const options = (env) => ({
  encoding: 'utf8',
  timeout: 120_000,
  env: { ...process.env, ...env },
});
function ended({ error, status, stdout, stderr }) {
  assert.equal(error, undefined, `${stdout}${stderr}`);
  assert.equal(status, 0, stderr);
  return { stdout: stdout.trim(), stderr };
}

test('a process whose engine is idle ends, however many workers it has', () => {
  const used = `
    await engine.generate('Once', { maxTokens: 2 }).text();
    await engine.session().send('A story.', { maxTokens: 2 }).result;
    await Engine.load(model, { contextLength: 64, threads: 1, ioWorker: false });
    console.log('done');`;
  assert.equal(run(load + used).stdout, 'done');
});

test('a generation that nobody waits for keeps the process alive until it ends', () => {
  const stdout = run(
    `${load} engine.generate('Once', { maxTokens: 40, ignoreEos: true }).result
      .then(({ usage }) => console.log(usage.completionTokens));`,
  ).stdout;
  assert.equal(stdout, '40');
});

test('each call of an engine keeps the process alive until it is answered', () => {
  const stdout = run(
    `${load}
    console.log((await engine.tokenize('Once upon a time')).length > 2);
    const saved = await engine.saveState();
    await engine.restoreState(saved);
    console.log((await engine.chat.completions.create({
      messages: [{ role: 'user', content: 'A story.' }], max_tokens: 3 })).choices.length);
    await engine.setMemoryBudget(8 * 2 ** 20);
    for await (const piece of engine.generate('Once', { maxTokens: 1 })) console.log(typeof piece.text);
    await engine.dispose();
    console.log('disposed');`,
  ).stdout;
  assert.equal(stdout, 'true\n1\nstring\ndisposed');
});

test('waiting for the download keeps the process alive', async () => {
  const { size } = statSync(model);
  const server = createServer((request, response) => {
    const [, from, to] = /bytes=(\d+)-(\d*)/.exec(request.headers.range) ?? [];
    const [start, end] = [Number(from), to ? Math.min(Number(to), size - 1) : size - 1];
    response.writeHead(206, {
      'Content-Range': `bytes ${start}-${end}/${size}`,
      'Content-Length': end - start + 1,
      ETag: '"one"',
    });
    createReadStream(model, { start, end }).pipe(response);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const file = join(folder, 'download.mjs');
  const url = `http://127.0.0.1:${server.address().port}/model.gguf`;
  writeFileSync(
    file,
    `import { Engine } from ${JSON.stringify(entry)};
    const cacheDir = ${JSON.stringify(join(folder, 'cache'))};
    const engine = await Engine.load(${JSON.stringify(url)}, { contextLength: 64, cacheDir });
    await engine.downloaded;
    console.log('downloaded');`,
  );
  const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'inherit'] });
  let stdout = '';
  child.stdout.setEncoding('utf8').on('data', (text) => (stdout += text));
  const [code] = await once(child, 'close');
  server.closeAllConnections();
  server.close();
  assert.deepEqual([code, stdout], [0, 'downloaded\n']);
});

test('flags of the process do not reach the worker', () => {
  const script = `${load} console.log(await engine.generate('Once', { maxTokens: 2 }).text() !== '');`;
  const only = (code) => `data:text/javascript,${encodeURIComponent(code)}`;
  const mainOnly = only(
    `import { isMainThread } from 'node:worker_threads'; if (!isMainThread) throw new Error('loaded');`,
  );
  // Arguments, and what is given as standard input; the short suite has each once.
  const asText = [
    [['--input-type=module', '-e', script], undefined],
    [['--input-type', 'module', '-'], script],
    ...(all
      ? [
          [['--input-type', 'module', '-e', script], undefined],
          [['--input-type=module', '-'], script],
        ]
      : []),
  ];
  for (const [args, input] of asText) {
    const result = spawnSync(process.execPath, args, { ...options(), input });
    assert.equal(ended(result).stdout, 'true', args[0]);
  }
  const inEnvironment = spawnSync(process.execPath, ['-e', script], {
    ...options({ NODE_OPTIONS: '--no-warnings --input-type=module --trace-warnings' }),
  });
  assert.equal(ended(inEnvironment).stdout, 'true');
  const others = [
    '--expose-gc',
    '--max-old-space-size=512',
    '--enable-source-maps',
    '--title=story',
    '--conditions=development',
    '--stack-trace-limit=3',
  ];
  for (const flags of [
    [`--import=${mainOnly}`],
    ...extent(
      [others],
      others.map((one) => [one]),
    ),
  ])
    assert.equal(run(script, { flags }).stdout, 'true', flags.join(' '));
});

const failures = {
  'Engine.load': `await Engine.load('/nowhere/model.gguf');`,
  'Engine.load, budget': `await Engine.load(model, { memoryBudget: 2 ** 20 });`,
  'generate, options': `await engine.generate('x', { max_tokens: 1 }).text();`,
  'generate, text': `await engine.generate(long).text();`,
  'generate, loop': `for await (const piece of engine.generate(long));`,
  'generate, signal': `await engine.generate(long, { signal }).result;`,
  'session.send': `await engine.session().send(long).result;`,
  embed: `await engine.embed([long]);`,
  tokenize: `await engine.tokenize(1);`,
  setMemoryBudget: `await engine.setMemoryBudget(1 << 20);`,
  setAdapters: `await engine.setAdapters([{ source: model }]);`,
  restoreState: `await engine.restoreState({ tokens: new Int32Array(1), state: new Uint8Array(64) });`,
  chat: `await engine.chat.completions.create({ messages: [] });`,
  'chat, length': `await engine.chat.completions.create({ messages: [{ role: 'user', content: long }] });`,
  'chat, stream': `for await (const chunk of await engine.chat.completions.create({
    messages: [{ role: 'user', content: long }], stream: true }));`,
  completions: `await engine.completions.create({ prompt: long });`,
  'chat, after a task': `await new Promise((later) => setImmediate(later));
    await engine.chat.completions.create({ messages: [] });`,
};

test("an error's stack has the caller's line and readable names", () => {
  const script = `${load}
    const long = 'story '.repeat(2000);
    const { signal } = new AbortController();
    const stacks = {};
    ${Object.entries(failures)
      .map(
        ([name, code], i) => `
    async function caller${i}() { ${code.replaceAll('\n', ' ')} }
    await caller${i}().catch((error) => (stacks[${JSON.stringify(name)}] = error.stack));`,
      )
      .join('')}
    console.log(JSON.stringify(stacks));`;
  const stacks = JSON.parse(run(script).stdout);
  assert.deepEqual(Object.keys(stacks), Object.keys(failures));
  Object.entries(stacks).forEach(([name, stack], i) => {
    assert.match(stack, /^SluiceError: .+\n    at /, name);
    assert.match(stack, new RegExp(`at (async )?caller${i} `), `${name}: ${stack}`);
    const own = stack.split('\n').filter((line) => line.includes(inRoot('dist')));
    assert.ok(own.length > 0, stack);
    for (const line of own) {
      assert.match(line, /\/(node|templates-node|adapters-node|embed-node)\.js:/, name);
      assert.doesNotMatch(line, /at (async )?(new )?(\w{1,2}|_\w+)[. ]/, name);
    }
  });
});

test('a stack has each frame once', () => {
  const script = `${load}
    await engine.generate('x', { max_tokens: 1 }).text().catch(({ stack }) => console.log(stack));`;
  const lines = run(script).stdout.split('\n');
  assert.equal(new Set(lines).size, lines.length, lines.join('\n'));
});

test('a bundle without the worker is an error that says how to build instead', async () => {
  const { build } = await import('esbuild');
  const main = `import { Engine } from ${JSON.stringify(entry)};
    Engine.load(${JSON.stringify(model)}).catch(({ code, message }) => console.log(code, message));`;
  for (const format of ['esm', 'cjs']) {
    const file = join(folder, `bundle.${format === 'esm' ? 'mjs' : 'cjs'}`);
    await build({
      stdin: { contents: main, resolveDir: folder },
      ...{ bundle: true, platform: 'node', format, outfile: file, logLevel: 'error' },
    });
    const { stdout } = ended(spawnSync(process.execPath, [file], options()));
    assert.match(
      stdout,
      /^WORKER_LOAD .* keep sluice-llm out of the bundle .*serverExternalPackages/,
    );
  }
});

test('await using disposes of engines and sessions', (t) => {
  const script = `${load}
    let error;
    {
      await using used = engine;
      await using session = used.session();
      await session.send('A story.', { maxTokens: 2 }).result;
    }
    await engine.tokenize('x').catch(({ code }) => console.log(code));`;
  const [major] = process.versions.node.split('.').map(Number);
  if (major >= 24) return assert.equal(run(script).stdout, 'DISPOSED');
  // Before Node 24 compilers translate the statement, to calls of this method.
  const translated = script
    .replace('await using used', 'const used')
    .replace('await using session', 'const session')
    .replace(
      '.result;',
      '.result; await session[Symbol.asyncDispose](); await used[Symbol.asyncDispose]();',
    );
  assert.equal(run(translated).stdout, 'DISPOSED');
  t.diagnostic('the statement itself needs Node 24');
});
