// Entry of gpu-kv.js: a quantized KV cache on the GPU, a copy of the engine's own one (kernels/kernels.h).
// Each layer has a buffer of [capacity] rows of blocks, keys of all heads before values. A block of 32
// values has two bytes more than the engine's: its scale is a float with the bits of the bfloat16. The
// engine interleaves keys of q4_0 by runs of 16 positions; here they are like values. Behind the rows
// are those of halves, for the latest positions of q4_0.

import { Usage, type Buffers } from './buffers.js';
import type { Cache } from './kernels.js';
import { kBlock, owners, rowsOf, runs, type KvCopy } from './kv-cache.js';
import { groupsOf } from './kernels/quantized-kv.js';
import { KvType, Word, type CacheShape, type Program } from './program.js';

export * as kernels from './kernels/quantized-kv.js';

/** Positions whose keys the engine interleaves in q4_0. */
const kRun = 16;

interface Layer {
  index: number;
  shape: CacheShape;
  buffer: GPUBuffer;
  /** Of blocks and of halves: where the first row begins, bytes of a row, and how many there are. */
  blocks: Rows;
  halves: Rows;
}
interface Rows {
  at: number;
  row: number;
  capacity: number;
}

const blocksOf = (n: number): number => Math.ceil(n / kBlock);
/** Bytes of a block in the engine's memory. */
const ownBlock = ({ type }: CacheShape): number => (type === KvType.Q8 ? 34 : 18);

export class QuantizedCache implements KvCopy {
  readonly #layers: Layer[] = [];
  readonly #memory: WebAssembly.Memory;
  readonly caches: (Cache | null)[];

  constructor(program: Program, memory: WebAssembly.Memory, buffers: Buffers) {
    this.#memory = memory;
    this.caches = program.caches.map(() => null);
    for (const index of owners(program)) {
      const shape = program.caches[index]!;
      const { heads, dk, dv, type } = shape;
      const { row, beside, capacity, recent } = rowsOf(shape);
      const blocks = { at: 0, row, capacity };
      const halves = { at: row * capacity, row: beside, capacity: recent };
      const buffer = buffers.make(
        halves.at + halves.row * halves.capacity,
        Usage.Storage | Usage.CopySource | Usage.CopyTarget,
      );
      this.#layers.push({ index, shape, buffer, blocks, halves });
      const block = ownBlock(shape) + 2;
      this.caches[index] = {
        buffer,
        type: type === KvType.Q8 ? 'q8_0' : 'q4_0',
        capacity,
        keys: 0,
        keyHead: blocksOf(dk) * block,
        keyRow: row,
        values: heads * blocksOf(dk) * block,
        valueHead: blocksOf(dv) * block,
        valueRow: row,
        recent: { recent_at: halves.at / 4, recent_capacity: recent || 1 },
      };
    }
  }

  upload(queue: GPUQueue, words: Uint32Array, from: number, to: number): void {
    for (const layer of this.#layers)
      for (const [rows, first, n] of this.#spans(layer, from, to - from)) {
        const begin = Math.max(first, first + n - rows.capacity);
        for (const { place, count } of runs(begin, first + n - begin, rows.capacity)) {
          const bytes = new Uint8Array(count * rows.row);
          this.#copy(layer, rows, words, place, count, bytes, true);
          queue.writeBuffer(layer.buffer, rows.at + place * rows.row, bytes);
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
    for (const layer of this.#layers)
      for (const [rows, from, count] of this.#spans(layer, first, n))
        for (const run of runs(from, count, rows.capacity)) {
          const bytes = run.count * rows.row;
          encoder.copyBufferToBuffer(
            layer.buffer,
            rows.at + run.place * rows.row,
            target,
            at,
            bytes,
          );
          at += bytes;
        }
    return at;
  }

  settle(words: Uint32Array, rows: Uint8Array, first: number, n: number): void {
    let at = 0;
    for (const layer of this.#layers)
      for (const [kind, from, count] of this.#spans(layer, first, n))
        for (const run of runs(from, count, kind.capacity)) {
          const bytes = run.count * kind.row;
          this.#copy(
            layer,
            kind,
            words,
            run.place,
            run.count,
            rows.subarray(at, at + bytes),
            false,
          );
          at += bytes;
        }
  }

  /** Rows that change with positions [first, first + n): of halves, and of blocks. */
  *#spans(
    { shape, blocks, halves }: Layer,
    first: number,
    n: number,
  ): Generator<[rows: Rows, first: number, n: number]> {
    if (shape.type === KvType.Q8) return yield [blocks, first, n];
    yield [halves, first, n];
    const { from, count } = groupsOf(first, n);
    if (count > 0) yield [blocks, from, count];
  }

  /** Copies rows at [place, place + count) between the engine's memory and `bytes`. */
  #copy(
    layer: Layer,
    rows: Rows,
    words: Uint32Array,
    place: number,
    count: number,
    bytes: Uint8Array,
    toGpu: boolean,
  ): void {
    const { shape, blocks } = layer;
    const { heads, dk, dv, headBytes } = shape;
    const own = new Uint8Array(this.#memory.buffer);
    const [keys] = new Uint32Array(this.#memory.buffer, words[Word.Rows]! + 16 * layer.index, 1);
    const move = (at: number, gpu: number, n: number): void => {
      if (toGpu) for (let i = 0; i < n; i++) bytes[gpu + i] = own[at + i]!;
      else for (let i = 0; i < n; i++) own[at + i] = bytes[gpu + i]!;
    };
    const block = ownBlock(shape);
    const ring = (n: number): number => blocksOf(n) * block * blocks.capacity;
    for (let head = 0; head < heads; head++) {
      const begin = keys! + head * headBytes;
      for (let t = 0; t < count; t++) {
        const at = t * rows.row;
        const p = place + t;
        if (rows === layer.halves) {
          const recent = begin + ring(dk) + ring(dv);
          move(recent + 2 * p * dk, at + 2 * head * dk, 2 * dk);
          const values = recent + 2 * dk * rows.capacity + 2 * p * dv;
          move(values, at + 2 * (heads * dk + head * dv), 2 * dv);
          continue;
        }
        const [kb, vb] = [blocksOf(dk), blocksOf(dv)];
        const gpuKeys = at + head * kb * (block + 2);
        const gpuValues = at + (heads * kb + head * vb) * (block + 2);
        const inRun = p % kRun;
        for (let b = 0; b < kb; b++) {
          const to = gpuKeys + b * (block + 2) + 2;
          if (shape.type === KvType.Q8) {
            move(begin + (p * kb + b) * block, to, block);
            continue;
          }
          const run = begin + ((p - inRun) * kb + b * kRun) * block;
          move(run + 2 * inRun, to, 2);
          for (let w = 0; w < 4; w++)
            move(run + 2 * kRun + 4 * (w * kRun + inRun), to + 2 + 4 * w, 4);
        }
        for (let b = 0; b < vb; b++)
          move(begin + ring(dk) + (p * vb + b) * block, gpuValues + b * (block + 2) + 2, block);
      }
    }
  }
}
