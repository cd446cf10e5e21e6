// What an executor has of the sequences that it computes: KV caches, recurrent states, and what records
// their operations.

import { Usage } from './buffers.js';
import { GpuKvCache } from './kv-cache.js';
import type { Parts } from './load-types.js';
import { tableBytes, tablesOf, Writer, type GpuSequence } from './record.js';
import type { GpuRecurrentStates } from './recurrent-states.js';
import type { Resources } from './resources.js';

export interface Sequences {
  /** The sequence that the words of a pass name. */
  of(words: Uint32Array): GpuSequence;
  /** By slot. */
  caches: GpuKvCache[];
  states: GpuRecurrentStates | undefined;
  /** Rows of a batch, by table. */
  tables: ReadonlyMap<number, GPUBuffer>;
}

export function makeSequences(resources: Resources, parts: Parts): Sequences {
  const { host, layout, buffers } = resources;
  const { program, memory } = host;
  const { arena } = resources.memory;
  const { parallel, recurrent, rareOps, rows, OwnAttention } = parts;
  const storage = Usage.Storage | Usage.CopySource | Usage.CopyTarget;
  const tables = new Map(
    tablesOf(program).map((table) => [table, buffers.make(tableBytes(program, table), storage)]),
  );
  const caches: GpuKvCache[] = [];
  const states = recurrent && new recurrent.GpuRecurrentStates(resources);
  const ops = [states?.ops, rareOps?.(program, layout)];
  const { Writer: Own, each } = parallel?.(Writer, program, memory) ?? { Writer, each: alone };
  const of = each(() => {
    const cache = new GpuKvCache(program, memory, buffers, rows);
    caches.push(cache);
    const attention =
      OwnAttention && new OwnAttention(program, layout.eviction, memory, buffers, arena);
    const writer = new Own(program, layout, cache.caches, tables, attention, ops);
    return { cache, attention, writer };
  });
  return { of, caches, states, tables };
}

/** One sequence, which every pass computes. */
function alone(make: () => GpuSequence): () => GpuSequence {
  const one = make();
  return () => one;
}
