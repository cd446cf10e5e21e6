// Attention kernels, RoPE, and writing to the KV cache. What a quantized cache needs is in gpu-kv.js.

import { tilesOf } from './attention-tiles.js';
import type { Attention, Cache, Heads, Place, Rope, Store } from './calls.js';
import { none, type Dispatcher } from './dispatcher.js';
import type * as QuantizedKv from './quantized-kv.js';
import type { Values } from './shaders.js';
import attentionText from '../../../kernels/wgsl/attention.wgsl';
import cacheText from '../../../kernels/wgsl/cache.wgsl';
import cacheF16 from '../../../kernels/wgsl/cache_f16.wgsl';
import cacheF16Native from '../../../kernels/wgsl/cache_f16_native.wgsl';
import keepF16 from '../../../kernels/wgsl/kv_store_f16.wgsl';
import mergeText from '../../../kernels/wgsl/merge.wgsl';
import rotateText from '../../../kernels/wgsl/rope.wgsl';
import rotateEach from '../../../kernels/wgsl/rope_each.wgsl';
import rotateNormed from '../../../kernels/wgsl/rope_norm.wgsl';
import storeText from '../../../kernels/wgsl/kv_store.wgsl';

const kSplitTokens = 4; // maximum for which attention is split over positions
/** Positions of a part, at least. */
export const kSplit = 256;
const kMaxParts = 32;
/** In place of the KV store, where nothing is stored. */
const kNoStore = 'fn keep(row:u32,c:u32,x:u32,key:bool,table:u32){}';

/** load-types.ts sets it before the first use. */
export let quantizedKv: typeof QuantizedKv | undefined;
export function useQuantizedKv(module: typeof QuantizedKv): void {
  quantizedKv = module;
}

/** Size of Attention.scratch in floats. `tokens`: of the largest call with positions apart. */
export const attentionScratch = (heads: number, dv: number, tokens = 0): number =>
  Math.max((kMaxParts + Number(tokens > 0)) * kSplitTokens, 2 * tokens) * heads * (dv + 2);

export function rope(to: Dispatcher, op: Rope): void {
  const inPlace = op.heads + (op.owned && !op.store ? op.kvHeads : 0);
  rotate(to, op, op.rot, (inPlace * op.rot) / 2, op.owned ? op.store : undefined, op);
}

export function store(to: Dispatcher, op: Store): void {
  rotate(to, op, 0, 0, op, { neox: false, column: 0, table: 0 });
}

function rotate(
  to: Dispatcher,
  op: Heads & { qkv: Place; tokens: number },
  rot: number,
  pairs: number,
  store: { cache: Cache; first: number } | undefined,
  by: Pick<Rope, 'neox' | 'column' | 'table' | 'norm'>,
): void {
  const cache = store?.cache;
  const { range, places } = reach(to, cache);
  if (store && store.cache.type !== 'f16')
    return quantizedKv!.store(to, op, rot, store, by, range, places);
  const keys = op.heads * op.dk,
    values = keys + op.kvHeads * op.dk;
  const keyRuns = store ? Math.ceil(op.dk / 2) : 0,
    valueRuns = store && !op.valuesInKeys ? Math.ceil(op.dv / 2) : 0;
  const { norm } = by;
  const items = pairs + op.kvHeads * (keyRuns + valueRuns);
  to.run(
    {
      name: cache ? 'rotate and store' : 'rotate',
      sums: !!norm,
      texts: () => [
        cache ? cacheText.replace('HOLD', 'read_write') + keepF16 : kNoStore,
        rotateText,
        norm ? rotateNormed : cache ? rotateEach.replace('//@ store', storeText) : rotateEach,
      ],
      constants: norm ? { NORM: true, WG: 64, SUMS: 1 } : { NORM: false },
      bound: cache ? 'written' : 0,
    },
    {
      x: op.qkv.at,
      x_ld: op.qkv.ld,
      pairs,
      rot,
      dk: op.dk,
      dv: op.dv,
      column: by.column,
      table: by.table,
      neox: Number(by.neox),
      kv_heads: op.kvHeads,
      keys,
      values,
      first: store?.first ?? 0,
      ...places,
      key_runs: keyRuns,
      value_runs: valueRuns,
      heads: op.heads,
      gain: none(norm?.queries),
      key_gain: none(norm?.keys),
      gain_step: norm?.perHead ? op.dk : 0,
      value_norm: Number(norm?.values ?? false),
      eps: norm?.eps ?? 0,
    },
    [
      norm ? op.heads + (valueRuns ? 2 : keyRuns && 1) * op.kvHeads : Math.ceil(items / 64),
      op.tokens,
    ],
    range,
    { first: [store ? 1 : 0, 0], table: [0, rot] },
  );
}

