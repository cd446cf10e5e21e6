// Where a model comes from, through the package in Node: references to Hugging Face, mirrors, lists
// of addresses and files, handles; and how it is requested: headers, a token, the caller's fetch().
// The hub and its content network are two servers here.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { root } from './helpers.mjs';
import { splitGguf } from './split-gguf.mjs';

const model = readFileSync(join(root, 'tests', 'data', 'families', 'llama-biases.gguf'));
const directory = join(root, 'tests', 'data', 'hf', 'qwen3');
const tokens = [1, 5, 9, 40];
const options = { contextLength: 64, threads: 1 };
const kToken = 'hf_secret';
let Engine;
let whole;
let cacheDir;
let hub;
let network;
let requests;

/** A server of `file(path, query)`: bytes, a status, or an address to redirect to. */
function serve(host, file) {
  const server = createServer((request, response) => {
    const url = new URL(request.url, 'http://x');
    requests.push({ host, path: url.pathname, query: url.search, headers: request.headers });
    const found = file(url.pathname, url.searchParams);
    if (typeof found === 'number') return response.writeHead(found).end();
    if (typeof found === 'string') return response.writeHead(302, { Location: found }).end();
    const bytes = Buffer.from(found);
    const range = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? '');
    if (!range) return response.writeHead(200, { 'Content-Length': bytes.length }).end(bytes);
    const end = Math.min(Number(range[2] || Infinity) + 1, bytes.length);
    response
      .writeHead(206, {
        'Content-Range': `bytes ${range[1]}-${end - 1}/${bytes.length}`,
        ETag: '"1"',
      })
      .end(bytes.subarray(Number(range[1]), end));
  });
  return new Promise((ok) =>
    server.listen(0, '127.0.0.1', () =>
      ok({
        url: `http://127.0.0.1:${server.address().port}`,
        close: () => (server.closeAllConnections(), server.close()),
      }),
    ),
  );
}

const files = {
  'a/b': [
    'm-Q8_0.gguf',
    'm-Q4_0-00001-of-00002.gguf',
    'm-Q4_0-00002-of-00002.gguf',
    'mmproj-Q4_K_M.gguf',
    'm-IQ2_XS.gguf',
  ],
  'a/tensors': [
    'config.json',
    'model.safetensors',
    'tokenizer.json',
    'tokenizer_config.json',
    'generation_config.json',
  ],
};
const parts = splitGguf(model, 2);
const bytesOf = (name) => {
  const part = /-(\d{5})-of-/.exec(name);
  return part ? parts[Number(part[1]) - 1] : model;
};

function onHub(path) {
  const api = /^\/api\/models\/(\w+\/\w+)\/tree\/main$/.exec(path);
  if (api)
    return files[api[1]]
      ? Buffer.from(
          JSON.stringify(files[api[1]].map((path, i) => ({ type: 'file', path, size: 1000 - i }))),
        )
      : 404;
  const file = /^\/(\w+\/\w+)\/resolve\/main\/(.+)$/.exec(path);
  if (!file || !files[file[1]]?.includes(file[2])) return 404;
  return `${network.url}/cdn/${file[2]}?X-Amz-Signature=${Math.random()}`;
}

function onNetwork(path) {
  const name = basename(path);
  if (name.endsWith('.gguf')) return bytesOf(name);
  try {
    return readFileSync(join(directory, name));
  } catch {
    return 404;
  }
}

async function logits(source, more = {}) {
  const engine = await Engine.load(source, { ...options, cacheDir, hfEndpoint: hub.url, ...more });
  try {
    const values = Array.from(await engine.logits(tokens));
    await engine.downloaded;
    return values;
  } finally {
    await engine.dispose();
  }
}

before(async () => {
  ({ Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href));
  requests = [];
  hub = await serve('hub', onHub);
  network = await serve('network', onNetwork);
  whole = await logits(new Blob([model]));
});
const folders = [];
const fresh = () => {
  cacheDir = mkdtempSync(join(tmpdir(), 'sluice-sources-'));
  folders.push(cacheDir);
  requests = [];
};
before(fresh);
afterEach(fresh);
after(() => {
  hub.close();
  network.close();
  for (const folder of folders) rmSync(folder, { recursive: true });
});

