// KV cache on the GPU, a copy of the engine's own one (src/kv/kv_cache.h). Each layer has a buffer
// of [capacity] rows; a row has the keys of all heads, then their values. Rows that the GPU lacks are
// uploaded, and rows that a pass computed are downloaded. A quantized cache is in quantized-cache.ts.

import { Usage, type Buffers } from './buffers.js';
import type { Cache } from './kernels.js';
import { align } from './plan.js';
import { KvType, OpKind, Word, type CacheShape, type Program } from './program.js';

/** Values of a block. */
export const kBlock = 32;

/** A copy of the engine's KV cache. */
export interface KvCopy {
  /** Cache descriptions for the kernels, by layer. */
  readonly caches: (Cache | null)[];
  /** Uploads positions [from, to). `words`: those of the pass. */
  upload(queue: GPUQueue, words: Uint32Array, from: number, to: number): void;
  /**
   * Copies what positions [first, first + n) have changed to `target` at byte `at`, layer by layer.
   * Returns the end.
   */
  download(
    encoder: GPUCommandEncoder,
    target: GPUBuffer,
    at: number,
    first: number,
    n: number,
  ): number;
  /** Writes what was downloaded to the engine's KV cache. */
  settle(words: Uint32Array, rows: Uint8Array, first: number, n: number): void;
}

interface Layer {
  index: number;
  shape: CacheShape;
  buffer: GPUBuffer;
  /** Bytes per position. */
  row: number;
}

/**
 * Rows of a layer: bytes of one, and of its halves beside blocks of q4_0; how many rows there are, and
 * rows of halves.
 */
export function rowsOf({ heads, dk, dv, type, capacity, headBytes }: CacheShape) {
  const blocks = Math.ceil(dk / kBlock) + Math.ceil(dv / kBlock);
  const halves = 2 * (dk + dv);
  if (type !== KvType.Q4)
    return { row: heads * (type ? blocks * 36 : halves), beside: 0, capacity, recent: 0 };
  const whole = align(capacity, 64);
  const recent = (headBytes - whole * blocks * 18) / halves;
  return { row: heads * blocks * 20, beside: heads * halves, capacity: whole, recent };
}

/** Layers with their own KV cache. */
export function owners(program: Program): number[] {
  const ops = program.ops.filter(({ kind, att }) => kind === OpKind.Attention && att.owned);
  return [...new Set(ops.map(({ att }) => att.cache))];
}

/** Bytes on the GPU: of all layers, of the largest layer, and of what n positions change at most. */
export function cacheBytes(program: Program, n = 0) {
  const layers = owners(program).map((layer) => rowsOf(program.caches[layer]!));
  const bytes = layers.map((rows) => rows.row * rows.capacity + rows.beside * rows.recent);
  const sum = (all: number[]): number => all.reduce((a, b) => a + b, 0);
  return {
    total: sum(bytes),
    largest: Math.max(0, ...bytes),
    // A group of q4_0 may begin earlier.
    changed: sum(layers.map(({ row, beside }) => row * (n + (beside && 63)) + beside * n)),
  };
}

/** Contiguous runs of the ring buffer that hold positions [first, first + n). */
export function* runs(
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

export class GpuKvCache implements KvCopy {
  readonly #layers: Layer[] = [];
  readonly #memory: WebAssembly.Memory;
  readonly caches: (Cache | null)[];

  constructor(program: Program, memory: WebAssembly.Memory, buffers: Buffers) {
    this.#memory = memory;
    this.caches = program.caches.map(() => null);
    for (const index of owners(program)) {
      const shape = program.caches[index]!;
      const { row } = rowsOf(shape);
      const buffer = buffers.make(
        row * shape.capacity,
        Usage.Storage | Usage.CopySource | Usage.CopyTarget,
      );
      this.#layers.push({ index, shape, buffer, row });
      const { heads, dk, dv, capacity } = shape;
      this.caches[index] = {
        buffer,
        type: 'f16',
        capacity,
        keys: 0,
        keyHead: 2 * dk,
        keyRow: row,
        values: dv && 2 * heads * dk, // 0: they are part of the keys
        valueHead: 2 * (dv || dk),
        valueRow: row,
      };
    }
  }

  upload(queue: GPUQueue, words: Uint32Array, from: number, to: number): void {
    for (const layer of this.#layers) {
      const { capacity } = layer.shape;
      const first = Math.max(from, to - capacity);
      for (const { place, count } of runs(first, to - first, capacity)) {
        const rows = new Uint8Array(count * layer.row);
        this.#each(layer, words, place, count, (pool, at) => rows.set(pool, at));
        queue.writeBuffer(layer.buffer, place * layer.row, rows);
      }
    }
  }

  download(
    encoder: GPUCommandEncoder,
    target: GPUBuffer,
    at: number,
    first: number,
    n: number,
  ): number {
    for (const { shape, buffer, row } of this.#layers) {
      for (const { place, count } of runs(first, n, shape.capacity)) {
        encoder.copyBufferToBuffer(buffer, place * row, target, at, count * row);
        at += count * row;
      }
    }
    return at;
  }

  settle(words: Uint32Array, rows: Uint8Array, first: number, n: number): void {
    let at = 0;
    for (const layer of this.#layers) {
      for (const { place, count } of runs(first, n, layer.shape.capacity)) {
        const from = at;
        this.#each(layer, words, place, count, (pool, offset) =>
          pool.set(rows.subarray(from + offset, from + offset + pool.length)),
        );
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
      const begin = from + h * headBytes + (place + t) * 2 * n;
      visit(new Uint8Array(this.#memory.buffer, begin, 2 * n), t * row + at);
    };
    for (let t = 0; t < count; t++) {
      for (let h = 0; h < heads; h++) {
        side(keys, dk, h, t, 2 * h * dk);
        if (dv) side(values, dv, h, t, 2 * (heads * dk + h * dv));
      }
    }
  }
}
