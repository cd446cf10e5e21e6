// QSF files through the package, in Node and in Chromium: from a path, by ranges into the cache and
// from the cache, resident and at the smallest budget, compressed or not. They must be
// bit-identical to the GGUF file that they were made from. A layer that arrives damaged is fetched
// again, and is an error if it stays damaged.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { serve } from '../../web/scripts/serve.mjs';
import { extent, longOnly } from '../extent.mjs';
import { crossOrigin, inTab, launch } from './chromium.mjs';
import { importWeb, measureLogits, random, root } from './helpers.mjs';

const dist = join(root, 'dist');
const data = join(root, 'tests', 'data');
/** Compression of the files of tests/data/qsf, which is also their name, and the source model. */
const models = {
  none: 'llama4-chunks',
  lz4: 'llama4-chunks',
  zstd: 'qwen3moe',
  experts: 'qwen3moe', // uncompressed, with a record per expert
};
const packings = Object.keys(models);
const tokens = [1, 17, 29, 45, 31, 8, 12, 50, 5, 9, 20, 41];
const path = (packing) => join(data, 'qsf', `${packing}.qsf`);
const original = (packing) => join(data, 'families', `${models[packing]}.gguf`);
const folder = mkdtempSync(join(tmpdir(), 'sluice-qsf-'));
after(() => rmSync(folder, { recursive: true }));

