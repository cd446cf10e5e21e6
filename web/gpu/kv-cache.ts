// KV cache on the GPU, a copy of the engine's own one (src/kv/kv_cache.h). Each layer has a buffer
// of [capacity] rows; a row has the keys of all heads, then their values. Rows that the GPU lacks are
// uploaded, and rows that a pass computed are downloaded. Blocks of q8_0 have 34 bytes in the engine
// and 36 on the GPU, whose scale is a float with the bits of the engine's bfloat16.

import { Usage, type Buffers } from './buffers.js';
import type { Cache } from './kernels.js';
import { KvType, OpKind, Word, type CacheShape, type Program } from './program.js';

/** Values of a block of q8_0, its bytes on the GPU, and the engine's. */
const kBlock = 32,
  kGpuBlock = 36,
  kOwnBlock = 34;

interface Layer {
  index: number;
  shape: CacheShape;
  buffer: GPUBuffer;
  /** Bytes per position. */
  row: number;
}

/** Bytes of n values of a head: on the GPU, and in the engine's memory. */
const gpuBytes = ({ type }: CacheShape, n: number): number =>
  type === KvType.F16 ? 2 * n : Math.ceil(n / kBlock) * kGpuBlock;
const ownBytes = ({ type }: CacheShape, n: number): number =>
  type === KvType.F16 ? 2 * n : Math.ceil(n / kBlock) * kOwnBlock;

/** Bytes of one position of a layer. */
const rowBytes = (shape: CacheShape): number =>
  shape.heads * (gpuBytes(shape, shape.dk) + gpuBytes(shape, shape.dv));

/** The parts of a head's row: bytes in the engine's memory, on the GPU, and how many. */
function* spans(type: KvType, bytes: number): Generator<[own: number, gpu: number, n: number]> {
  if (type === KvType.F16) return yield [0, 0, bytes];
  for (let own = 0, gpu = 0; own < bytes; own += kOwnBlock, gpu += kGpuBlock)
    yield [own, gpu + 2, kOwnBlock];
}

/** Layers with their own KV cache. */
function owners(program: Program): number[] {
  const ops = program.ops.filter(({ kind, att }) => kind === OpKind.Attention && att.owned);
  return [...new Set(ops.map(({ att }) => att.cache))];
}

/** Bytes on the GPU: of all layers, of the largest layer, and of one position in all layers. */
export function cacheBytes(program: Program): { total: number; largest: number; position: number } {
  const shapes = owners(program).map((layer) => program.caches[layer]!);
  const bytes = shapes.map((shape) => rowBytes(shape) * shape.capacity);
  return {
    total: bytes.reduce((a, b) => a + b, 0),
    largest: Math.max(0, ...bytes),
    position: shapes.reduce((sum, shape) => sum + rowBytes(shape), 0),
  };
}

/** Contiguous runs of the ring buffer that hold positions [first, first + n). */
function* runs(
  first: number,
  n: number,
  capacity: number,
): Generator<{ place: number; count: number; done: number }> {
  for (let done = 0; done < n;) {
    const place = (first + done) % capacity;
    const count = Math.min(n - done, capacity - place);
    yield { place, count, done };
    done += count;
  }
}

export class GpuKvCache {
  readonly #layers: Layer[] = [];
  readonly #memory: WebAssembly.Memory;
  /** Cache descriptions for the kernels, by layer. */
  readonly caches: (Cache | null)[];

  constructor(program: Program, memory: WebAssembly.Memory, buffers: Buffers) {
    this.#memory = memory;
    this.caches = program.caches.map(() => null);
    for (const index of owners(program)) {
      const shape = program.caches[index]!;
      const row = rowBytes(shape);
      const buffer = buffers.make(
        row * shape.capacity,
        Usage.Storage | Usage.CopySource | Usage.CopyTarget,
      );
      this.#layers.push({ index, shape, buffer, row });
      const keyHead = gpuBytes(shape, shape.dk);
      const keys = { keys: 0, keyHead, keyRow: row };
      const values = shape.dv
        ? {
            values: shape.heads * keyHead,
            valueHead: gpuBytes(shape, shape.dv),
            valueRow: row,
          }
        : { values: 0, valueHead: keyHead, valueRow: row };
      const type = shape.type === KvType.F16 ? 'f16' : 'q8_0';
      this.caches[index] = { buffer, type, capacity: shape.capacity, ...keys, ...values };
    }
  }

  /** Uploads positions [from, to). `words`: those of the pass. */
  upload(queue: GPUQueue, words: Uint32Array, from: number, to: number): void {
    for (const layer of this.#layers) {
      const { capacity } = layer.shape;
      const first = Math.max(from, to - capacity);
      for (const { place, count } of runs(first, to - first, capacity)) {
        const rows = new Uint8Array(count * layer.row);
        this.#each(layer, words, place, count, (pool, at) => {
          for (const [own, gpu, n] of spans(layer.shape.type, pool.length))
            rows.set(pool.subarray(own, own + n), at + gpu);
        });
        queue.writeBuffer(layer.buffer, place * layer.row, rows);
      }
    }
  }

  /** Copies the rows of positions [first, first + n) to `target` at byte `at`, layer by layer. */
  download(
    encoder: GPUCommandEncoder,
    target: GPUBuffer,
    at: number,
    first: number,
    n: number,
  ): void {
    for (const { shape, buffer, row } of this.#layers) {
      for (const { place, count } of runs(first, n, shape.capacity)) {
        encoder.copyBufferToBuffer(buffer, place * row, target, at, count * row);
        at += count * row;
      }
    }
  }

  /** Writes downloaded rows to the engine's KV cache. */
  settle(words: Uint32Array, rows: Uint8Array, first: number, n: number): void {
    let at = 0;
    for (const layer of this.#layers) {
      for (const { place, count } of runs(first, n, layer.shape.capacity)) {
        const from = at;
        this.#each(layer, words, place, count, (pool, offset) => {
          for (const [own, gpu, n] of spans(layer.shape.type, pool.length))
            pool.set(rows.subarray(from + offset + gpu, from + offset + gpu + n), own);
        });
        at += count * layer.row;
      }
    }
  }

  /** Visits each head's part of each row, in the engine's memory, and its offset in the rows. */
  #each(
    layer: Layer,
    words: Uint32Array,
    place: number,
    count: number,
    visit: (pool: Uint8Array, at: number) => void,
  ): void {
    const { index, shape, row } = layer;
    const { heads, dk, dv, headBytes } = shape;
    const [keys, values] = new Uint32Array(
      this.#memory.buffer,
      words[Word.Rows]! + 16 * index,
      2,
    ) as unknown as [number, number];
    const side = (from: number, n: number, h: number, t: number, at: number): void => {
      const bytes = ownBytes(shape, n);
      const begin = from + h * headBytes + (place + t) * bytes;
      visit(new Uint8Array(this.#memory.buffer, begin, bytes), t * row + at);
    };
    const [key, value] = [gpuBytes(shape, dk), gpuBytes(shape, dv)];
    for (let t = 0; t < count; t++) {
      for (let h = 0; h < heads; h++) {
        side(keys, dk, h, t, h * key);
        if (dv) side(values, dv, h, t, heads * key + h * value);
      }
    }
  }
}
