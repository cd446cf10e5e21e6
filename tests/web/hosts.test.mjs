// Unusual hosts: nodes with different ETags, parts that are not what was asked for, compressed
// files, web pages in place of models, hosts that are not there. Each is a fetch() of its own.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { inspect } from 'node:util';
import { fakeModel, importWeb } from './helpers.mjs';

const { RemoteFile } = await importWeb('io/remote-file');
const hosts = await importWeb('io/hosts');
const { nodeBackend } = await importWeb('io/store-node');
const { StoreManager } = await importWeb('io/store-manager');
const { deserializeError, serializeError } = await importWeb('protocol/errors');

const model = fakeModel();
const kUrl = 'http://host/model.gguf';
const folders = [];
const cache = () => nodeBackend(folders[folders.push(mkdtempSync(join(tmpdir(), 'sluice-'))) - 1]);
after(() => folders.forEach((f) => rmSync(f, { recursive: true, force: true })));

/** A fetch() that serves `bytes`; `respond(request, whole)` may change or replace the response. */
function host(bytes, respond = (_, normal) => normal()) {
  let requests = 0;
  return async (url, { headers, signal }) => {
    signal?.throwIfAborted();
    const range = /bytes=(\d+)-(\d*)/.exec(headers.get('range') ?? '');
    const first = range ? Number(range[1]) : 0;
    const end = range ? Math.min(Number(range[2] || Infinity) + 1, bytes.length) : bytes.length;
    const normal = (extra = {}, body = bytes.subarray(first, end)) => {
      const fields = { 'Content-Length': `${body.length}`, ...extra };
      if (range) fields['Content-Range'] ??= `bytes ${first}-${end - 1}/${bytes.length}`;
      if (!fields['Content-Range']) delete fields['Content-Range'];
      return new Response(body, { status: range ? 206 : 200, headers: fields });
    };
    return respond({ n: requests++, range, first, end, url }, normal);
  };
}

async function load(fetch, store, { url = kUrl, ...fetcher } = {}) {
  const warnings = [];
  const file = await RemoteFile.open(url, store, {
    fetcher: { fetch, retryMs: 1, retryMaxMs: 2, ...fetcher },
    chunkSize: 16384,
    streamBytes: 131072,
    hosts: async () => hosts,
    onWarning: (code) => warnings.push(code),
  });
  try {
    const all = Buffer.alloc(file.size);
    const reads = [];
    for (let at = 0; at < all.length; at += 50000)
      reads.push(file.read(at, all.subarray(at, at + 50000)));
    await Promise.all([...reads, file.download()]);
    return { all, warnings, fetched: file.progress().bytesFetched };
  } finally {
    file.close();
  }
}

const nothingIn = async (store) =>
  assert.deepEqual(await new StoreManager(async () => store).list(), []);

const kDate = 'Tue, 01 Jul 2025 00:00:00 GMT';
const nodes =
  (dates, pick = (n) => n % 2) =>
  ({ n }, normal) => {
    const node = pick(n);
    const date = dates[node];
    return normal({ ETag: `"${node}"`, ...(date && { 'Last-Modified': date }) });
  };

for (const [what, dates] of [
  ['the same date', [kDate, kDate]],
  ['a date from one of them', [kDate, undefined]],
]) {
  test(`nodes with different ETags and ${what} serve one file`, async () => {
    const store = cache();
    const { all } = await load(host(model, nodes(dates)), store);
    assert.ok(all.equals(model));
    // Now only one node answers, whichever stored it.
    for (const node of [0, 1]) {
      const again = await load(
        host(
          model,
          nodes(dates, () => node),
        ),
        store,
      );
      assert.ok(again.all.equals(model));
      assert.ok(again.fetched <= 65536, `${again.fetched} bytes fetched again`);
      assert.deepEqual(again.warnings, []);
    }
  });
}

for (const [what, dates, other] of [
  ['different dates', [kDate, 'Wed, 02 Jul 2025 00:00:00 GMT'], model],
  ['no dates', [undefined, undefined], model],
  ['different first bytes', [kDate, kDate], fakeModel({ seed: 2 })],
]) {
  test(`different ETags and ${what} are another file`, async () => {
    // The first request asks for one megabyte.
    const large = (bytes) => Buffer.concat([bytes, bytes]);
    const [old, fresh] = [
      host(
        large(model),
        nodes(dates, () => 0),
      ),
      host(
        large(other),
        nodes(dates, () => 1),
      ),
    ];
    let n = 0;
    const fetch = (...given) => (n++ === 0 ? old : fresh)(...given);
    await assert.rejects(load(fetch, cache()), { code: 'SOURCE_CHANGED' });
  });
}

test('a part without Content-Range is not used: the whole file is requested', async () => {
  const fetch = host(model, ({ range }, normal) =>
    normal({ 'Content-Range': '' }, range ? model.subarray(0, 1000) : model),
  );
  const { all } = await load(fetch, cache());
  assert.ok(all.equals(model));
});

