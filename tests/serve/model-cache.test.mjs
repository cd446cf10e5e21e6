// The model cache shared by both programs: each reads what the other has cached, they download it
// together, and processes that are killed at random moments leave nothing wrong behind.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { extent } from '../extent.mjs';
import { importWeb, random } from '../web/helpers.mjs';

const { xxh32 } = await importWeb('io/xxh32');
const model = readFileSync(inRoot('examples', 'models', 'sluice-tales-Q8_0.gguf'));
const folders = [];
const folder = () => folders[folders.push(mkdtempSync(join(tmpdir(), 'sluice-shared-'))) - 1];
after(() => folders.forEach((f) => rmSync(f, { recursive: true, force: true })));

const programs = {
  native: [inRoot('build', 'native', 'sluice')],
  node: [process.execPath, inRoot('dist', 'cli.js')],
};

/** Serves `bytes`, whose ETag is their checksum; `delay(bytes)` in ms comes before each part. */
async function serve(file, delay = () => 0) {
  const state = { sent: 0 };
  const server = createServer(async (request, response) => {
    const { bytes } = file;
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range) ?? [];
    const last = Math.min(Number(to || Infinity), bytes.length - 1);
    response.writeHead(206, {
      ETag: `"${xxh32(Uint8Array.from(bytes))}"`,
      'Content-Range': `bytes ${from}-${last}/${bytes.length}`,
      'Content-Length': last + 1 - from,
    });
    for (let at = Number(from); at <= last && !response.destroyed;) {
      const part = bytes.subarray(at, Math.min(at + 50_000, last + 1));
      at += part.length;
      state.sent += part.length;
      if (!response.write(part)) await new Promise((next) => setTimeout(next, 1));
      const ms = delay();
      if (ms > 0) await new Promise((next) => setTimeout(next, ms));
    }
    response.end();
  });
  await new Promise((ok) => server.listen(0, '127.0.0.1', ok));
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${server.address().port}/model.gguf`, state, close };
}

/** Runs a command of a program; kills it after `killMs`. */
function run(program, args, cache, killMs, more = {}) {
  const [command, ...first] = programs[program];
  const child = spawn(command, [...first, ...args], {
    env: { ...process.env, SLUICE_CACHE: cache, ...more },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const out = { status: null, stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr'])
    child[stream].on('data', (part) => (out[stream] += part));
  const timer = killMs === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), killMs);
  return new Promise((done) =>
    child.on('close', (status) => {
      clearTimeout(timer);
      done({ ...out, status });
    }),
  );
}

async function succeed(...args) {
  const { status, stdout, stderr } = await run(...args);
  assert.equal(status, 0, stderr);
  return stdout;
}

/** Whether a process was killed between making its lock of an entry and writing the text in it. */
const keptByUnwrittenLock = (entry) =>
  readdirSync(entry).some(
    (name) => name.startsWith('use-') && statSync(join(entry, name)).size === 0,
  );

/** Checks the only entry, byte by byte and record by record. */
function check(cache, bytes) {
  const entries = readdirSync(cache).filter(
    (name) => !name.startsWith('tmp-') && !keptByUnwrittenLock(join(cache, name)),
  );
  assert.equal(entries.length, 1, entries.join());
  const entry = join(cache, entries[0]);
  assert.ok(readFileSync(join(entry, 'data')).equals(bytes), 'the bytes differ');
  const index = readFileSync(join(entry, 'index'));
  const chunk = Number(index.subarray(24).toString().split('\n')[1]);
  for (let i = 0; i * chunk < bytes.length; i++) {
    assert.equal(index.toString('latin1', 8192 + 8 * i, 8196 + 8 * i), 'CHNK');
    const part = Uint8Array.from(bytes.subarray(i * chunk, (i + 1) * chunk));
    assert.equal(index.readUInt32LE(8196 + 8 * i), xxh32(part));
  }
}

const other = { native: 'node', node: 'native' };

for (const program of ['native', 'node'])
  test(`what ${program} has pulled, ${other[program]} runs offline, lists, shows and deletes`, async () => {
    const cache = folder();
    const server = await serve({ bytes: model });
    const pulled = JSON.parse(await succeed(program, ['pull', server.url, '--json'], cache));
    assert.deepEqual([pulled.bytesCached, pulled.complete], [model.length, true]);
    check(cache, model);
    server.state.sent = 0;
    const ran = JSON.parse(
      await succeed(other[program], ['run', server.url, '-p', 'Once', '-n', '2', '--json'], cache),
    );
    assert.ok(server.state.sent <= 65536 + 1, `${server.state.sent} bytes sent again`);
    assert.ok(ran.bytesFromCache > 0);
    server.close();
    assert.equal(
      (await run(other[program], ['run', server.url, '-p', 'Once', '-n', '2'], cache)).status,
      0,
    );
    for (const each of [program, other[program]]) {
      const [listed] = JSON.parse(await succeed(each, ['list', '--json'], cache));
      assert.deepEqual(
        [listed.url, listed.size, listed.bytesCached, listed.complete],
        [server.url, model.length, model.length, true],
      );
      const shown = JSON.parse(await succeed(each, ['show', 'model.gguf', '--json'], cache));
      assert.deepEqual(
        [shown.files.length, shown.files[0].url, shown.files[0].size],
        [1, server.url, model.length],
      );
      assert.ok(existsSync(join(shown.files[0].path, 'data')));
    }
    await succeed(other[program], ['rm', server.url], cache);
    assert.deepEqual(readdirSync(cache), []);
    const gone = await run(program, ['rm', server.url], cache);
    assert.deepEqual(
      [gone.status, /is not in the cache.*\[NOT_FOUND\]/.test(gone.stderr)],
      [1, true],
    );
  });

test('a Hugging Face directory is pulled as one model, which both load offline', async () => {
  const files = inRoot('tests', 'data', 'hf', 'qwen3');
  const server = createServer((request, response) => {
    const path = join(files, request.url.replace(/^\/qwen3\//, ''));
    if (!existsSync(path)) return response.writeHead(404).end();
    const bytes = readFileSync(path);
    const [, from = 0, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
    const last = Math.min(Number(to || Infinity), bytes.length - 1);
    response.writeHead(206, {
      'Content-Range': `bytes ${from}-${last}/${bytes.length}`,
      'Content-Length': last + 1 - from,
    });
    response.end(bytes.subarray(Number(from), last + 1));
  });
  await new Promise((ok) => server.listen(0, '127.0.0.1', ok));
  const url = `http://127.0.0.1:${server.address().port}/qwen3/`;
  const pulled = {};
  for (const program of ['native', 'node']) {
    const cache = folder();
    const { complete, ...model } = JSON.parse(
      await succeed(program, ['pull', url, '--json'], cache),
    );
    assert.deepEqual([model.url, complete], [url, true]);
    pulled[program] = { size: model.size, cache };
  }
  assert.ok(pulled.native.size > 0);
  server.close();
  server.closeAllConnections();
  for (const program of ['native', 'node']) {
    const { cache } = pulled[other[program]];
    const [{ complete }] = JSON.parse(await succeed(program, ['list', '--json'], cache));
    assert.equal(complete, true);
    const args = ['run', url, '-p', 'a', '-n', '1', '--ctx', '64'];
    const ran = await run(program, args, cache);
    assert.equal(ran.status, 0, ran.stderr);
  }
});

