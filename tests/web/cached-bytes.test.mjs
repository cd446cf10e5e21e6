// Downloaded once: no server, captive portal, tab or other process can make cached bytes useless. A
// response that is not the model leaves the cached file in use, with a warning. A new version
// replaces it only once it begins to arrive.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { eventually } from './eventually.mjs';
import { bundleOf, fakeModel, fullStore, importWeb } from './helpers.mjs';
import { memoryStore } from './memory-store.mjs';

const { RemoteFile } = await importWeb('io/remote-file');
const { nodeBackend } = await importWeb('io/store-node');
const { StoreManager } = await importWeb('io/store-manager');
const { LocalIo } = await importWeb('io/io');
const hostModule = await importWeb('io/hosts');
const hosts = async () => hostModule;

const quick = { retryMs: 1, retryMaxMs: 5, stallMs: 300 };
const options = { fetcher: quick, chunkSize: 16384, streamBytes: 131072, hosts };
const folders = [];
const folder = () => folders[folders.push(mkdtempSync(join(tmpdir(), 'sluice-'))) - 1];
after(() => folders.forEach((f) => rmSync(f, { recursive: true, force: true })));

async function serving(answer, work) {
  const state = { requests: 0 };
  const server = createServer((request, response) => {
    state.requests++;
    answer(request, response);
  });
  await new Promise((ok) => server.listen(0, '127.0.0.1', ok));
  try {
    return await work(`http://127.0.0.1:${server.address().port}`, state);
  } finally {
    server.close();
    server.closeAllConnections();
  }
}

/** Sends `bytes`, or the requested range of them. */
function send(request, response, bytes, headers = {}) {
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
  const first = Number(range?.[1] ?? 0);
  const last = Math.min(Number(range?.[2] || Infinity), bytes.length - 1);
  if (range && first > last)
    return response.writeHead(416, { 'Content-Range': `bytes */${bytes.length}` }).end();
  const where = range ? { 'Content-Range': `bytes ${first}-${last}/${bytes.length}` } : {};
  response.writeHead(range ? 206 : 200, {
    ...headers,
    ...where,
    'Content-Length': last + 1 - first,
  });
  response.end(bytes.subarray(first, last + 1));
}

async function load(url, store, extra = {}) {
  const file = await RemoteFile.open(url, store, { ...options, ...extra });
  try {
    const all = Buffer.alloc(file.size);
    await file.read(0, all);
    assert.equal(await file.download(), true);
    return all;
  } finally {
    file.close();
  }
}

const gguf = (seed) => Buffer.concat([Buffer.from('GGUF\x03\0\0\0'), fakeModel({ seed })]);
const tensors = Buffer.concat([
  Buffer.from([96, 0, 0, 0, 0, 0, 0, 0]),
  Buffer.from(`{"a":1}${' '.repeat(200)}`),
  fakeModel(),
]);
const json = Buffer.from(`{\n  "model_type": "x", "text": "${'y'.repeat(70000)}"\n}`);
const html = Buffer.from(
  `<!DOCTYPE html><title>Maintenance</title>${'<p>Back soon.'.repeat(9000)}`,
);

const bad = {
  'an error page': (q, r) => r.end(html),
  'an error page with a length and an ETag': (q, r) =>
    r.writeHead(200, { 'Content-Length': html.length, ETag: '"page"' }).end(html),
  'an error page by ranges': (q, r) => send(q, r, html, { ETag: '"page"' }),
  'a compressed error page': (q, r) =>
    r.writeHead(200, { 'Content-Encoding': 'gzip' }).end(gzipSync(html)),
  'an error in JSON': (q, r) => r.end('{"error":"too many requests"}'),
  'a line of text': (q, r) => r.end('Service temporarily unavailable'),
  nothing: (q, r) => r.writeHead(200, { 'Content-Length': 0 }).end(),
  'an empty file': (q, r) => r.writeHead(416, { 'Content-Range': 'bytes */0' }).end(),
  'a login form behind a redirect': (q, r) =>
    q.url.startsWith('/login') ? r.end(html) : r.writeHead(302, { Location: '/login' }).end(),
  'status 404': (q, r) => r.writeHead(404).end(html),
  'status 503': (q, r) => r.writeHead(503).end(html),
};

