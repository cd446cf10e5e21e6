// KV cache on the GPU, a copy of the engine's own one (src/kv/kv_cache.h). Each layer has a buffer
// of [capacity] rows; a row has the keys of all heads, then their values, in f16. Rows that the GPU
// lacks are uploaded, and rows that a pass computed are downloaded.

import { Usage, type Buffers } from './buffers.js';
import type { Cache } from './kernels.js';
import { OpKind, Word, type CacheShape, type Program } from './program.js';

interface Layer {
  index: number;
  shape: CacheShape;
  buffer: GPUBuffer;
  /** Bytes per position. */
  row: number;
}

/** Bytes of one position of a layer. */
const rowBytes = ({ heads, dk, dv }: CacheShape): number => 2 * heads * (dk + dv);

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
      const keys = { keys: 0, keyHead: 2 * shape.dk, keyRow: row };
      const values = shape.dv
        ? { values: 2 * shape.heads * shape.dk, valueHead: 2 * shape.dv, valueRow: row }
        : { values: 0, valueHead: keys.keyHead, valueRow: row };
      this.caches[index] = { buffer, type: 'f16', capacity: shape.capacity, ...keys, ...values };
    }
  }

  /** Uploads positions [from, to). `words`: those of the pass. */
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
    for (let t = 0; t < count; t++) {
      for (let h = 0; h < heads; h++) {
        const at = t * row + 2 * h * dk;
        visit(
          new Uint8Array(this.#memory.buffer, keys + h * headBytes + 2 * (place + t) * dk, 2 * dk),
          at,
        );
        if (dv === 0) continue;
        visit(
          new Uint8Array(
            this.#memory.buffer,
            values + h * headBytes + 2 * (place + t) * dv,
            2 * dv,
          ),
          t * row + 2 * heads * dk + 2 * h * dv,
        );
      }
    }
  }
}
