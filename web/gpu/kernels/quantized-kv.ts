// Kernels of a quantized KV cache, in gpu-kv.js: heads are transformed and stored in one dispatch, and
// attention transforms its results back.

import type { Cache, Heads, Place, Rope } from './calls.js';
import { none, type Dispatcher } from './dispatcher.js';
import type { Values } from './shaders.js';
import outText from '../../../kernels/wgsl/attention_out_rotated.wgsl';
import tilesQ4 from '../../../kernels/wgsl/attention_tiles_q4_0.wgsl';
import cacheText from '../../../kernels/wgsl/cache.wgsl';
import cacheQ4 from '../../../kernels/wgsl/cache_q4_0.wgsl';
import cacheQ8 from '../../../kernels/wgsl/cache_q8_0.wgsl';
import hadamardText from '../../../kernels/wgsl/hadamard.wgsl';
import groupQ4 from '../../../kernels/wgsl/kv_group_q4_0.wgsl';
import headsText from '../../../kernels/wgsl/kv_heads.wgsl';
import keepQ4 from '../../../kernels/wgsl/kv_keep_q4_0.wgsl';
import keepQ8 from '../../../kernels/wgsl/kv_keep_q8_0.wgsl';

/** Positions that q4_0 quantizes together. */
export const kGroup = 64;
const kBlock = 32;

/** The complete groups of q4_0 that positions [first, first + n) end: the first position, and how many. */
export function groupsOf(first: number, n: number): { from: number; count: number } {
  const from = Math.floor(first / kGroup) * kGroup;
  return { from, count: Math.floor((first + n) / kGroup) * kGroup - from };
}

/**
 * Norms, rotates and transforms the heads of queries, keys and values, and stores keys and values.
 * `range` and `places`: the binding of the cache, and where it is there.
 */
export function store(
  to: Dispatcher,
  op: Heads & { qkv: Place; tokens: number; owned?: boolean },
  rot: number,
  { cache, first }: { cache: Cache; first: number },
  by: Pick<Rope, 'neox' | 'column' | 'table' | 'norm'>,
  range: GPUBufferBinding[],
  places: Values,
): void {
  const { heads, kvHeads, dk, dv, tokens, owned = true } = op;
  const { norm } = by;
  const binding = (): string => cacheText.replace('HOLD', 'read_write');
  const shape = { recent_at: 0, recent_capacity: 1, ...places, kv_heads: kvHeads, dk, dv };
  const grouped = cache.type === 'q4_0';
  to.run(
    {
      name: `heads into ${cache.type}`,
      texts: () => [binding(), hadamardText, headsText, grouped ? keepQ4 : keepQ8],
      constants: { N: Math.max(dk, dv), NORM: norm !== undefined, WG: 64, SUMS: 1 },
      sums: true,
      bound: 'written',
    },
    {
      ...shape,
      x: op.qkv.at,
      x_ld: op.qkv.ld,
      rot,
      column: by.column,
      table: by.table,
      neox: Number(by.neox),
      heads,
      first,
      gain: none(norm?.queries),
      key_gain: none(norm?.keys),
      gain_step: norm?.perHead ? dk : 0,
      value_norm: Number(norm?.values ?? false),
      eps: norm?.eps ?? 0,
    },
    [heads + (owned ? 2 * kvHeads : 0), tokens],
    range,
    { first: [1, 0], table: [0, rot] },
  );
  if (!grouped || !owned) return;
  const { from, count } = groupsOf(first, tokens);
  to.holds(count ? first + 1 : from + kGroup - 1);
  if (!(count || to.ahead)) return;
  const blocks = kvHeads * (Math.ceil(dk / kBlock) + Math.ceil(dv / kBlock));
  to.run(
    { name: 'group into q4_0', texts: () => [binding(), groupQ4], bound: 'written' },
    { ...shape, first: from },
    [Math.ceil(blocks / 64), count || 1],
    range,
  );
}

/** Replaces what stands between two marks of a text. */
function section(text: string, name: string, by: string): string {
  return text.replace(new RegExp(`//@ ${name}\\n[^]*?//@ end\\n`), () => by);
}

/** What attention over such a cache has in place of its own `text`, behind cache.wgsl. */
export function attention(type: Cache['type'], text: string): string[] {
  const memory = 'var<workgroup> outputs: array<f32, ROW_GROUPS * DV>;\n';
  const rotated = memory + hadamardText + section(text, 'out', outText);
  if (type !== 'q4_0') return [cacheQ8, rotated];
  const tiles = section(section(rotated, 'rows', ''), 'tiles', tilesQ4)
    .replace('//@ visible', 'visible = visible && (position / 64u == own) == by_halves;')
    .replace(/part: ?u32,/, 'part: u32, recent_at: u32, recent_capacity: u32,');
  return [cacheQ4, tiles];
}