test('a repository: the preferred quantization, all its parts, and offline from the cache', async () => {
  assert.deepEqual(await logits('hf:a/b'), whole);
  const asked = requests.map(({ path }) => path);
  assert.ok(asked.includes('/a/b/resolve/main/m-Q4_0-00002-of-00002.gguf'));
  assert.ok(!asked.some((path) => /mmproj|IQ2|Q8/.test(path)));
  requests = [];
  assert.deepEqual(await logits('hf:a/b', { cache: 'only' }), whole);
  assert.deepEqual(requests, []);
  // No network: the hub's name leads nowhere.
  // The listing works without the hub; the file is then checked, in vain, and used.
  const fetch = async () => Promise.reject(new TypeError('offline'));
  assert.deepEqual(await logits('hf:a/b:q4_0', { fetch, tuning: { retryMs: 1 } }), whole);
  assert.equal(await Engine.modelCache.delete('hf:a/b:Q8_0', { cacheDir }), false);
  assert.equal(await Engine.modelCache.delete('hf:a/b:Q4_0', { cacheDir }), true);
});

test('a repository with a tag, and one of safetensors', async () => {
  assert.deepEqual(await logits('hf:a/b:Q8_0'), whole);
  assert.ok(requests.some(({ path }) => path.endsWith('m-Q8_0.gguf')));
  await assert.rejects(logits('hf:a/b:Q5_0'), {
    code: 'NOT_FOUND',
    message: 'a/b has no such GGUF file. It has: IQ2_XS, Q8_0, Q4_0.',
  });
  const info = await Engine.inspect('hf:a/tensors', { ...options, cacheDir, hfEndpoint: hub.url });
  assert.equal(info.architecture, 'qwen3');
});

test('a token goes to the hub alone, and headers only to the origin of the address', async () => {
  const secret = { token: kToken, headers: { 'X-Own': 'own' } };
  assert.deepEqual(await logits('hf:a/b:Q8_0', secret), whole);
  assert.ok(
    requests.some(({ host }) => host === 'hub') && requests.some(({ host }) => host === 'network'),
  );
  for (const { host, headers } of requests) {
    assert.equal(headers.authorization, host === 'hub' ? `Bearer ${kToken}` : undefined);
    assert.equal(headers['x-own'], host === 'hub' ? 'own' : undefined);
  }
  requests = [];
  // The address of another host: its headers, but no token. The draft model's host gets neither,
  // and redirects to the first one here.
  await logits(`${network.url}/m.gguf?token=x`, {
    ...secret,
    draft: `${hub.url.replace('127.0.0.1', 'localhost')}/a/b/resolve/main/m-Q8_0.gguf`,
  });
  const [own, other] = [true, false].map((own) =>
    requests.filter(({ host, path }) => (own ? path === '/m.gguf' : host === 'hub')),
  );
  assert.ok(own.length && other.length);
  assert.ok(own.every(({ headers }) => headers['x-own'] === 'own' && !headers.authorization));
  assert.ok(other.every(({ headers }) => !headers['x-own'] && !headers.authorization));
  const stored = await Engine.modelCache.list({ cacheDir });
  assert.ok(stored.length > 1 && !JSON.stringify(stored).includes('token'));
});

test("a caller's fetch() gets every request, in its own thread", async () => {
  const asked = [];
  const fetch = async (url, init) => {
    asked.push([
      url,
      new Headers(init.headers).get('range'),
      new Headers(init.headers).get('x-own'),
    ]);
    return globalThis.fetch(url.replace('http://models.invalid', network.url), init);
  };
  const source = 'http://models.invalid/m.gguf';
  assert.deepEqual(await logits(source, { fetch, headers: { 'X-Own': 'own' } }), whole);
  assert.ok(asked.length > 0);
  for (const [url, range, own] of asked)
    assert.deepEqual([url, /^bytes=/.test(range), own], [source, true, 'own']);
  // In a worker for I/O, and in the engine's own; also after the engine has moved to another.
  assert.deepEqual(await logits(source, { fetch, cache: 'none', ioWorker: false }), whole);
  const engine = await Engine.load(source, { ...options, fetch, cache: 'none' });
  await engine.setMemoryBudget('64M');
  assert.deepEqual(Array.from(await engine.logits(tokens)), whole);
  await engine.dispose();
});

test('adapters are requested like the model', async () => {
  const token = kToken;
  for (const [adapter, path, authorization] of [
    ['hf:a/b/adapter.gguf', '/a/b/resolve/main/adapter.gguf', `Bearer ${token}`],
    [`${network.url}/none/adapter.bin`, '/none/adapter.bin', undefined],
  ]) {
    const asked = logits(new Blob([model]), { token, lora: [adapter] });
    await assert.rejects(asked, { code: 'NOT_FOUND' });
    const { headers } = requests.find((request) => request.path === path);
    assert.equal(headers.authorization, authorization);
  }
});

