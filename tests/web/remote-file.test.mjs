// The range fetcher together with the model cache: every fault of HTTP, one by one and at random,
// with the bytes compared in the end.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, writeFileSync, rmSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { extent } from '../extent.mjs';
import { eventually } from './eventually.mjs';
import { fakeModel, faultyServer, fullStore, importWeb, random } from './helpers.mjs';

const remote = await importWeb('io/remote-file');
const hosts = await importWeb('io/hosts');
const { nodeBackend } = await importWeb('io/store-node');
const { StoreManager } = await importWeb('io/store-manager');

const kHangs = 30_000; // a time limit, only for what would never end
const quick = { retryMs: 1, retryMaxMs: 5, stallMs: 300 };
const options = {
  fetcher: quick,
  chunkSize: 16384,
  streamBytes: 131072,
  hosts: async () => hosts,
};
const folders = [];
const folder = () => folders[folders.push(mkdtempSync(join(tmpdir(), 'sluice-'))) - 1];
after(() => folders.forEach((f) => rmSync(f, { recursive: true, force: true })));

/** Path of the only entry in a cache directory. */
const entryIn = (directory) => join(directory, readdirSync(directory)[0]);

const files = [];
const RemoteFile = {
  open: async (...given) => files[files.push(await remote.RemoteFile.open(...given)) - 1],
};

async function readAll(file, step = 50000) {
  const all = Buffer.alloc(file.size);
  const reads = [];
  for (let at = 0; at < file.size; at += step) {
    reads.push(file.read(at, all.subarray(at, Math.min(at + step, file.size))));
  }
  await Promise.all(reads);
  return all;
}

