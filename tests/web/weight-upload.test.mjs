// Staging buffers of weights: chunks are read ahead, in order, and a read that fails or is late leaves nothing
// behind. A device reports an error if a destroyed buffer is mapped, and its next engine would lose it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { WeightUpload } = await importWeb('gpu/weight-upload');
const kBytes = 16;

/** A buffer of WebGPU, which is mapped from the beginning. */
class FakeBuffer {
  mapState = 'mapped';
  destroyed = false;
  errors = [];
  #range = new ArrayBuffer(kBytes);
  getMappedRange() {
    if (this.mapState !== 'mapped') throw new DOMException('not mapped', 'OperationError');
    return this.#range;
  }
  unmap() {
    if (this.mapState !== 'mapped') return;
    this.bytes = [...new Uint8Array(this.#range)];
    structuredClone(this.#range, { transfer: [this.#range] });
    this.mapState = 'unmapped';
  }
  destroy() {
    this.unmap();
    this.destroyed = true;
  }
  async mapAsync() {
    if (this.destroyed) {
      this.errors.push('a destroyed buffer is mapped');
      throw new DOMException('destroyed', 'OperationError');
    }
    await null;
    if (this.destroyed) throw new DOMException('destroyed', 'AbortError');
    this.#range = new ArrayBuffer(kBytes);
    this.mapState = 'mapped';
  }
}

/** Uploads a matrix of some units, whose reads settle by settle(). */
function setUp({ staging = 2, count = 2 } = {}) {
  const made = [];
  const waiting = [];
  const program = { mats: [{ file: 0, offset: 100, rowBytes: kBytes }] };
  const units = Array.from({ length: count }, (_, row0) => ({
    bytes: kBytes,
    pieces: [{ mat: 0, row0, rows: 1, at: 0, bytes: kBytes }],
  }));
  const buffers = { make: () => (made.push(new FakeBuffer()), made.at(-1)) };
  const read = (file, offset, length) =>
    new Promise((resolve, reject) => waiting.push({ offset, length, resolve, reject }));
  const plan = { units, staging, stagingBytes: kBytes };
  const upload = new WeightUpload(program, plan, buffers, read, () => false);
  const settle = (error) => {
    const { offset, length, resolve, reject } = waiting.shift();
    if (error) reject(error);
    else resolve(new Uint8Array(length).fill(offset));
  };
  const errors = () => made.flatMap(({ errors }) => errors);
  return { upload, made, waiting, settle, errors };
}
const turns = () => new Promise((done) => setImmediate(done));

test('chunks come in order, and their buffers are used again', async () => {
  const { upload, settle, errors } = setUp();
  for (const unit of [0, 1, 0]) {
    const coming = upload.chunk(unit, 0);
    await turns();
    settle();
    const { staging, to } = await coming;
    assert.deepEqual([staging.bytes[0], to], [100 + unit * kBytes, kBytes]);
    upload.give(staging);
  }
  assert.equal(upload.bytes, 3 * kBytes);
  assert.deepEqual(errors(), []);
});

test('a buffer whose read has failed is used again', async () => {
  const { upload, waiting, settle, errors } = setUp({ staging: 1 });
  for (const error of [new Error('a bad read'), new Error('another one')]) {
    const coming = upload.chunk(0, 0);
    for (; !waiting.length;) await turns();
    settle(error);
    await assert.rejects(coming, error);
    await turns();
    settle(error); // of the next chunk, which is not the one that is missing
  }
  const coming = upload.chunk(0, 0);
  await turns();
  settle();
  assert.equal((await coming).staging.bytes[0], 100);
  assert.deepEqual(errors(), []);
});

test('another chunk is needed while a buffer comes back', async () => {
  const { upload, settle } = setUp({ count: 3 });
  const coming = upload.chunk(0, 0);
  await turns();
  settle();
  upload.give((await coming).staging);
  const again = upload.chunk(0, 0); // not the second one, which is being read
  await turns();
  settle();
  await turns();
  settle();
  assert.equal((await again).staging.bytes[0], 100);
});

for (const error of [null, new Error('the files are closed')])
  test(`buffers are destroyed while a read ${error ? 'fails' : 'arrives'}`, async () => {
    const { upload, made, waiting, settle, errors } = setUp();
    upload.ahead();
    assert.equal(waiting.length, 2);
    for (const buffer of made) buffer.destroy();
    while (waiting.length) {
      settle(error);
      await turns();
    }
    assert.deepEqual(errors(), []);
    assert.equal(upload.bytes, 0);
    assert.equal(waiting.length, 0, 'nothing more is read');
  });