describe('cached bytes survive', () => {
  for (const [kind, bytes] of Object.entries({ GGUF: gguf(1), safetensors: tensors, JSON: json })) {
    for (const [what, answer] of Object.entries(bad)) {
      test(`${what}: ${kind}`, async () => {
        let good = true;
        await serving(
          (q, r) => (good ? send(q, r, bytes, { ETag: '"1"' }) : answer(q, r)),
          async (base, state) => {
            const store = nodeBackend(folder());
            const url = `${base}/file`;
            assert.ok((await load(url, store)).equals(bytes));
            good = false;
            for (let i = 0; i < 2; i++) {
              const warnings = [];
              assert.ok(
                (await load(url, store, { onWarning: (code) => warnings.push(code) })).equals(
                  bytes,
                ),
              );
              assert.deepEqual(warnings, ['NETWORK']);
            }
            await assert.rejects(load(url, store, { cache: 'reload' }));
            assert.ok((await load(url, store, { cache: 'only' })).equals(bytes));
            good = true;
            state.requests = 0;
            assert.ok((await load(url, store)).equals(bytes));
            assert.equal(state.requests, 1, 'one request shows that the cached file is current');
          },
        );
      });
    }
  }

  test('an error page while only a part is cached', async () => {
    const bytes = gguf(1);
    let good = true;
    await serving(
      (q, r) => (good ? send(q, r, bytes, { ETag: '"1"' }) : r.end(html)),
      async (base) => {
        const store = nodeBackend(folder());
        const first = await RemoteFile.open(`${base}/m`, store, options);
        await first.read(600_000, Buffer.alloc(100_000));
        const had = first.progress().bytesLocal;
        first.close();
        good = false;
        await assert.rejects(RemoteFile.open(`${base}/m`, store, options), {
          code: 'NETWORK',
          message: /is kept/,
        });
        const [entry] = await new StoreManager(async () => store).list();
        assert.equal(entry.bytesCached, had);
        good = true;
        assert.ok((await load(`${base}/m`, store)).equals(bytes));
      },
    );
  });

  test('an error page in the middle of a download', async () => {
    const bytes = gguf(1);
    let n = 0;
    await serving(
      (q, r) =>
        ++n % 3 === 0
          ? bad['an error page with a length and an ETag'](q, r)
          : send(q, r, bytes, { ETag: '"1"' }),
      async (base) => {
        const store = nodeBackend(folder());
        assert.ok((await load(`${base}/m`, store)).equals(bytes));
      },
    );
  });

  test('a new version that does not arrive; one that arrives replaces them', async () => {
    const [old, fresh] = [gguf(1), gguf(2)];
    let phase = 0;
    await serving(
      (q, r) => {
        if (phase === 0) return send(q, r, old, { ETag: '"1"' });
        if (phase === 2 || q.headers.range === 'bytes=0-65535')
          return send(q, r, fresh, { ETag: '"2"' });
        return r.destroy();
      },
      async (base) => {
        const store = nodeBackend(folder());
        await load(`${base}/m`, store);
        phase = 1; // the beginning is new, then the connection breaks
        await assert.rejects(load(`${base}/m`, store), { code: 'NETWORK' });
        assert.ok((await load(`${base}/m`, store, { cache: 'only' })).equals(old));
        phase = 2;
        const warnings = [];
        assert.ok(
          (await load(`${base}/m`, store, { onWarning: (code) => warnings.push(code) })).equals(
            fresh,
          ),
        );
        assert.deepEqual(warnings, ['SOURCE_CHANGED']);
      },
    );
  });

  test('an error that was cached itself is replaced by the file', async () => {
    const error = Buffer.from('{"error":"too many requests"}');
    let good = false;
    await serving(
      (q, r) => (good ? send(q, r, gguf(1), { ETag: '"1"' }) : r.end(error)),
      async (base) => {
        const store = nodeBackend(folder());
        assert.ok((await load(`${base}/m`, store)).equals(error));
        good = true;
        assert.ok((await load(`${base}/m`, store)).equals(gguf(1)));
      },
    );
  });
});

