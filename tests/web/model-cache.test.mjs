// The format of the model cache and its directory in Node, by tests/data/model-cache.json, which the
// unit tests of the native program use too.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const index = await importWeb('io/store-index');
const { xxh32 } = await importWeb('io/xxh32');
const { cacheDirectory, cacheSize } = await importWeb('io/cache-directory');
const vectors = JSON.parse(readFileSync(new URL('../data/model-cache.json', import.meta.url)));
const bytesOf = (text) => Uint8Array.from(Buffer.from(text));

test('checksums and headers are those of the native program', () => {
  assert.ok(vectors.checksums.length > 4 && vectors.entries.length > 3);
  for (const { text, xxh32: sum } of vectors.checksums) assert.equal(xxh32(bytesOf(text)), sum);
  for (const { head, name, header, ...meta } of vectors.entries) {
    assert.equal(index.entryName(meta, bytesOf(head)), name);
    const bytes = index.encodeMeta(meta);
    assert.equal(bytes.length, 8192);
    assert.equal(Buffer.from(bytes).toString('hex').slice(0, header.length), header);
    const { bytesCached, ...read } = index.describeIndex(bytes);
    assert.equal(bytesCached, 0);
    assert.deepEqual(
      { ...read, etag: read.etag ?? '', lastModified: read.lastModified ?? '' },
      meta,
    );
  }
});

test('every damaged header is rejected', () => {
  const good = index.encodeMeta(vectors.entries[0]);
  for (let i = 0; i < vectors.entries[0].header.length / 2; i++) {
    const bytes = good.slice();
    bytes[i] ^= 0x20;
    assert.equal(index.describeIndex(bytes) !== null, i >= 8 && i < 16, `byte ${i}`);
  }
  for (let length = 0; length < good.length; length += 101)
    assert.equal(index.describeIndex(good.subarray(0, length)), null);
});

test('impossible sizes are rejected', () => {
  const accepted = (size, chunkSize) =>
    index.describeIndex(index.encodeMeta({ ...vectors.entries[0], size, chunkSize })) !== null;
  assert.ok(accepted(0, 4096) && accepted(2 ** 42, 262144));
  assert.ok(!accepted(2 ** 42 + 1, 262144) && !accepted(2 ** 42, 4096));
  for (const chunkSize of [0, 2048, 5000, 8 << 20]) assert.ok(!accepted(100, chunkSize));
  assert.throws(
    () => index.encodeMeta({ ...vectors.entries[0], url: 'x'.repeat(9000) }),
    RangeError,
  );
});

test('directories and limits are those of the native program', () => {
  assert.ok(vectors.directories.length > 9 && vectors.limits.length > 8);
  for (const { system, given, environment, directory } of vectors.directories)
    assert.equal(cacheDirectory(given, environment, system) ?? '', directory);
  for (const { text, bytes } of vectors.limits)
    if (bytes === undefined)
      assert.throws(() => cacheSize(text), {
        code: 'INVALID_ARGUMENT',
        message: `SLUICE_CACHE_SIZE: "${text}" is not a size such as 64M or 1.5G`,
      });
    else assert.equal(cacheSize(text), bytes || Infinity);
});
