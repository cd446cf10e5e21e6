// Experts of a mixture in QSF files of version 2, as the package reads them: one read per record,
// which is verified alone, and an error for every impossible table. The file's logits are compared in
// qsf.test.mjs.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { importWeb, root } from './helpers.mjs';

const original = readFileSync(join(root, 'tests', 'data', 'qsf', 'experts.qsf'));
const place = Number(original.readBigUInt64LE(112));
const size = original.readUInt32LE(120);
const record = Number(original.readBigUInt64LE(place));
const stored = original.readUInt32LE(place + 8);
const experts = original.readUInt32LE(place + 12);
const slice = original.readUInt32LE(place + 24);
const stride = Math.ceil(stored / 4096) * 4096;
const address = 2 ** 52;

/** A file that notes what is read and discarded. */
class Counted {
  name = 'experts.qsf';
  reads = [];
  refreshed = [];
  constructor(bytes = original, whole = false) {
    this.bytes = bytes;
    this.size = bytes.length;
    this.whole = whole;
  }
  read(offset, into) {
    assert.ok(offset >= 0 && offset + into.length <= this.size, `${offset}`);
    this.reads.push([offset, into.length]);
    into.set(this.bytes.subarray(offset, offset + into.length));
    return this.whole ? true : Promise.resolve();
  }
  refresh(offset, length) {
    this.refreshed.push([offset, length]);
    this.mend?.();
  }
}

describe('a file with a record per expert', () => {
  let openQsf;
  before(async () => ({ openQsf } = await importWeb('io/qsf')));

  async function opened(file) {
    const qsf = await openQsf(file);
    file.reads.length = 0;
    return qsf;
  }
  /** Bytes [at, at + length) of tensor `tensor` of layer 0. */
  async function read(qsf, tensor, at, length) {
    const into = new Uint8Array(length);
    await qsf.read(address + tensor * experts * slice + at, into);
    return Buffer.from(into);
  }
  const inFile = (expert, tensor) => {
    const at = record + expert * stride + tensor * slice;
    return original.subarray(at, at + slice);
  };

  test('the slices of an expert are one read', async () => {
    assert.equal(original.readUInt32LE(place + 16), 3);
    assert.ok(slice % 64 === 0 && stored === 3 * slice && experts > 3);
    const file = new Counted();
    const qsf = await opened(file);
    assert.ok(qsf.held >= stored);
    const slices = await Promise.all([0, 1, 2].map((t) => read(qsf, t, 2 * slice, slice)));
    slices.forEach((bytes, t) => assert.deepEqual(bytes, inFile(2, t)));
    assert.deepEqual(file.reads, [[record + 2 * stride, stored]]);
    // Another expert takes the place of the first, which is then read again.
    await read(qsf, 0, 3 * slice, slice);
    await read(qsf, 0, 2 * slice, slice);
    assert.equal(file.reads.length, 3);
  });

  test('a verified expert of a complete file is read to its destination', async () => {
    const file = new Counted(original, true);
    const qsf = await opened(file);
    await read(qsf, 1, slice, slice);
    await read(qsf, 1, 0, slice);
    file.reads.length = 0;
    assert.equal(qsf.read(address + experts * slice + slice + 8, new Uint8Array(16)), true);
    assert.deepEqual(file.reads, [[record + stride + slice + 8, 16]]);
  });

  test('a range of several experts is put together', async () => {
    const qsf = await opened(new Counted());
    const all = Buffer.concat(Array.from({ length: experts }, (_, e) => inFile(e, 1)));
    assert.deepEqual(await read(qsf, 1, 0, all.length), all);
    assert.deepEqual(await read(qsf, 1, 5, all.length - 9), all.subarray(5, -4));
  });

  test('only a damaged expert is fetched again, and is an error if it stays damaged', async () => {
    for (const mended of [true, false]) {
      const file = new Counted(Buffer.from(original));
      const at = record + stride + 3;
      file.bytes[at] ^= 1;
      if (mended) file.mend = () => (file.bytes[at] ^= 1);
      const qsf = await opened(file);
      assert.deepEqual(await read(qsf, 0, 0, slice), inFile(0, 0));
      const damaged = read(qsf, 2, slice, slice);
      if (mended) assert.deepEqual(await damaged, inFile(1, 2));
      else await assert.rejects(damaged, { code: 'CORRUPT', message: /^An expert of/ });
      assert.deepEqual(file.refreshed, [[record + stride, stored]]);
      assert.deepEqual(await read(qsf, 0, 2 * slice, slice), inFile(2, 0));
    }
  });

  test('impossible tables and ranges are errors', async () => {
    const changes = [
      [112, 0, place - 8],
      [116, 1, 0xffffffff],
      [120, 1, 23, size - 4, size + 4, 0xffffffff],
      [place + 8, 0, 1, stored - 1],
      [place + 12, 0, experts - 1, 0xffffffff],
      [place + 16, 0, 65, 0xffffffff],
      [place + 20, 0],
      [place + 24, 0, 0xffffffff],
    ];
    for (const [at, ...values] of changes)
      for (const value of values) {
        const bytes = Buffer.from(original);
        bytes.writeUInt32LE(value, at);
        await assert.rejects(
          openQsf(new Counted(bytes)),
          { code: 'BAD_HEADER' },
          `${at}: ${value}`,
        );
      }
    const qsf = await opened(new Counted());
    for (const at of [3 * experts * slice - 8, 2 ** 40 * 9])
      assert.throws(() => qsf.read(address + at, new Uint8Array(16)), { code: 'TRUNCATED' });
    const old = Buffer.from(original);
    old.writeUInt32LE(1, 4);
    const none = await openQsf(new Counted(old));
    assert.throws(() => none.read(address, new Uint8Array(16)), { code: 'BAD_HEADER' });
  });
});