// --- lengths ---------------------------------------------------------------------------------

/**
 * fetch() as a page of another origin sees it: with few headers, and compressed unless a range is
 * requested.
 */
const foreign =
  (bytes, ranges = true) =>
  async (url, { headers = {} } = {}) => {
    const range = ranges && /^bytes=(\d+)-(\d*)$/.exec(new Headers(headers).get('range') ?? '');
    const last = range ? Math.min(Number(range[2] || Infinity), bytes.length - 1) : 0;
    const body = range ? bytes.subarray(Number(range[1]), last + 1) : bytes;
    const length = range ? body.length : gzipSync(bytes).length;
    if (range && Number(range[1]) > last) return new Response(null, { status: 416 });
    const response = new Response(body, {
      status: range ? 206 : 200,
      headers: { 'Content-Length': length },
    });
    Object.defineProperty(response, 'type', { value: 'cors' });
    return response;
  };

for (const ranges of [true, false]) {
  test(`a file that another origin compresses arrives complete ${ranges ? 'by ranges' : 'without ranges'}`, async () => {
    const bytes = Buffer.from(
      JSON.stringify({ vocabulary: Array.from({ length: 400_000 }, (_, i) => `w${i % 977}`) }),
    );
    assert.ok(bytes.length > 2 << 20 && gzipSync(bytes).length < 1 << 20);
    const store = nodeBackend(folder());
    const fetcher = { ...quick, fetch: foreign(bytes, ranges) };
    for (let i = 0; i < 2; i++) {
      const warnings = [];
      const all = await load('http://h/tokenizer.json', store, {
        fetcher,
        onWarning: (code) => warnings.push(code),
      });
      assert.ok(all.equals(bytes), `${all.length} of ${bytes.length}`);
      assert.deepEqual(warnings, []);
    }
  });
}

test('an impossible file length is an error before any allocation', async () => {
  for (const total of ['9007199254740992', '99999999999999', '9'.repeat(400)]) {
    const fetch = async () =>
      new Response(Buffer.alloc(1000), {
        status: 206,
        headers: { 'Content-Range': `bytes 0-999/${total}` },
      });
    await assert.rejects(
      RemoteFile.open('http://h/m', nodeBackend(folder()), {
        ...options,
        fetcher: { ...quick, fetch },
      }),
      { code: 'BAD_HEADER' },
    );
  }
});

// --- addresses -------------------------------------------------------------------------------

test('a file whose name has an invalid escape is read and cached', async () => {
  await serving(
    (q, r) => send(q, r, gguf(1)),
    async (base) => {
      for (const name of ['100%.gguf', '100%zz.gguf', '%.gguf']) {
        const file = await RemoteFile.open(`${base}/${name}`, nodeBackend(folder()), options);
        assert.equal(file.name, name);
        file.close();
      }
    },
  );
});

