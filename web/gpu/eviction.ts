// KV cache eviction on the GPU (eviction-plan.ts), in gpu-kv.js. Each layer has a buffer of what it
// keeps beside its ring, as in the engine's memory: for each head the keys, then the values, in f16.
// The engine evicts before it requests a pass, so these rows are uploaded when they have changed.
// For that, queries that it observes are read back.

import { Usage, writeFrom, type Buffers } from './buffers.js';
import {
  evictionIn,
  evictionOf,
  keptBytes,
  keptOf,
  queryWidth,
  type EvictionPlan,
} from './eviction-plan.js';
import type { Attention, Cache, Recorder } from './kernels.js';
import { OpKind, Word, type CacheShape, type Eviction, type Op, type Program } from './program.js';

interface Layer {
  index: number;
  shape: CacheShape;
  kept: Cache;
}

/** Positions that have left the ring before the query at `position`. */
const goneOf = ({ ring, block }: Eviction, position: number): number =>
  position < ring ? 0 : Math.floor((position - ring) / block) * block + block;

/** Of a window: how many of `n` queries from `first` on see all positions before them. */
const seeingAll = ({ window, sinks }: Eviction, first: number, n: number): number =>
  Math.max(0, Math.min(n, window + sinks - first));

export class KvEviction {
  readonly #program: Program;
  readonly #memory: WebAssembly.Memory;
  readonly #plan: EvictionPlan;
  readonly #arena: GPUBuffer;
  readonly #eviction: Eviction;
  readonly #layers: Layer[] = [];
  /** Positions that had left the ring when the kept rows were uploaded, and what these depend on. */
  #gone = -1;
  #depends = 0;