test('both programs refuse the same mistakes', async () => {
  const cache = folder();
  const local = inRoot('examples', 'models', 'sluice-tales-Q8_0.gguf');
  const cases = [
    [['rm'], 2, /either MODEL or --max-size/],
    [['rm', 'm.gguf', '--max-size', '1G'], 2, /either MODEL or --max-size/],
    [['rm', '--max-size', 'much'], undefined, /is not a size/],
    [['rm', 'm.gguf'], 1, /m\.gguf is not in the cache.*\[NOT_FOUND\]/],
    [['show', 'http://u:secret@h/m.gguf?sig=secret'], 1, /^sluice: http:\/\/h\/m\.gguf is not/],
    [['show'], 2, /model/i],
    [['pull'], 2, /model/i],
    [['pull', local], 1, /is a local file, which needs no cache.*\[INVALID_ARGUMENT\]/],
    [['list', '--cache-dir', 'none'], 1, /there is no model cache.*\[INVALID_ARGUMENT\]/],
  ];
  for (const program of ['native', 'node'])
    for (const [args, status, message] of cases) {
      const ran = await run(program, args, cache);
      assert.match(ran.stderr, message, `${program} ${args.join(' ')}`);
      if (status !== undefined) assert.equal(ran.status, status, `${program} ${args.join(' ')}`);
    }
  assert.deepEqual(readdirSync(cache), []);
});