test('no message contains a password or a signature', async () => {
  const shows = async (work, code) => {
    const error = await work.then(
      () => null,
      (e) => e,
    );
    assert.equal(error?.code, code, error?.message);
    assert.doesNotMatch(error.message, /secret|ss@/, error.message);
  };
  const open = (url, extra) =>
    RemoteFile.open(url, null, { ...options, ...extra, fetcher: { ...quick, attempts: 2 } });
  await serving(
    (q, r) => r.writeHead(/^\/(\d+)/.exec(q.url)?.[1] ?? 200).end('x'),
    async (base) => {
      for (const status of [404, 503, 416])
        await shows(
          open(`${base}/${status}?sig=secret`),
          status === 416 ? 'TRUNCATED' : 'HTTP_STATUS',
        );
      await shows(open(`${base}/200?sig=secret`), 'NO_RANGE_SUPPORT');
    },
  );
  await shows(open('http://127.0.0.1:9/x?sig=secret'), 'NETWORK');
  await shows(open('http://[bad?sig=secret'), 'NETWORK');
  await shows(open('http://u:secret@127.0.0.1:9/x'), 'INVALID_ARGUMENT');
  await shows(open('http://u:secret@ss@127.0.0.1:9/x'), 'INVALID_ARGUMENT');
  await shows(open('http://h/x?sig=secret', { cache: 'only' }), 'NOT_FOUND');
});

test('an address that fetch cannot read is an error without a request', async () => {
  for (const url of ['file:///m.gguf', 'ftp://h/m.gguf', 'FTP://h/m']) {
    let asked = 0;
    await assert.rejects(
      RemoteFile.open(url, null, { fetcher: { fetch: async () => (asked++, new Response()) } }),
      { code: 'INVALID_ARGUMENT' },
    );
    assert.equal(asked, 0);
  }
});

test('a redirect loop is not retried', () =>
  serving(
    (q, r) => r.writeHead(302, { Location: q.url }).end(),
    async (base, state) => {
      await assert.rejects(RemoteFile.open(`${base}/m`, null, options), {
        code: 'NETWORK',
        message: /redirect/,
      });
      assert.ok(state.requests <= 22, `${state.requests} requests`);
    },
  ));

test('a range that comes back short is continued at once', async () => {
  const bytes = gguf(1);
  await serving(
    (q, r) => {
      const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(q.headers.range).map(Number);
      q.headers.range = `bytes=${first}-${Math.min(last, first + 4999)}`;
      send(q, r, bytes);
    },
    async (base) => {
      // A retry delay would exceed the test's time limit.
      const fetcher = { ...quick, retryMs: 1e9, retryMaxMs: 1e9 };
      assert.ok((await load(`${base}/m`, nodeBackend(folder()), { fetcher })).equals(bytes));
    },
  );
});

test('an address with a new signature finds the cached file, and list() shows no signature', async () => {
  await serving(
    (q, r) => send(q, r, gguf(1), { ETag: '"1"' }),
    async (base) => {
      const store = nodeBackend(folder());
      const manager = new StoreManager(async () => store);
      await load(`${base}/m.gguf?sig=secret1&v=2`, store);
      const file = await RemoteFile.open(`${base}/m.gguf?v=2&sig=secret2`, store, options);
      assert.equal(file.progress().bytesLocal, file.size);
      file.close();
      const [{ url }] = await manager.list();
      assert.equal(url, `${base}/m.gguf?v=2`);
      assert.equal(await manager.delete(url), true);
      assert.deepEqual(await manager.list(), []);
    },
  );
});

// --- the list --------------------------------------------------------------------------------

