// KV cache of a sequence on the GPU, a copy of the engine's own one (src/kv/kv_cache.h). Each layer has
// a buffer of [capacity] rows; a row has the keys of all heads, then their values. Rows that the GPU
// lacks are uploaded, and rows that a pass computed are downloaded. If the engine has no memory for its
// own one (Program.kvOnGpu), nothing is copied; kv-state.ts then saves and restores it. A quantized
// cache is in quantized-cache.ts.

import { Usage, type Buffers } from './buffers.js';
import { keptBytes } from './eviction-plan.js';
import type { Cache } from './kernels.js';
import { align } from './plan.js';
import { KvType, OpKind, Word, type CacheShape, type Program } from './program.js';

/** Values of a block. */
export const kBlock = 32;

/** Rows of one kind in a layer's buffer: where the first begins, bytes of a row, and how many there are. */
export interface Rows {
  at: number;
  row: number;
  capacity: number;
}

export interface Layer {
  index: number;
  shape: CacheShape;
  buffer: GPUBuffer;
  /** Rows of halves are beside the others in q4_0. */
  rows: Rows;
  recent: Rows;
}

/** How rows of a type lie on the GPU and in the engine's memory. */
export interface RowFormat {
  /** The cache for the kernels, without its buffer. */
  describe(layer: Layer): Omit<Cache, 'buffer'>;
  /** Rows that change with positions [first, first + n). */
  spans(layer: Layer, first: number, n: number): [rows: Rows, first: number, n: number][];
  /**
   * Copies `count` rows from `place` on between the engine's memory and `bytes`. `begin`: address of
   * the first head.
   */
  copy(
    own: Uint8Array,
    begin: number,
    layer: Layer,
    rows: Rows,
    place: number,
    bytes: Uint8Array,
    toGpu: boolean,
  ): void;
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

/** Bytes of rows that are downloaded together when a state is saved. */
const kStateChunk = 1 << 20;

/**
 * Bytes on the GPU: of all layers and sequences, of the buffer that saves states, of the largest layer,
 * and of what n positions change at most and is downloaded.
 */
export function cacheBytes(program: Program, n = 0) {
  const shapes = owners(program).map((layer) => program.caches[layer]!);
  const layers = shapes.map(rowsOf);
  const bytes = layers.map((rows) => rows.row * rows.capacity + rows.beside * rows.recent);
  const sum = (all: number[]): number => all.reduce((a, b) => a + b, 0);
  return {
    total: program.parallel * (sum(bytes) + sum(shapes.map(keptBytes))),
    stateChunk: program.kvOnGpu ? Math.max(kStateChunk, ...layers.map(({ row }) => row)) : 0,
    largest: Math.max(0, ...bytes),
    // A group of q4_0 may begin earlier, in each sequence.
    changed: program.kvOnGpu
      ? 0
      : sum(
          layers.map(
            ({ row, beside }) => row * (n + (beside && 63 * program.parallel)) + beside * n,
          ),
        ),
  };
}

interface Run {
  place: number;
  count: number;
}

/** Contiguous runs of the ring buffer that hold positions [first, first + n). */
function* runs(first: number, n: number, capacity: number): Generator<Run> {
  for (let done = 0; done < n;) {
    const place = (first + done) % capacity;
    const count = Math.min(n - done, capacity - place);
    yield { place, count };
    done += count;
  }
}

/** Copies `n` bytes between `own` at `at` and `bytes` at `place`. */
export function move(
  own: Uint8Array,
  at: number,
  bytes: Uint8Array,
  place: number,
  n: number,
  toGpu: boolean,
): void {
  const [from, i, to, j] = toGpu ? [own, at, bytes, place] : [bytes, place, own, at];
  if (n > kBlock) to.set(from.subarray(i, i + n), j);
  else for (let k = 0; k < n; k++) to[j + k] = from[i + k]!; // views of a few bytes take longer
}

/**
 * Copies rows of halves, [heads][dk] and then [heads][dv], of `capacity` that the engine has for each
 * head from `begin` on.
 */
export function copyHalves(
  own: Uint8Array,
  begin: number,
  { heads, dk, dv, headBytes }: CacheShape,
  { row, capacity }: Rows,
  place: number,
  bytes: Uint8Array,
  toGpu: boolean,
): void {
  for (let t = 0; t < bytes.length / row; t++)
    for (let h = 0; h < heads; h++) {
      const keys = begin + h * headBytes;
      const values = keys + 2 * dk * capacity;
      const [at, p] = [t * row, place + t];
      move(own, keys + 2 * dk * p, bytes, at + 2 * h * dk, 2 * dk, toGpu);
      move(own, values + 2 * dv * p, bytes, at + 2 * (heads * dk + h * dv), 2 * dv, toGpu);
    }
}

const halves: RowFormat = {
  describe: ({ shape: { heads, dk, dv }, rows }) => ({
    type: 'f16',
    capacity: rows.capacity,
    keys: 0,
    keyHead: 2 * dk,
    keyRow: rows.row,
    values: dv && 2 * heads * dk, // 0: they are part of the keys
    valueHead: 2 * (dv || dk),
    valueRow: rows.row,
  }),
  spans: ({ rows }, first, n) => [[rows, first, n]],
  copy: (own, begin, { shape }, ...given) => copyHalves(own, begin, shape, ...given),
};

/** KV cache on the GPU, of the sequence of a pass or of several. */
export type KvCopies = Pick<GpuKvCache, 'upload' | 'download' | 'settle'>;

export class GpuKvCache {
  readonly layers: Layer[] = [];
  readonly #memory: WebAssembly.Memory;
  readonly #copies: boolean;
  readonly format: RowFormat;
  /** Cache descriptions for the kernels, by layer. */
  readonly caches: (Cache | null)[];