  constructor(
    program: Program,
    plan: EvictionPlan,
    memory: WebAssembly.Memory,
    buffers: Pick<Buffers, 'make'>,
    arena: GPUBuffer,
  ) {
    this.#arena = arena;
    this.#program = program;
    this.#plan = plan;
    this.#memory = memory;
    this.#eviction = evictionIn(program)!;
    const kept = keptOf(this.#eviction);
    if (!kept) return;
    for (const [index, shape] of program.caches.entries()) {
      if (!evictionOf(shape)) continue;
      const { dk, dv, heads } = shape;
      const bytes = keptBytes(shape);
      const head = bytes / heads;
      const cache: Cache = {
        buffer: buffers.make(bytes, Usage.Storage | Usage.CopyTarget),
        type: 'f16',
        capacity: kept,
        keys: 0,
        keyHead: head,
        keyRow: 2 * dk,
        values: dv && 2 * kept * dk, // 0: they are part of the keys
        valueHead: head,
        valueRow: 2 * (dv || dk),
      };
      this.#layers.push({ index, shape, kept: cache });
    }
  }

  /** Tells apart passes whose kernels differ. */
  kindOf(first: number, n: number): string {
    const { slots } = this.#eviction;
    if (!slots) return `${seeingAll(this.#eviction, first, n)}`;
    return `${this.#keptFor(first)} ${this.#observers(first, n).count > 0}`;
  }

  /** Positions beside the ring that the query at `position` sees. */
  #keptFor(position: number): number {
    const { slots, sinks } = this.#eviction;
    if (slots) return Math.min(slots, goneOf(this.#eviction, position));
    return seeingAll(this.#eviction, position, 1) ? 0 : sinks;
  }

  /** Whether queries are observed, for which many steps have dispatches of their own. */
  get observes(): boolean {
    return this.#eviction.slots > 0;
  }

  /** Uploads what the pass needs and the GPU lacks. */
  begin(queue: GPUQueue, words: Uint32Array): void {
    const { slots, sinks, ring, block } = this.#eviction;
    const [n, first] = [words[Word.N]!, words[Word.First]!];
    if (words[Word.Held]! < this.#depends) this.#gone = -1;
    if (!this.#keptFor(first + n - 1)) return;
    const { ropes } = this.#program;
    const tables = new Uint32Array(words.buffer, words[Word.Ropes], 2 * ropes.length);
    for (const [i, { nRot }] of ropes.entries())
      writeFrom(this.#memory, tables[ropes.length + i]!, 4 * n * nRot, {
        queue,
        target: this.#arena,
        at: 4 * this.#plan.turns[i]!,
      });
    const gone = slots ? goneOf(this.#eviction, first) : 1;
    if (gone === this.#gone) return;
    this.#gone = gone;
    this.#depends = slots ? gone - block + ring : sinks;
    for (const { index, shape, kept } of this.#layers) {
      const bytes = kept.keyHead;
      for (let h = 0; h < shape.heads; h++)
        writeFrom(this.#memory, this.#keptAt(words, index, shape, h), bytes, {
          queue,
          target: kept.buffer,
          at: h * bytes,
        });
    }
  }

  /** Records attention, and copies the queries that are observed. `row`: of the batch, at `first`. */
  attention(to: Recorder, op: Op, row: number, call: Attention): void {
    const { slots, window, sinks } = this.#eviction;
    if (!evictionOf(this.#program.caches[op.att.cache]!)) return to.attention(call);
    const { first, tokens } = call;
    if (slots) {
      if (op.att.owned) this.#observe(to, op, call);
      const begin = goneOf(this.#eviction, first);
      return this.#attend(to, op, row, { ...call, window: 0, begin }, this.#keptFor(first));
    }
    const all = seeingAll(this.#eviction, first, tokens);
    const whole = call.whole && { length: first + tokens };
    if (all) to.holds(window + sinks);
    if (all) to.attention({ ...call, tokens: all, ...whole });
    if (all === tokens) return;
    const from = ({ at, ld }: Attention['out']) => ({ at: at + all * ld, ld });
    const rest = {
      ...call,
      window,
      qkv: from(call.qkv),
      out: from(call.out),
      first: first + all,
      tokens: tokens - all,
    };
    this.#attend(to, op, row + all, rest, sinks);
  }

  #attend(to: Recorder, op: Op, row: number, call: Attention, kept: number): void {
    if (!kept) return to.attention(call);
    let queries = call.qkv;
    if (op.rope >= 0) {
      const width = queryWidth(op);
      const { nRot, neox } = this.#program.ropes[op.rope]!;
      const { tokens } = call;
      queries = { at: this.#plan.turned, ld: width };
      to.copy({ in: call.qkv, out: queries, tokens, n: width });
      to.rope({
        ...op.att,
        qkv: queries,
        tokens,
        owned: false,
        rot: nRot,
        neox,
        column: op.ropeCol!,
        table: this.#plan.turns[op.rope]! + row * nRot,
      });
    }
    const { kept: cache } = this.#layers.find(({ index }) => index === op.att.cache)!;
    to.attention({ ...call, kept: { queries, cache, length: kept } });
  }

  /** Observers among the queries of positions [first, first + n), in the last block of these. */
  #observers(
    first: number,
    n: number,
  ): { index: number; token: number; stride: number; count: number } {
    const { block, observers } = this.#eviction;
    const stride = block / observers;
    const last = first + n - 1;
    const skipped = Math.max(0, last - (last % block) - first);
    const before = (first + skipped) % block;
    const index = Math.floor(before / stride);
    const token = skipped + (index + 1) * stride - 1 - before;
    return { index, token, stride, count: Math.max(0, Math.ceil((n - token) / stride)) };
  }

  #observe(to: Recorder, op: Op, { qkv, first, tokens }: Attention): void {
    const { index, token, stride, count } = this.#observers(first, tokens);
    const { observed, width, columns } = this.#plan;
    if (!count) return;
    to.copy({
      in: { at: qkv.at + token * qkv.ld, ld: stride * qkv.ld },
      out: { at: observed + index * width + columns[op.att.cache]!, ld: width },
      tokens: count,
      n: queryWidth(op),
    });
  }

  /** Copies the observed queries of a pass to `target` at byte `at`. Returns the number of bytes. */
  download(
    encoder: GPUCommandEncoder,
    target: GPUBuffer,
    at: number,
    first: number,
    n: number,
  ): number {
    if (!this.#eviction.slots) return 0;
    const { index, count } = this.#observers(first, n);
    const { observed, width } = this.#plan;
    const bytes = 4 * count * width;
    if (bytes)
      encoder.copyBufferToBuffer(this.#arena, 4 * (observed + index * width), target, at, bytes);
    return bytes;
  }

  /** Gives the engine what it keeps of a pass: sinks, or the queries that were downloaded. */
  settle(words: Uint32Array, bytes: Uint8Array, first: number, n: number): void {
    const own = new Uint8Array(this.#memory.buffer);
    if (this.#eviction.slots) this.#settleObserved(own, words, bytes, first, n);
    else this.#settleSinks(own, words, first, n);
  }

  #settleSinks(own: Uint8Array, words: Uint32Array, first: number, n: number): void {
    const end = Math.min(first + n, this.#eviction.sinks);
    for (const { index, shape } of this.#layers)
      for (let h = 0; h < shape.heads; h++)
        keepSinks(own, headAt(words, index, shape, h), shape, first, end);
  }

  #settleObserved(
    own: Uint8Array,
    words: Uint32Array,
    bytes: Uint8Array,
    first: number,
    n: number,
  ): void {
    const { index: begin, count } = this.#observers(first, n);
    const { width, columns } = this.#plan;
    for (const op of this.#program.ops) {
      const { cache, owned, heads, kvHeads, dk } = op.att;
      const shape = this.#program.caches[cache]!;
      if (op.kind !== OpKind.Attention || !owned || !evictionOf(shape)) continue;
      const size = 4 * (heads / kvHeads) * dk;
      const sums = 4 * (this.#eviction.slots + shape.capacity);
      for (let i = 0; i < count; i++)
        for (let h = 0; h < kvHeads; h++) {
          const from = 4 * (i * width + columns[cache]!) + h * size;
          const to = this.#keptAt(words, cache, shape, h) + keptBytes(shape) / kvHeads + sums;
          own.set(bytes.subarray(from, from + size), to + (begin + i) * size);
        }
    }
  }

  /** Address of what a head keeps. */
  #keptAt(words: Uint32Array, layer: number, shape: CacheShape, head: number): number {
    return headAt(words, layer, shape, head) + ringBytes(shape);
  }
}

const ringBytes = ({ dk, dv, capacity }: CacheShape): number => 2 * (dk + dv) * capacity;

const headAt = (
  words: Uint32Array,
  layer: number,
  { headBytes }: CacheShape,
  head: number,
): number =>
  new Uint32Array(words.buffer, words[Word.Rows]! + 16 * layer, 1)[0]! + head * headBytes;

/** Copies positions [first, end) of a ring, which are sinks, to the rows beside it. */
function keepSinks(
  own: Uint8Array,
  at: number,
  shape: CacheShape,
  first: number,
  end: number,
): void {
  const { dk, dv, capacity } = shape;
  const { sinks } = evictionOf(shape)!;
  if (first >= end) return;
  const kept = at + ringBytes(shape);
  const rows = (to: number, from: number, n: number): void => {
    own.copyWithin(to + 2 * n * first, from + 2 * n * first, from + 2 * n * end);
  };
  rows(kept, at, dk);
  rows(kept + 2 * sinks * dk, at + 2 * dk * capacity, dv);
}