test('list, delete and evictOldest treat the files of a directory as one model', async () => {
  const names = [
    'config.json',
    'tokenizer.json',
    'tokenizer_config.json',
    'model.safetensors.index.json',
    'model-00001-of-00002.safetensors',
    'model-00002-of-00002.safetensors',
  ];
  await serving(
    (q, r) => send(q, r, q.url.includes('.json') ? json : tensors),
    async (base) => {
      const store = nodeBackend(folder());
      const manager = new StoreManager(async () => store);
      const fill = async (some = names) => {
        for (const name of some) await load(`${base}/dir/${name}?x=1`, store);
      };
      await fill(names.slice(0, 5));
      assert.deepEqual(
        (await manager.list()).map((m) => [m.url, m.complete]),
        [[`${base}/dir/?x=1`, false]],
      );
      await fill(names.slice(5));
      await load(`${base}/dir/other.gguf`, store);
      const size = 4 * json.length + 2 * tensors.length;
      const list = await manager.list();
      assert.deepEqual(
        list.map((m) => [m.url, m.size, m.bytesCached, m.complete]),
        [
          [`${base}/dir/other.gguf`, tensors.length, tensors.length, true],
          [`${base}/dir/?x=1`, size, size, true],
        ],
      );
      assert.equal(await manager.size(), size + tensors.length);

      const held = await RemoteFile.open(`${base}/dir/${names[5]}?x=1`, store, options);
      await assert.rejects(manager.delete(`${base}/dir/?x=1`), { code: 'CACHE_LOCKED' });
      assert.equal((await manager.list()).length, 2);
      held.close();
      await load(`${base}/dir/other.gguf`, store);
      assert.deepEqual(await manager.evictOldest(tensors.length), [`${base}/dir/?x=1`]);
      assert.deepEqual(
        (await manager.list()).map((m) => m.url),
        [`${base}/dir/other.gguf`],
      );
      for (const address of ['?x=1', 'config.json?x=1', 'model-00001-of-00002.safetensors?x=1']) {
        await fill();
        assert.equal(await manager.delete(`${base}/dir/${address}`), true);
        assert.equal(await manager.delete(`${base}/dir/${address}`), false);
      }
      assert.equal((await manager.list()).length, 1);
    },
  );
});

test('the parts of a split file are one model', async () => {
  await serving(
    (q, r) => send(q, r, gguf(1)),
    async (base) => {
      const store = nodeBackend(folder());
      const manager = new StoreManager(async () => store);
      await load(`${base}/m-00002-of-00002.gguf`, store);
      assert.deepEqual(
        (await manager.list()).map((m) => [m.url, m.complete]),
        [[`${base}/m-00001-of-00002.gguf`, false]],
      );
      await load(`${base}/m-00001-of-00002.gguf`, store);
      assert.deepEqual(
        (await manager.list()).map((m) => m.complete),
        [true],
      );
      assert.equal(await manager.delete(`${base}/m-00001-of-00002.gguf`), true);
      assert.deepEqual(await manager.list(), []);
    },
  );
});

test('evictOldest accepts only a number', async () => {
  const manager = new StoreManager(async () => nodeBackend(folder()));
  for (const size of ['', null, [], '8', undefined, NaN, -1])
    await assert.rejects(manager.evictOldest(size), { code: 'INVALID_ARGUMENT' });
});

// --- reports of what is cached -----------------------------------------------------------------

/** A LocalIo with one open file, and its events in `said`. It is closed after the test. */
async function opened(t, url, store) {
  const said = { phases: [], downloaded: undefined };
  const io = new LocalIo(
    [{ kind: 'url', url }],
    { cache: 'default', tuning: { ...quick, chunkSize: 16384, streamBytes: 131072 } },
    { store: async () => store, hosts },
    {
      onProgress: ({ phase, code }) => said.phases.push(code ?? phase),
      onError: assert.fail,
      onDownloaded: (error) => (said.downloaded = error?.code ?? 'cached'),
    },
  );
  t.after(() => io.close());
  await io.openFile(0, url, 0);
  return { io, said };
}
/** Waits until `holds()`. */
const until = (holds) => eventually(holds, `${holds}`, 10);

test('a download that exceeds the quota is not reported as cached', async (t) => {
  await serving(
    (q, r) => send(q, r, gguf(1)),
    async (base) => {
      const real = nodeBackend(folder());
      const full = fullStore(real, 5);
      const { io, said } = await opened(t, `${base}/m`, full);
      io.startDownload();
      await until(() => said.downloaded);
      assert.equal(said.downloaded, 'QUOTA');
      assert.ok(
        said.phases.includes('QUOTA') && !said.phases.includes('cached'),
        said.phases.join(),
      );
      const all = await io.read(0, 0, gguf(1).length);
      assert.ok(gguf(1).equals(all), 'the rest comes from the network');
    },
  );
});