test("an error of a caller's fetch() is the cause of NETWORK", async () => {
  const fetch = async () => {
    throw new TypeError('no way', { cause: Object.assign(new Error('why'), { code: 'EWHY' }) });
  };
  const retries = [];
  const failed = logits('http://models.invalid/m.gguf', {
    fetch,
    onProgress: (event) => event.phase === 'retry' && retries.push(event),
    tuning: { retryMs: 1, attempts: 3 },
  });
  await assert.rejects(failed, ({ code, message, cause }) => {
    assert.equal(code, 'NETWORK');
    assert.match(message, /no way \(why\)/);
    assert.equal(cause.cause.code, 'EWHY');
    return true;
  });
  assert.deepEqual(
    retries.map(({ attempt, secondsLeft }) => [attempt, secondsLeft < 1]),
    [[2, true]],
  );
  assert.match(retries[0].message, /no way/);
});

test('lists: addresses with a query each, Files among them, and a FileList', async () => {
  const names = ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf'];
  const urls = names.map((name, i) => `${network.url}/${name}?Signature=${i}&Expires=1`);
  assert.deepEqual(await logits([...urls].reverse()), whole);
  for (const [i, name] of names.entries()) {
    const own = requests.filter(({ path }) => path === `/${name}`);
    assert.ok(own.length && own.every(({ query }) => query === `?Signature=${i}&Expires=1`), name);
  }
  assert.deepEqual(await logits([urls[0], new File([parts[1]], names[1])]), whole);
  const handle = (i) => ({ getFile: async () => new File([parts[i]], names[i]) });
  assert.deepEqual(await logits([handle(1), handle(0)]), whole);
  assert.deepEqual(await logits({ getFile: async () => new File([model], 'm.gguf') }), whole);
  const one = new File([model], 'm.gguf');
  assert.deepEqual(await logits({ 0: one, length: 1, item: () => one }), whole);
});

test('blob: and data: addresses are read in place and not cached', async () => {
  const url = URL.createObjectURL(new Blob([model]));
  assert.deepEqual(await logits(url), whole);
  URL.revokeObjectURL(url);
  await assert.rejects(logits(url), { code: 'INVALID_ARGUMENT', message: /blob: address/ });
  assert.deepEqual(await logits(`data:application/gguf;base64,${model.toString('base64')}`), whole);
  assert.deepEqual(await Engine.modelCache.list({ cacheDir }), []);
});

const cli = (args, env = {}) =>
  new Promise((ok) => {
    const command = [join(root, 'dist', 'cli.js'), ...args, '--cache-dir', cacheDir];
    execFile(
      process.execPath,
      command,
      { env: { ...process.env, ...env } },
      (error, stdout, stderr) => ok({ status: error?.code ?? 0, stdout, stderr }),
    );
  });

test('the command line: references, headers, HF_TOKEN and HF_ENDPOINT', async () => {
  const env = { HF_TOKEN: kToken, HF_ENDPOINT: `${hub.url}/` };
  const pulled = await cli(['pull', 'hf:a/b:Q8_0', '--header', 'X-Own: own', '--json'], env);
  assert.equal(pulled.status, 0, pulled.stderr);
  assert.equal(JSON.parse(pulled.stdout).url, `${hub.url}/a/b/resolve/main/m-Q8_0.gguf`);
  for (const { host, headers } of requests) {
    assert.equal(headers.authorization, host === 'hub' ? `Bearer ${kToken}` : undefined);
    assert.equal(headers['x-own'], host === 'hub' ? 'own' : undefined);
  }
  assert.ok(!`${pulled.stdout}${pulled.stderr}`.includes(kToken));
  const shown = await cli(['show', 'hf:a/b:Q8_0', '--json']);
  assert.equal(JSON.parse(shown.stdout).complete, true);
  assert.equal((await cli(['rm', 'hf:a/b:Q8_0'])).status, 0);
  const wrong = await cli(['pull', 'hf:a/b', '--header', 'secret'], env);
  assert.equal(wrong.status, 2);
  assert.match(wrong.stderr, /--header needs 'NAME: VALUE'/);
});

test('wrong values are errors that show no secret', async () => {
  for (const [given, name] of [
    [{ headers: { 'a b': 'secret' } }, 'headers'],
    [{ headers: 'secret' }, 'headers'],
    [{ token: 'secret secret' }, 'token'],
    [{ token: '' }, 'token'],
    [{ fetch: 'secret' }, 'fetch'],
    [{ hfEndpoint: 'secret' }, 'hfEndpoint'],
  ]) {
    await assert.rejects(logits('hf:a/b', given), ({ code, message }) => {
      assert.equal(code, 'INVALID_ARGUMENT');
      assert.ok(message.startsWith(name) && !message.includes('secret'), message);
      return true;
    });
  }
  for (const wrong of [
    'hf:a',
    'hf:a/b:Q4/c.gguf',
    'hf:a/b:',
    [],
    {},
    5,
    [5],
    [join(root, 'x.gguf')],
  ])
    await assert.rejects(logits(wrong), { code: 'INVALID_ARGUMENT' }, JSON.stringify(wrong));
});