test("CRC-32 equals zlib's", async () => {
  const { crc32 } = await importWeb('io/crc32');
  const text = new TextEncoder().encode('123456789');
  assert.equal(crc32(text), 0xcbf43926);
  for (let n = 0; n <= 9; n++)
    assert.equal(crc32(text.subarray(n), crc32(text.subarray(0, n))), 0xcbf43926);
  // Of all lengths around its steps of 16 bytes, against the definition.
  const bytes = Uint8Array.from({ length: 300 }, (_, i) => (i * 2654435761) >>> 13);
  let sum = ~0;
  for (let n = 0; n <= bytes.length; n++) {
    assert.equal(crc32(bytes.subarray(0, n)), ~sum >>> 0, `${n} bytes`);
    sum ^= bytes[n];
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
});

/** Decodes a block given in pieces of `give` bytes, at most `take` at a time; null: damaged. */
function decodeLz4(stream, block, give, take) {
  const out = [];
  stream.start();
  for (let at = 0; ;) {
    const part = stream.next(take);
    if (!part) return null;
    out.push(...part);
    if (part.length) continue;
    if (at >= block.length) return stream.ends ? Uint8Array.from(out) : null;
    assert.equal(stream.give(block.subarray(at, at + give)), 0);
    at += give;
  }
}

test('LZ4 blocks unpack in pieces, and invalid blocks are rejected', async () => {
  const { Lz4Stream } = await importWeb('io/lz4');
  const stream = new Lz4Stream();
  // "ab", a match of eight bytes at distance two, then a literal.
  const block = Uint8Array.of(0x24, 97, 98, 2, 0, 0x10, 99);
  for (const [give, take] of [
    [7, 99],
    [1, 99],
    [7, 1],
    [2, 3],
  ])
    assert.equal(String.fromCharCode(...decodeLz4(stream, block, give, take)), 'ababababab' + 'c');
  for (const n of [0, 1, 2, 4, 5, 6])
    assert.equal(decodeLz4(stream, block.subarray(0, n), 9, 99), null);
  // A match at a distance of 65,535, behind 65,535 literals: the window moves in between.
  const literals = Uint8Array.from({ length: 65535 }, (_, i) => (i * i) >> 3);
  const lengths = [...Array(256).fill(255), 240];
  const far = Uint8Array.of(
    ...[0xff, ...lengths, ...literals, 0xff, 0xff, ...Array(1000).fill(255), 0, 0x10, 7],
  );
  const matched = 4 + 15 + 255000;
  for (const give of [far.length, 1000]) {
    const got = decodeLz4(stream, far, give, 50000);
    assert.equal(got.length, 65535 + matched + 1);
    assert.ok(got.subarray(0, -1).every((byte, i) => byte === literals[i % 65535]));
    assert.equal(got.at(-1), 7);
  }
  assert.equal(decodeLz4(stream, Uint8Array.of(0x10, 7, 2, 0, 0x10, 7), 9, 99), null); // before it
  assert.equal(decodeLz4(stream, Uint8Array.of(0x10, 7, 0, 0, 0x10, 7), 9, 99), null); // distance 0
  const next = random(7);
  for (let i = 0; i < 20000; i++) {
    // Any input ends, having decoded no more than its lengths say.
    const odd = Uint8Array.from({ length: 1 + (i % 24) }, () => Math.floor(next() * 256));
    const got = decodeLz4(stream, odd, 5, 64);
    assert.ok(got === null || got.length <= 255 * 24);
  }
});

// The engine then says that it has no tokenizer.
test("another program's file, without a metadata section, is read layer by layer", async () => {
  const { openQsf } = await importWeb('io/qsf');
  const bytes = readFileSync(join(root, 'tests', 'fuzz', 'corpus', 'qsf', 'foreign.qsf'));
  const read = (offset, into) => {
    assert.ok(offset >= 0 && offset + into.length <= bytes.length, `${offset}`);
    into.set(bytes.subarray(offset, offset + into.length));
    return Promise.resolve();
  };
  const file = await openQsf({ name: 'foreign.qsf', size: bytes.length, read });
  const layer = Number(bytes.readBigUInt64LE(Number(bytes.readBigUInt64LE(56))));
  const into = new Uint8Array(100);
  await file.read(layer, into);
  assert.deepEqual(into, new Uint8Array(bytes.subarray(layer, layer + 100)));
});

describe('in Node', () => {
  const wanted = {};
  before(async () => {
    globalThis.Engine = (await import(pathToFileURL(join(dist, 'node.js')).href)).Engine;
    for (const packing of packings)
      wanted[packing] = (
        await measureLogits({ source: original(packing), tokens, options: { threads: 1 } })
      ).logits;
  });

  for (const packing of packings) {
    test(`from a path, ${packing}`, async () => {
      assert.deepEqual(
        (await measureLogits({ source: path(packing), tokens, options: { threads: 1 } })).logits,
        wanted[packing],
      );
      const streamed = await measureLogits({
        source: path(packing),
        tokens,
        smallest: true,
        options: { threads: 2 },
      });
      assert.equal(streamed.resident, false);
      assert.deepEqual(streamed.logits, wanted[packing]);
    });
  }

  test("QSF's own quantization types, skipped layers, head clusters", async () => {
    const source = path('own'); // 2-bit blocks, and the measurements of --calibrate
    const run = (options, smallest = false) =>
      measureLogits({ source, tokens, smallest, options: { threads: 2, ...options } });
    const { logits } = await run({});
    const streamed = await run({}, true);
    assert.equal(streamed.resident, false);
    assert.deepEqual(streamed.logits, logits);
    assert.deepEqual((await run({ approximate: { skipLayersRatio: 0 } })).logits, logits);
    const less = await run({ approximate: { skipLayersRatio: 0.5 } });
    assert.notDeepEqual(less.logits, logits);
    assert.deepEqual(
      (await run({ approximate: { skipLayersRatio: 0.5 } }, true)).logits,
      less.logits,
    );
    for (const options of [2, 'low'])
      await assert.rejects(run({ approximate: { skipLayersRatio: options } }), {
        code: 'INVALID_ARGUMENT',
      });
    await assert.rejects(
      measureLogits({
        source: path('none'),
        tokens,
        options: { approximate: { skipLayersRatio: 0.1 } },
      }),
      /--calibrate/,
    );
    const of = (headClusters, smallest = false) =>
      measureLogits({
        source: path('clusters'),
        tokens,
        smallest,
        options: { threads: 2, approximate: { headClusters } },
      });
    const whole = (await of('off')).logits;
    const largest = (values) => values.indexOf(Math.max(...values));
    assert.deepEqual(whole, wanted.none);
    assert.equal(largest((await of('exact')).logits), largest(whole));
    const few = (await of(4)).logits;
    assert.notDeepEqual(few, whole);
    assert.deepEqual((await of(4, true)).logits, few);
    await assert.rejects(of(257), { code: 'INVALID_ARGUMENT' });
    await assert.rejects(run({ approximate: { headClusters: 8 } }), /--cluster-head/);
    await assert.rejects(run({ approximate: { headClusters: 8 }, device: 'webgpu' }), {
      code: 'INVALID_ARGUMENT',
    });
    const engine = await Engine.load(source, { contextLength: 64, threads: 1 });
    const { embeddingCacheHits, embeddingCacheMisses } = engine.stats().engine;
    assert.equal(embeddingCacheHits + embeddingCacheMisses, 0); // the embedding is resident
    await engine.dispose();
  });

  test('an embedding split into centres and residuals', async () => {
    const source = path('embedding');
    const { logits } = await measureLogits({ source, tokens, options: { threads: 2 } });
    const power = (values) => values.reduce((sum, x) => sum + x * x, 0);
    const error = power(logits.map((x, i) => x - wanted.none[i])) / power(wanted.none);
    assert.ok(error > 0 && error < 1e-3, `${error}`);
    const streamed = await measureLogits({
      source,
      tokens,
      smallest: true,
      options: { threads: 2 },
    });
    assert.equal(streamed.resident, false);
    assert.deepEqual(streamed.logits, logits);
  });

  test('a damaged layer is fetched again, and is an error if it stays damaged', async () => {
    const file = readFileSync(path('zstd'));
    const at = Math.floor(file.length / 2);
    let damaged;
    const server = createServer((request, response) => {
      const [, first, last] = /bytes=(\d+)-(\d*)/
        .exec(request.headers.range ?? 'bytes=0-')
        .map(Number);
      const end = Math.min(last || Infinity, file.length - 1);
      const bytes = Buffer.from(file.subarray(first, end + 1));
      if (first <= at && at <= end && damaged-- > 0) bytes[at - first] ^= 1;
      response.writeHead(206, {
        'Content-Range': `bytes ${first}-${end}/${file.length}`,
        'Content-Length': bytes.length,
        ETag: '"a"',
      });
      response.end(bytes);
    });
    await new Promise((ok) => server.listen(0, '127.0.0.1', ok));
    const source = `http://127.0.0.1:${server.address().port}/model.qsf`;
    try {
      for (const [times, cacheDir] of [
        [1, join(folder, 'once')],
        [Infinity, join(folder, 'ever')],
      ]) {
        damaged = times;
        const told = measureLogits({ source, tokens, options: { threads: 1, cacheDir } });
        if (times === 1) {
          assert.deepEqual((await told).logits, wanted.zstd);
          assert.ok(damaged < 1, 'the damaged byte was never sent');
        } else await assert.rejects(told, { code: 'CORRUPT' });
      }
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});

describe('in Chromium', () => {
  let browser, files;
  before(async () => {
    browser = await launch();
    files = await serve([['/', data]], crossOrigin);
  });
  after(() => Promise.all([browser.close(), files.close()]));

  for (const isolation of [true, false]) {
    test(
      `by ranges and from the cache, ${isolation ? 'with' : 'without'} isolation`,
      { skip: !isolation && longOnly },
      () =>
        inTab(browser, dist, { isolation }, async ({ page, server }) => {
          const run = (args) => page.evaluate(measureLogits, { tokens, options: {}, ...args });
          const engines = () => server.requested.splice(0).filter((url) => /engine\./.test(url));
          for (const packing of extent(['zstd'], packings)) {
            const { logits: wanted } = await run({
              source: `${files.url}/families/${models[packing]}.gguf`,
              options: { cache: 'none' },
            });
            const source = `${files.url}/qsf/${packing}.qsf`;
            const first = await run({ source });
            assert.ok(first.fetched > 0);
            assert.deepEqual(first.logits, wanted, packing);
            const streamed = await run({ source, smallest: true });
            assert.equal(streamed.resident, false);
            assert.deepEqual(streamed.logits, wanted, packing);
            assert.ok(streamed.fetched <= 65536, `${streamed.fetched} bytes were fetched again`);
            assert.deepEqual(
              (await run({ source, options: { cache: 'none' } })).logits,
              wanted,
              packing,
            );
          }
          assert.deepEqual(
            engines().filter((url) => url.includes('-full')),
            [],
          );
          const source = `${files.url}/qsf/own.qsf`;
          const exact = await run({ source, options: { cache: 'none' } });
          assert.deepEqual(
            engines().map((url) => url.includes('-full')),
            [false, true],
          );
          const approximate = { skipLayersRatio: 0.5 };
          const skipping = await run({ source, options: { cache: 'none', approximate } });
          assert.notDeepEqual(skipping.logits, exact.logits);
          const [engine, ...others] = engines();
          assert.match(engine, /engine\.\w+-full\.wasm$/);
          assert.deepEqual(others, []);
        }),
    );
  }
});