const stores = { 'one writer': memoryStore, 'several writers': () => nodeBackend(folder()) };

for (const [how, newStore] of Object.entries(stores))
  test(`a second engine reports the model as cached once the first has cached it: ${how}`, async (t) => {
    const bytes = Buffer.concat([gguf(1), Buffer.alloc(6 << 20, 1)]);
    let free = false;
    const slow = [];
    await serving(
      (q, r) =>
        free || q.headers.range.startsWith('bytes=0-')
          ? send(q, r, bytes, { ETag: '"1"' })
          : slow.push(() => send(q, r, bytes, { ETag: '"1"' })),
      async (base) => {
        const store = newStore();
        const tabs = [await opened(t, `${base}/m`, store), await opened(t, `${base}/m`, store)];
        for (const { io } of tabs) io.startDownload();
        await new Promise((later) => setTimeout(later, 100));
        assert.deepEqual(
          tabs.map(({ said }) => said.downloaded),
          [undefined, undefined],
        );
        free = true;
        slow.forEach((answer) => answer());
        await until(() => tabs.every(({ said }) => said.downloaded));
        assert.deepEqual(
          tabs.map(({ said }) => [said.downloaded, said.phases.includes('cached')]),
          [
            ['cached', true],
            ['cached', true],
          ],
        );
      },
    );
  });

for (const [how, newStore] of Object.entries(stores))
  test(`a second engine continues the download when the first is closed: ${how}`, async (t) => {
    const bytes = Buffer.concat([gguf(1), Buffer.alloc(4 << 20, 1)]);
    let free = false;
    await serving(
      (q, r) =>
        (free || q.headers.range.startsWith('bytes=0-')) && send(q, r, bytes, { ETag: '"1"' }),
      async (base) => {
        const store = newStore();
        const [first, second] = [
          await opened(t, `${base}/m`, store),
          await opened(t, `${base}/m`, store),
        ];
        second.io.startDownload();
        await first.io.close();
        free = true;
        await until(() => second.said.downloaded);
        assert.equal(second.said.downloaded, 'cached');
        assert.equal((await new StoreManager(async () => store).list())[0].complete, true);
      },
    );
  });

test('without a cache nothing is reported as cached', async (t) => {
  await serving(
    (q, r) => send(q, r, gguf(1)),
    async (base) => {
      const { io, said } = await opened(t, `${base}/m`, null);
      io.startDownload();
      await until(() => said.downloaded);
      assert.ok(!said.phases.includes('cached'));
    },
  );
});

// --- several processes -------------------------------------------------------------------------

/** Runs a script in another process; resolves to the lines that it has printed. */
async function elsewhere(script) {
  const file = join(folder(), 'other.mjs');
  writeFileSync(
    file,
    `import { nodeBackend } from ${JSON.stringify(bundleOf('io/store-node'))};\nconst block = 1 << 22;\n${script}`,
  );
  const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.on('data', (part) => (out += part));
  await once(child, 'close');
  return out.trim().split('\n');
}

/** `work` gets an entry with its header, as the second request of a load leaves it. */
const withEntry = (work) =>
  serving(
    (q, r) => send(q, r, gguf(1), { ETag: '"1"' }),
    async (base) => {
      const directory = folder();
      const url = `${base}/m`;
      const file = await RemoteFile.open(url, nodeBackend(directory), options);
      file.close();
      await work({ directory, url, entry: await nodeBackend(directory).open(url) });
    },
  );