/** Runs `work` with a server. Closes that and all files, also where `work` never ends. */
async function withServer(file, fault, work) {
  const server = await faultyServer(file, fault);
  let timer;
  const hangs = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end within ${kHangs} ms`)), kHangs);
  });
  try {
    return await Promise.race([work(server), hangs]);
  } finally {
    clearTimeout(timer);
    for (const opened of files.splice(0)) opened.close();
    await server.close();
  }
}

/** Opens a file, reads all of it and waits for the download; checks the bytes. */
async function load(url, bytes, store, extra = {}) {
  const file = await RemoteFile.open(url, store, { ...options, ...extra });
  try {
    const [all] = await Promise.all([readAll(file), file.download()]);
    assert.ok(all.equals(bytes), 'the bytes differ');
    return file.progress();
  } finally {
    file.close();
  }
}

const model = fakeModel();

for (const store of [true, false]) {
  const where = store ? 'with a store' : 'without a store';
  test(`reads a complete file by ranges ${where}`, () =>
    withServer(
      { bytes: model, etag: '"1"' },
      () => null,
      async ({ url, state }) => {
        await load(url, model, store ? nodeBackend(folder()) : null);
        assert.ok(state.requests < 40, `${state.requests} requests`);
      },
    ));
}

for (const kind of [
  'cut',
  'stall',
  'short',
  'long',
  'wrong-range',
  '429',
  '503',
  '500',
  'reset',
  'expired',
  '416',
]) {
  test(`survives ${kind}, every other request`, () =>
    withServer(
      { bytes: model, etag: '"1"' },
      (_, n) => (n % 2 === 1 ? kind : null),
      ({ url }) => load(url, model, nodeBackend(folder())),
    ));
}

for (const kind of ['redirect', 'no-content-range', '200', 'gzip']) {
  test(`reads from a server that always answers with ${kind}`, () =>
    withServer(
      { bytes: model, etag: '"1"' },
      (request) => (request.method === 'GET' ? kind : null),
      ({ url }) => load(url, model, nodeBackend(folder())),
    ));
}

test('downloads once from a server without ranges, in one request', () =>
  withServer(
    { bytes: model },
    () => '200',
    async ({ url, state }) => {
      await load(url, model, nodeBackend(folder()));
      assert.equal(state.requests, 1);
    },
  ));

test('a server without ranges needs a cache', () =>
  withServer(
    { bytes: model },
    () => '200',
    ({ url }) => assert.rejects(load(url, model, null), { code: 'NO_RANGE_SUPPORT' }),
  ));

test('404 is an error at once', () =>
  withServer(
    { bytes: model },
    () => '404',
    async ({ url, state }) => {
      await assert.rejects(load(url, model, null), { code: 'HTTP_STATUS', message: /404/ });
      assert.equal(state.requests, 1);
    },
  ));

test('an unreachable host is NETWORK', () =>
  assert.rejects(load('http://127.0.0.1:9/x.gguf', model, null), { code: 'NETWORK' }));

test('an empty file is TRUNCATED', () =>
  withServer(
    { bytes: Buffer.alloc(0) },
    () => null,
    ({ url }) => assert.rejects(RemoteFile.open(url, null, options), { code: 'TRUNCATED' }),
  ));

test('reads the cache the second time', () =>
  withServer(
    { bytes: model, etag: '"1"' },
    () => null,
    async ({ url }) => {
      const store = nodeBackend(folder());
      await load(url, model, store);
      const again = await load(url, model, store);
      assert.ok(again.bytesFetched <= 65536, `${again.bytesFetched} fetched again`);
      assert.ok(again.bytesFromCache >= model.length);
    },
  ));

test('uses the cached file when the server is unreachable', async () => {
  const store = nodeBackend(folder());
  const url = await withServer(
    { bytes: model },
    () => null,
    async (server) => {
      await load(server.url, model, store);
      return server.url;
    },
  );
  const warnings = [];
  await load(url, model, store, { onWarning: (code) => warnings.push(code) });
  assert.deepEqual(warnings, ['NETWORK']);
  await load(url, model, store, { cache: 'only' });
});

test("cache: 'only' is an error for a file that is not cached", () =>
  assert.rejects(
    load('http://127.0.0.1:9/x.gguf', model, nodeBackend(folder()), { cache: 'only' }),
    {
      code: 'NOT_FOUND',
    },
  ));

for (const etag of [true, false]) {
  test(`a file replaced between loads is fetched again (${etag ? 'by ETag' : 'by its header'})`, async () => {
    const file = { bytes: model, etag: etag ? '"1"' : undefined };
    await withServer(
      file,
      () => null,
      async ({ url }) => {
        const store = nodeBackend(folder());
        await load(url, model, store);
        file.bytes = fakeModel({ seed: 2 });
        if (etag) file.etag = '"2"';
        const { bytesFetched } = await load(url, file.bytes, store);
        assert.ok(bytesFetched >= model.length);
      },
    );
  });
}

test('a file replaced during the download is SOURCE_CHANGED, and the next load is right', async () => {
  const file = { bytes: model, etag: '"1"' };
  await withServer(
    file,
    () => null,
    async ({ url }) => {
      const store = nodeBackend(folder());
      const opened = await RemoteFile.open(url, store, { ...options, streamBytes: 32768 });
      file.bytes = fakeModel({ seed: 3 });
      file.etag = '"3"';
      await assert.rejects(readAll(opened), { code: 'SOURCE_CHANGED' });
      await assert.rejects(opened.download(), { code: 'SOURCE_CHANGED' });
      opened.close();
      await load(url, file.bytes, store);
    },
  );
});

test('resumes with the missing chunks after an early close', () =>
  withServer(
    { bytes: model, etag: '"1"' },
    () => null,
    async ({ url }) => {
      const store = nodeBackend(folder());
      const first = await RemoteFile.open(url, store, options);
      await first.read(300000, Buffer.alloc(100000));
      const had = first.progress().bytesLocal;
      first.close();
      assert.ok(had > 0);
      const { bytesFetched } = await load(url, model, store);
      const limit = model.length - had + 65536 + options.chunkSize;
      assert.ok(bytesFetched <= limit, `${bytesFetched} fetched, ${limit} would do`);
    },
  ));

test('detects 20 flipped bytes and refetches only their chunks', () =>
  withServer(
    { bytes: model, etag: '"1"' },
    () => null,
    async ({ url }) => {
      const directory = folder();
      const store = nodeBackend(directory);
      await load(url, model, store);
      const next = random(5);
      const data = join(entryIn(directory), 'data');
      const stored = readFileSync(data);
      const hit = new Set();
      for (let i = 0; i < 20; i++) {
        const at = Math.floor(next() * stored.length);
        stored[at] ^= 1 << Math.floor(next() * 8);
        hit.add(Math.floor(at / options.chunkSize));
      }
      writeFileSync(data, stored);
      const warnings = [];
      const { bytesFetched } = await load(url, model, store, {
        onWarning: (code) => warnings.push(code),
      });
      assert.ok(warnings.includes('CORRUPT'));
      assert.ok(bytesFetched <= 65536 + hit.size * options.chunkSize, `${bytesFetched} fetched`);
      assert.ok(readFileSync(data).equals(model));
    },
  ));

test('a damaged index or a short data file costs only a refetch', () =>
  withServer(
    { bytes: model, etag: '"1"' },
    () => null,
    async ({ url }) => {
      const directory = folder();
      const store = nodeBackend(directory);
      await load(url, model, store);
      const entry = entryIn(directory);
      writeFileSync(join(entry, 'index'), 'rubbish');
      await load(url, model, store);
      writeFileSync(join(entry, 'data'), readFileSync(join(entry, 'data')).subarray(0, 700000));
      await load(url, model, store);
    },
  ));

test('a small read of a damaged chunk is repaired too', () =>
  withServer(
    { bytes: model, etag: '"1"' },
    () => null,
    async ({ url }) => {
      const directory = folder();
      const store = nodeBackend(directory);
      await load(url, model, store);
      const data = join(entryIn(directory), 'data');
      const stored = readFileSync(data);
      stored[500_000] ^= 1;
      writeFileSync(data, stored);
      const file = await RemoteFile.open(url, store, options);
      const into = Buffer.alloc(64);
      await file.read(499_990, into);
      file.close();
      assert.ok(into.equals(model.subarray(499_990, 500_054)));
    },
  ));

for (const [kind, which] of [
  ['cut', 0],
  ['short', 1],
]) {
  test(`a body that is ${kind} continues at the first missing byte`, () =>
    withServer(
      { bytes: model, etag: '"1"' },
      (_, n) => (n === which ? kind : null),
      async ({ url, state }) => {
        await load(url, model, nodeBackend(folder()));
        const within = state.ranges.filter(([first]) => first % options.chunkSize !== 0);
        assert.equal(within.length, 1, 'received bytes were requested again');
      },
    ));
}

for (const [how, fail] of [
  [
    'throws',
    () => {
      throw new DOMException('disk full', 'QuotaExceededError');
    },
  ],
  ['writes a part', (write, bytes, at) => write(bytes.subarray(0, bytes.length / 2), at)],
]) {
  test(`a full disk that ${how} falls back to the network, and the download reports it`, () =>
    withServer(
      { bytes: model, etag: '"1"' },
      () => null,
      async ({ url }) => {
        const real = nodeBackend(folder());
        const full = fullStore(real, 20, fail);
        const warnings = [];
        const file = await RemoteFile.open(url, full, {
          ...options,
          onWarning: (code) => warnings.push(code),
        });
        await assert.rejects(file.download(), { code: 'QUOTA' });
        assert.ok((await readAll(file)).equals(model));
        await assert.rejects(file.download(), { code: 'QUOTA' });
        assert.deepEqual(warnings, ['QUOTA']);
        file.close();
        await load(url, model, real); // the chunks that fitted are still cached
      },
    ));
}

test('a second reader of the same entry does not write and reads right', () =>
  withServer(
    { bytes: model, etag: '"1"' },
    () => null,
    async ({ url }) => {
      const store = nodeBackend(folder());
      const first = await RemoteFile.open(url, store, options);
      const second = load(url, model, store);
      const [all] = await Promise.all([readAll(first), first.download()]);
      assert.ok(all.equals(model));
      await second;
      first.close();
    },
  ));

test('a second reader reads chunks from the cache once the first has stored them', () => {
  const large = Buffer.alloc(6 << 20, model); // the first request fetches a megabyte
  let held = false;
  return withServer(
    { bytes: large, etag: '"1"' },
    () => (held ? 'stall' : null),
    async ({ url, state }) => {
      const store = nodeBackend(folder());
      const first = await RemoteFile.open(url, store, options);
      const second = await RemoteFile.open(url, store, {
        ...options,
        fetcher: { ...quick, stallMs: 1000 },
      });
      held = true;
      const places = [...Array(8)].map((_, i) => (2 << 20) + i * 300_000);
      const read = (at) => {
        const into = Buffer.alloc(100);
        return Promise.resolve(second.read(at, into)).then(() =>
          assert.ok(into.equals(large.subarray(at, at + 100)), `at ${at}`),
        );
      };
      const before = state.requests;
      // More reads than streams, and none of the streams delivers anything.
      const waiting = places.map(read);
      await eventually(() => state.requests >= before + 3, 'three more requests', 10);
      held = false;
      await first.download();
      const { requests } = state;
      await Promise.all(waiting);
      assert.ok(state.requests <= requests + 3, 'only running requests are repeated');
      first.close();
      second.close();
    },
  );
});

test('requested chunks are fetched before the rest', () =>
  withServer(
    { bytes: model, etag: '"1"' },
    () => 'slow',
    async ({ url, state }) => {
      const file = await RemoteFile.open(url, nodeBackend(folder()), { ...options, streams: 1 });
      file.download().catch(() => {});
      const tail = Buffer.alloc(1000);
      await file.read(model.length - 1000, tail);
      assert.ok(tail.equals(model.subarray(-1000)));
      assert.ok(file.progress().bytesLocal < model.length);
      assert.ok(state.ranges.some(([first]) => first > model.length - 20000));
      file.close();
    },
  ));

test('neighbouring reads share large requests', () =>
  withServer(
    { bytes: model, etag: '"1"' },
    () => null,
    async ({ url, state }) => {
      const file = await RemoteFile.open(url, nodeBackend(folder()), {
        ...options,
        streamBytes: 1 << 24,
      });
      await file.download();
      file.close();
      assert.ok(state.requests <= 3, `${state.requests} requests`);
    },
  ));

test('close() rejects waiting reads with AbortError', () =>
  withServer(
    { bytes: model },
    (_, n) => (n > 0 ? 'stall' : null),
    async ({ url }) => {
      const file = await RemoteFile.open(url, null, { ...options, fetcher: { stallMs: 60000 } });
      const reading = file.read(model.length - 1000, Buffer.alloc(1000));
      setTimeout(() => file.close(), 20);
      await assert.rejects(reading, { name: 'AbortError' });
    },
  ));

test('an abort while opening rejects and leaves the cache usable', () =>
  withServer(
    { bytes: model, etag: '"1"' },
    (_, n) => (n === 0 ? 'stall' : null),
    async ({ url }) => {
      const store = nodeBackend(folder());
      const control = new AbortController();
      setTimeout(() => control.abort(), 20);
      const fetcher = { stallMs: 60000 };
      await assert.rejects(
        RemoteFile.open(url, store, { ...options, fetcher, signal: control.signal }),
        {
          name: 'AbortError',
        },
      );
      await load(url, model, store);
    },
  ));

test('the cache lists, measures, deletes and evicts', async () => {
  const directory = folder();
  const store = nodeBackend(directory);
  const manager = new StoreManager(async () => store);
  await withServer(
    { bytes: model },
    () => null,
    async ({ url }) => {
      await load(url, model, store);
      await load(`${url}?2`, model, store);
      const file = await RemoteFile.open(url, store, options);
      await assert.rejects(manager.delete(url), { code: 'CACHE_LOCKED' });
      file.close();
      const list = await manager.list();
      assert.deepEqual(
        list.map((m) => [m.size, m.bytesCached, m.complete]),
        Array(2).fill([model.length, model.length, true]),
      );
      assert.equal(await manager.size(), 2 * model.length);
      assert.equal((await manager.evictOldest(model.length)).length, 1);
      const [left] = await manager.list();
      assert.equal(await manager.delete(left.url), true);
      assert.equal(await manager.delete(left.url), false);
      assert.deepEqual(readdirSync(directory), []);
    },
  );
});

const loads = extent(60, 200);
test(`${loads} loads with random faults: the bytes are always right`, async () => {
  const kinds = [
    'cut',
    'stall',
    'short',
    'long',
    'wrong-range',
    '429',
    '503',
    '500',
    'reset',
    'expired',
    'redirect',
    '200',
    'no-content-range',
  ];
  const next = random(2026);
  const small = fakeModel({ units: 4, unitBytes: 32768, header: 20000 });
  for (let i = 0; i < loads; i++) {
    const rate = next() * 0.5;
    const fault = () => (next() < rate ? kinds[Math.floor(next() * kinds.length)] : null);
    await withServer(
      { bytes: small, etag: next() < 0.5 ? '"1"' : undefined },
      fault,
      async ({ url }) => {
        const directory = folder();
        const store = nodeBackend(directory);
        const extra = {
          fetcher: { ...quick, attempts: 30, stallMs: 60 },
          streams: 1 + Math.floor(next() * 3),
        };
        await load(url, small, store, extra);
        rmSync(directory, { recursive: true });
      },
    );
  }
});