/** The binding of a cache, and the offsets and strides in it, in words. */
export function reach(
  to: Dispatcher,
  cache: Cache | undefined,
): { range: GPUBufferBinding[]; places: Values } {
  if (!cache)
    return {
      range: [],
      places: {
        capacity: 1,
        key_at: 0,
        key_head: 0,
        key_row: 0,
        value_at: 0,
        value_head: 0,
        value_row: 0,
      },
    };
  const align = to.limits.minStorageBufferOffsetAlignment;
  const offset = Math.floor(Math.min(cache.keys, cache.values) / align) * align;
  const size = Math.min(
    cache.buffer.size - offset,
    Math.floor(to.limits.maxStorageBufferBindingSize / 4) * 4,
  );
  return {
    range: [{ buffer: cache.buffer, offset, size }],
    places: {
      capacity: cache.capacity,
      key_at: (cache.keys - offset) / 4,
      key_head: cache.keyHead / 4,
      key_row: cache.keyRow / 4,
      value_at: (cache.values - offset) / 4,
      value_head: cache.valueHead / 4,
      value_row: cache.valueRow / 4,
      ...cache.recent,
    },
  };
}

export function attention(to: Dispatcher, op: Attention): void {
  const { causal = true, window = 0 } = op;
  const end = op.length ?? op.first + op.tokens;
  const back = op.chunked ? op.first % window : causal ? window - 1 : Math.floor(window / 2);
  const begin = window === 0 ? (op.begin ?? 0) : Math.max(0, op.first - back);
  let split = kSplit;
  while (Math.ceil(end / split) > kMaxParts) split *= 2;
  let part = Math.floor(begin / split),
    parts = Math.ceil(end / split) - part;
  const leaves = op.chunked ? begin + window : (part + 1) * split + back;
  to.holds(Math.min((Math.floor(op.first / kSplit) + 1) * kSplit, window ? leaves : Infinity));
  if (op.tokens > kSplitTokens || parts === 1) [split, part, parts] = [0x7fffffff, 0, 1];
  const { kept, scratch } = op;
  const merged = parts > 1 || kept !== undefined;
  attend(to, op, { end, merged, split, part, parts });
  if (!merged) return;
  if (kept) {
    const partials = scratch + parts * op.tokens * op.heads * (op.dv + 2);
    const all = { qkv: kept.queries, cache: kept.cache, causal: false, window: 0, begin: 0 };
    const end = kept.length;
    const one = { end, merged, split: end, part: 0, parts: 1 };
    attend(to, { ...op, ...all, scratch: partials }, one);
  }
  to.run(
    { name: 'merge', texts: [mergeText] },
    {
      out: op.out.at,
      out_ld: op.out.ld,
      dv: op.dv,
      heads: op.heads,
      tokens: op.tokens,
      partials: scratch,
      parts: parts + Number(kept !== undefined),
      sinks: none(op.sinks),
    },
    [op.heads, op.tokens],
  );
}

export interface Positions {
  /** Behind the last that is visible. */
  end: number;
  /** Parts of `split` positions, from number `part` on. */
  split: number;
  part: number;
  parts: number;
  /** Results are for merge.wgsl. */
  merged: boolean;
}

function attend(to: Dispatcher, op: Attention, positions: Positions): void {
  const rows = (op.tokens * op.heads) / op.kvHeads;
  const tiles = tilesOf(rows, op.dv);
  const { range, places } = reach(to, op.cache);
  const plain = op.cache.type === 'f16';
  const native = plain && to.features.f16;
  to.run(
    {
      name: `attention ${op.cache.type}`,
      texts: () =>
        native
          ? [cacheF16Native, attentionText]
          : [
              cacheText.replace('HOLD', 'read'),
              ...(plain
                ? [cacheF16, attentionText]
                : quantizedKv!.attention(op.cache.type, attentionText)),
            ],
      words: { HELD: native ? 'f16' : 'f32', DV: `${op.dv}u` },
      f16: native,
      constants: { ...tiles, SPLIT: positions.merged },
      bound: 1,
    },
    attentionValues(op, positions, places),
    [Math.ceil(rows / tiles.ROWS), op.kvHeads, positions.parts],
    range,
    { first: [1, 0], length: [Number(op.causal ?? true), 0] },
  );
}

/** Parameters of attention.wgsl; `places`: of reach(). */
export function attentionValues(op: Attention, positions: Positions, places: Values): Values {
  const { causal = true, window = 0, chunked = false, begin = 0, softcap = 0, alibi = 0 } = op;
  const { end, split, part } = positions;
  const even = 2 ** Math.floor(Math.log2(op.heads));
  return {
    q: op.qkv.at,
    q_ld: op.qkv.ld,
    out: op.out.at,
    out_ld: op.out.ld,
    dk: op.dk,
    dv: op.dv,
    group: op.heads / op.kvHeads,
    tokens: op.tokens,
    first: op.first,
    window,
    chunked: window ? Number(chunked) : begin,
    causal: op.whole ? 2 : Number(causal),
    length: end,
    heads: op.heads,
    split,
    ...places,
    sinks: none(op.sinks),
    partials: op.scratch,
    scale: op.scale,
    softcap,
    slope: alibi / even,
    slope_heads: even,
    part,
  };
}