test('one process reserves a block, the next one after its release or its death', async () => {
  await withEntry(async ({ directory, url, entry }) => {
    const tries = (end) =>
      elsewhere(`
        const entry = await nodeBackend(${JSON.stringify(directory)}).open(${JSON.stringify(url)});
        console.log([0, 1].map((i) => entry.several.reserve(i * block, i * block + 1) > i * block).join());
        ${end}`);
    assert.equal(entry.several.reserve(0, 1) > 0, true);
    assert.deepEqual(await tries('process.exit(0)'), ['false,true']); // and dies with its lock
    assert.deepEqual(await tries('entry.release(); process.exit(0)'), ['false,true']);
    entry.several.unreserve(0, 1);
    assert.deepEqual(await tries('entry.release(); process.exit(0)'), ['true,true']);
    // A lock that is not refreshed, and one of another machine.
    const [name] = readdirSync(directory);
    const old = new Date(Date.now() - 60_000);
    for (const [text, when, taken] of [
      [`${process.pid} ${hostname()}\n`, old, true],
      [`1 another-machine\n`, old, true],
      [`1 another-machine\n`, new Date(), false],
      [``, new Date(), false],
    ]) {
      const lock = join(directory, name, 'get-0');
      writeFileSync(lock, text);
      utimesSync(lock, when, when);
      entry.several.lookAgain();
      assert.equal(entry.several.reserve(0, 1) > 0, taken, text);
      if (taken) entry.several.unreserve(0, 1);
      rmSync(lock, { force: true });
    }
    entry.release();
  });
});

test('an entry in use is not deleted, one that a dead process used is', async () => {
  await withEntry(async ({ directory, url, entry }) => {
    const manager = new StoreManager(async () => nodeBackend(directory));
    await assert.rejects(manager.delete(url), { code: 'CACHE_LOCKED' });
    entry.release();
    await elsewhere(`
      await nodeBackend(${JSON.stringify(directory)}).open(${JSON.stringify(url)});
      process.exit(0);`);
    const [name] = readdirSync(directory);
    assert.ok(readdirSync(join(directory, name)).some((file) => file.startsWith('use-')));
    assert.equal(await manager.delete(url), true);
    assert.deepEqual(readdirSync(directory), []);
  });
});

test('a limit evicts what was used least recently, but nothing in use', async () => {
  const bytes = gguf(1);
  await serving(
    (q, r) => send(q, r, bytes, { ETag: '"1"' }),
    async (base) => {
      const store = nodeBackend(folder(), 3.5 * bytes.length);
      const urls = async () =>
        (await new StoreManager(async () => store).list()).map(({ url }) => url.at(-1)).sort();
      for (const name of ['a', 'b', 'c', 'a']) {
        await load(`${base}/${name}`, store);
        await new Promise((later) => setTimeout(later, 5)); // times of use are milliseconds
      }
      const used = await RemoteFile.open(`${base}/b`, store, options);
      await load(`${base}/d`, store);
      assert.deepEqual(await urls(), ['a', 'b', 'd']);
      used.close();
      const small = nodeBackend(folder(), bytes.length - 1);
      const warnings = [];
      const file = await RemoteFile.open(`${base}/a`, small, {
        ...options,
        onWarning: (code) => warnings.push(code),
      });
      const all = Buffer.alloc(bytes.length);
      await file.read(0, all);
      assert.ok(all.equals(bytes));
      assert.deepEqual([warnings, await small.keys()], [['QUOTA'], []]);
      file.close();
    },
  );
});

test('a directory that cannot be written is a warning, and the file is read', async () => {
  const file = join(folder(), 'file');
  writeFileSync(file, '');
  await serving(
    (q, r) => send(q, r, gguf(1), { ETag: '"1"' }),
    async (base) => {
      const warnings = [];
      const open = await RemoteFile.open(`${base}/m`, nodeBackend(join(file, 'cache')), {
        ...options,
        onWarning: (code) => warnings.push(code),
      });
      const all = Buffer.alloc(open.size);
      await open.read(0, all);
      assert.ok(all.equals(gguf(1)));
      assert.deepEqual(warnings, ['IO']);
      open.close();
    },
  );
});