test('parts at a wrong place or of a wrong length are never stored', async () => {
  const wrong = {
    'without Content-Range': (_, normal) => normal({ 'Content-Range': '' }),
    'another place': (_, normal) => normal({ 'Content-Range': `bytes 7-9/${model.length}` }),
    'too long': ({ first }, normal) =>
      normal({ 'Content-Range': `bytes ${first}-${first + 99}/${model.length}` }),
    'a part when nothing less than all was asked for': () =>
      new Response(model.subarray(5), { status: 206 }),
  };
  for (const [what, respond] of Object.entries(wrong)) {
    const store = cache();
    const always = host(model, (request, normal) =>
      request.range || what.startsWith('a part')
        ? respond(request, normal)
        : new Response('', { status: 500 }),
    );
    await assert.rejects(
      load(always, store),
      (error) => /NETWORK|HTTP_STATUS/.test(error.code),
      what,
    );
    await nothingIn(store);
  }
});

test('another origin may hide Content-Range, but always sends the right part', async () => {
  const hidden = (body) => (request, normal) =>
    Object.defineProperty(normal({ 'Content-Range': '' }, body(request)), 'type', {
      value: 'cors',
    });
  // The size comes from the length of a range without an end.
  const right = host(
    model,
    hidden(({ first, end }) => model.subarray(first, end)),
  );
  assert.ok((await load(right, cache())).all.equals(model));
  const large = Buffer.concat([model, model]);
  const fromStart = host(
    large,
    hidden(({ first, end }) => large.subarray(0, end - first)),
  );
  await assert.rejects(load(fromStart, cache()), { code: 'NETWORK', message: /another range/ });
});

for (const visible of [true, false]) {
  test(`a compressed file is read without a range at once (${visible ? 'visible' : 'hidden'})`, async () => {
    // As in Chromium, which rejects a compressed response to a request with a range.
    const retries = [];
    let requests = 0;
    const fetch = host(model, ({ range }, normal) => {
      requests++;
      if (range) throw new TypeError('Failed to fetch');
      return normal(visible ? { 'Content-Encoding': 'gzip', 'Content-Length': '1' } : {});
    });
    const { all } = await load(fetch, cache(), { onRetry: (...given) => retries.push(given) });
    assert.ok(all.equals(model));
    assert.equal(requests, visible ? 2 : 4);
    assert.deepEqual(retries, []);
  });
}

test('a first request that fails once does not end range requests', async () => {
  const seen = [];
  const fetch = host(model, ({ n, range }, normal) => {
    seen.push(Boolean(range));
    if (n === 0) throw new TypeError('Failed to fetch');
    return normal();
  });
  assert.ok((await load(fetch, null)).all.equals(model));
  assert.deepEqual(seen.slice(0, 3), [true, false, true]);
  assert.ok(seen.slice(2).every(Boolean));
});

test('a host that is not there: an event for each retry, then NETWORK with its cause', async () => {
  const retries = [];
  const refuse = async () => {
    const cause = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    throw new TypeError('fetch failed', { cause });
  };
  const failed = load(refuse, null, { onRetry: (...given) => retries.push(given) });
  const error = await failed.then(
    () => assert.fail(),
    (error) => error,
  );
  assert.equal(error.code, 'NETWORK');
  assert.equal(error.cause.cause.code, 'ECONNREFUSED');
  assert.deepEqual(
    retries.map(([failures]) => failures),
    [2, 3, 4],
  );
  assert.match(retries[0][2], /http:\/\/host\/model.gguf.*ECONNREFUSED/);
  const moved = deserializeError(structuredClone(serializeError(error)));
  assert.deepEqual([moved.code, moved.cause.cause.code], ['NETWORK', 'ECONNREFUSED']);
  assert.equal(
    inspect(moved.cause),
    "[TypeError: fetch failed] {\n  [cause]: [Error: connect ECONNREFUSED] { code: 'ECONNREFUSED' }\n}",
  );
});

test('a cause that crosses threads shows no secret of an address', () => {
  const cause = new TypeError('Failed to parse http://u:p@h/m.gguf?sig=secret');
  const error = Object.assign(new Error('x', { cause }), { name: 'SluiceError', code: 'NETWORK' });
  assert.equal(
    deserializeError(serializeError(error)).cause.message,
    'Failed to parse http://h/m.gguf',
  );
});

test('a web page in place of a model is NOT_GGUF, and nothing is stored', async () => {
  const pages = [
    '<!DOCTYPE html><title>Sign in</title>',
    ' \n<html lang=en>',
    '<?xml version="1.0"?>',
  ];
  for (const page of pages) {
    for (const ranges of [true, false]) {
      const store = cache();
      const bytes = Buffer.from(page.padEnd(100_000));
      const fetch = host(bytes, (_, normal) => (ranges ? normal() : new Response(bytes)));
      await assert.rejects(load(fetch, store), { code: 'NOT_GGUF', message: /web page/ });
      await nothingIn(store);
    }
  }
});

test('a new signature is the same file', async () => {
  const store = cache();
  const url = (day) => `${kUrl}?sv=2022&se=2026-01-0${day}&sp=r&sig=s${day}`;
  await load(host(model), store, { url: url(1) });
  const { fetched } = await load(host(model), store, { url: url(2) });
  assert.ok(fetched <= 65536, `${fetched} bytes fetched again`);
  const [{ url: listed }] = await new StoreManager(async () => store).list();
  assert.equal(listed, kUrl);
});