test('a limit evicts the models that were used least recently', async () => {
  const server = await serve({ bytes: model });
  for (const [program, next] of [
    ['native', 'node'],
    ['node', 'native'],
  ]) {
    const cache = folder();
    const urls = ['a', 'b', 'c'].map((name) => server.url.replace('model', name));
    await succeed(program, ['pull', urls[0]], cache);
    await succeed(next, ['pull', urls[1]], cache);
    await succeed(program, ['pull', urls[0]], cache);
    const limit = { SLUICE_CACHE_SIZE: `${Math.floor(2.5 * model.length)}` };
    await succeed(next, ['pull', urls[2]], cache, undefined, limit);
    const left = async () =>
      JSON.parse(await succeed(program, ['list', '--json'], cache)).map(({ url }) => url);
    assert.deepEqual(await left(), [urls[2], urls[0]]);
    assert.deepEqual(
      JSON.parse(await succeed(next, ['rm', '--max-size', `${model.length}`, '--json'], cache)),
      [urls[0]],
    );
    assert.deepEqual(await left(), [urls[2]]);
  }
  server.close();
});

test('an unreadable limit is an error of whatever would fill the cache', async () => {
  const server = await serve({ bytes: model });
  const limit = { SLUICE_CACHE_SIZE: 'lots' };
  for (const program of Object.keys(programs)) {
    const cache = folder();
    const { status, stderr } = await run(program, ['pull', server.url], cache, undefined, limit);
    assert.notEqual(status, 0, program);
    assert.match(
      stderr,
      /SLUICE_CACHE_SIZE: "lots" is not a size such as 64M or 1\.5G.*INVALID_ARG/s,
    );
    assert.deepEqual(readdirSync(cache), []);
    await succeed(program, ['list'], cache, undefined, limit);
  }
  server.close();
});

test('two programs that pull at the same time download each byte once', async () => {
  const cache = folder();
  const bytes = Buffer.concat([model, Buffer.alloc(18 << 20, model)]);
  const server = await serve({ bytes }, () => 5);
  await Promise.all(
    ['native', 'node'].map((program) => succeed(program, ['pull', server.url], cache)),
  );
  check(cache, bytes);
  // The first request of each, of a megabyte at most, is made before the entry exists.
  assert.ok(server.state.sent < bytes.length + (3 << 20), `${server.state.sent} bytes sent`);
  server.close();
});

test('a cache that cannot be written is a warning, and the model runs', async () => {
  const file = join(folder(), 'file');
  writeFileSync(file, '');
  const server = await serve({ bytes: model });
  for (const program of ['native', 'node']) {
    const args = ['run', server.url, '-p', 'Once', '-n', '2'];
    const { status, stderr } = await run(program, args, join(file, 'cache'));
    assert.equal(status, 0, stderr);
    assert.match(stderr, /cache/);
  }
  server.close();
});

const rounds = extent(3, 40);
test(`${rounds} rounds of processes that are killed leave no wrong byte`, async (t) => {
  const seed = Number(process.env.SLUICE_RANDOM_SEED ?? randomInt(2 ** 31));
  t.diagnostic(`SLUICE_RANDOM_SEED=${seed}`);
  const next = random(seed);
  const pick = (n) => Math.floor(next() * n);
  const file = { bytes: Buffer.concat([model, Buffer.alloc(10 << 20, model)]) };
  const server = await serve(file, () => pick(6) && pick(3));
  const cache = folder();
  for (let round = 0; round < rounds; round++) {
    if (pick(4) === 0) {
      file.bytes = Buffer.from(file.bytes);
      file.bytes[file.bytes.length - 1 - pick(10 << 20)] ^= 1 + pick(255); // a new version
    }
    const results = await Promise.all(
      Array.from({ length: 4 }, (_, i) => {
        const program = i % 2 ? 'native' : 'node';
        return run(program, ['pull', server.url], cache, pick(3) ? pick(2500) : undefined);
      }),
    );
    for (const { status, stderr } of results)
      assert.ok(status === 0 || status === null, `round ${round}: ${stderr}`);
    await succeed(pick(2) ? 'native' : 'node', ['pull', server.url], cache);
    check(cache, file.bytes);
    if (pick(3) === 0) rmSync(cache, { recursive: true, force: true });
  }
  server.close();
});
