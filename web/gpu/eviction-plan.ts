// KV cache eviction on the GPU: what a query sees (src/kv/kv_policy.h), and where the arena has what
// eviction.ts needs. Attention reads the positions in a layer's ring, and beside it those that are
// kept: attention sinks or heavy hitters. Queries are rotated back for these.

import { OpKind, type CacheShape, type Eviction, type Op, type Program } from './program.js';

export const evictionOf = ({ heads, evicts }: CacheShape): Eviction | undefined =>
  (heads && evicts) || undefined;

/** What the layers of a program evict that do; undefined: none does. All are equal. */
export const evictionIn = ({ caches }: Pick<Program, 'caches'>): Eviction | undefined =>
  caches.map(evictionOf).find((eviction) => eviction);

/** Positions with memory beside the ring. */
export const keptOf = ({ slots, sinks }: Eviction): number => slots || sinks;

/** Bytes of these, of all heads. */
export function keptBytes(shape: CacheShape): number {
  const eviction = evictionOf(shape);
  return eviction ? 2 * shape.heads * (shape.dk + shape.dv) * keptOf(eviction) : 0;
}

/** Places in the arena, in floats. */
export interface EvictionPlan {
  /** Queries that are rotated back, [batch][query width]. */
  turned: number;
  /** Tables that rotate them, of each RoPE, [batch][nRot]. */
  turns: number[];
  /** Observed queries, [observers][width], and the column of each layer's. */
  observed: number;
  width: number;
  columns: number[];
}

export const queryWidth = ({ att }: Op): number => att.heads * att.dk;

export function planEviction(
  program: Program,
  batch: number,
  take: (floats: number) => number,
): EvictionPlan {
  const evicting = program.ops.filter(
    ({ kind, att }) => kind === OpKind.Attention && evictionOf(program.caches[att.cache]!),
  );
  const { slots = 0, observers = 0 } = evictionIn(program) ?? {};
  let width = 0;
  const columns = program.caches.map(() => 0);
  for (const op of evicting)
    if (slots && op.att.owned) columns[op.att.cache] = (width += queryWidth(op)) - queryWidth(op);
  return {
    turned: take(batch * Math.max(0, ...evicting.map(queryWidth))),
    turns: program.ropes.map(({ nRot }) => take(evicting.length && batch * nRot)),
    observed: take(observers * width),
    width,
    columns,
  };
}

/** Bytes of observed queries that are read back after the largest pass. */
export const observedBytes = (program: Program, { width }: EvictionPlan): number =>
  4 * (evictionIn(program)?.observers ?? 0) * width;