  constructor(
    program: Program,
    memory: WebAssembly.Memory,
    buffers: Buffers,
    format: RowFormat = halves,
  ) {
    this.#memory = memory;
    this.#copies = !program.kvOnGpu;
    this.format = format;
    this.caches = program.caches.map(() => null);
    for (const index of owners(program)) {
      const shape = program.caches[index]!;
      const { row, beside, capacity, recent } = rowsOf(shape);
      const at = row * capacity;
      const buffer = buffers.make(
        at + beside * recent,
        Usage.Storage | Usage.CopySource | Usage.CopyTarget,
      );
      const layer = {
        index,
        shape,
        buffer,
        rows: { at: 0, row, capacity },
        recent: { at, row: beside, capacity: recent },
      };
      this.layers.push(layer);
      this.caches[index] = { buffer, ...format.describe(layer) };
    }
  }

  /** Uploads the positions before a pass that the GPU lacks. `words`: those of the pass. */
  upload(queue: GPUQueue, words: Uint32Array): void {
    const held = words[Word.Held]!;
    const n = words[Word.First]! - held;
    if (n > 0)
      this.#each(held, n, (layer, rows, place, count) => {
        const bytes = new Uint8Array(count * rows.row);
        this.#copy(words, layer, rows, place, bytes, true);
        queue.writeBuffer(layer.buffer, rows.at + place * rows.row, bytes);
      });
  }

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
  ): number {
    this.#each(first, n, ({ buffer }, { at: rows, row }, place, count) => {
      encoder.copyBufferToBuffer(buffer, rows + place * row, target, at, count * row);
      at += count * row;
    });
    return at;
  }

  /** Writes what was downloaded to the engine's KV cache. */
  settle(words: Uint32Array, bytes: Uint8Array, first: number, n: number): void {
    let at = 0;
    this.#each(first, n, (layer, rows, place, count) => {
      const end = at + count * rows.row;
      this.#copy(words, layer, rows, place, bytes.subarray(at, end), false);
      at = end;
    });
  }

  /** Visits runs of rows that positions [first, first + n) change, if the engine has them too. */
  #each(
    first: number,
    n: number,
    visit: (layer: Layer, rows: Rows, place: number, count: number) => void,
  ): void {
    if (!this.#copies) return;
    for (const layer of this.layers)
      for (const [rows, { place, count }] of this.runs(layer, first, n))
        visit(layer, rows, place, count);
  }

  /** Runs of rows that positions [first, first + n) of a layer change, if they are still there. */
  *runs(layer: Layer, first: number, n: number): Generator<[Rows, Run]> {
    for (const [rows, from, count] of this.format.spans(layer, first, n)) {
      const begin = Math.max(from, from + count - rows.capacity);
      for (const run of runs(begin, from + count - begin, rows.capacity)) yield [rows, run];
    }
  }

  #copy(
    words: Uint32Array,
    layer: Layer,
    rows: Rows,
    place: number,
    bytes: Uint8Array,
    toGpu: boolean,
  ): void {
    const { buffer } = this.#memory;
    const [begin] = new Uint32Array(buffer, words[Word.Rows]! + 16 * layer.index, 1);
    this.format.copy(new Uint8Array(buffer), begin!, layer, rows, place, bytes, toGpu);
  }
}
