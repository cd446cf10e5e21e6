// Loads gpu-types.js for the first model that has a type of it, gpu-kv.js for the first KV cache that is
// quantized, evicts or has no copy in memory, gpu-parallel.js for the first engine with several sequences,
// gpu-recurrent.js for the first model with recurrent states, gpu-relative.js for the first one with
// relative positions, gpu-gemma.js for the first Gemma 3n or 4, gpu-ops.js for the first one with other
// operations that few have, and gpu-lora.js for the first adapter.
import { asset } from '../io/asset.js';
import { useQuantizedKv } from './kernels/attention.js';
import { hasRareTypes, type RareTypes, types, useRareTypes } from './kernels/types.js';
import { evictionIn } from './eviction-plan.js';
import { has, quantized } from './fusion.js';
import type * as GemmaOps from './gemma-ops.js';
import type { RowFormat } from './kv-cache.js';
import type * as Extra from './kv-parts.js';
import type * as Lora from './lora.js';
import type * as Parallel from './parallel.js';
import { OpKind, type Program } from './program.js';
import type * as RareOps from './rare-ops.js';
import type * as Recurrent from './recurrent-parts.js';
import type * as Relative from './relative-attention.js';

/** `ids`: the types of a model. Errors: MODULE_LOAD. */
export async function loadTypes(ids: readonly number[]): Promise<void> {
  if (hasRareTypes() || !ids.some((id) => types.get(id)?.rare)) return;
  const url = new URL('./gpu-types.js', import.meta.url);
  useRareTypes(await asset<RareTypes>('gpu-types.js', url));
}

/** Errors: MODULE_LOAD. */
export const loadAdapters = (): Promise<typeof Lora> =>
  asset('gpu-lora.js', new URL('./gpu-lora.js', import.meta.url));

/** What a program needs beyond one KV cache with rows of halves. */
export interface Parts {
  rows?: RowFormat | undefined;
  OwnAttention?: typeof Extra.KvEviction | typeof Relative.RelativeAttention | undefined;
  KvState?: typeof Extra.KvState | undefined;
  parallel?: typeof Parallel.parallel | undefined;
  recurrent?: typeof Recurrent | undefined;
  rareOps?: typeof RareOps.rareOps | undefined;
}

/** Errors: MODULE_LOAD. */
export async function loadParts(program: Program): Promise<Parts> {
  const evicts = evictionIn(program);
  const parts: Parts = {};
  if (program.parallel > 1) {
    const url = new URL('./gpu-parallel.js', import.meta.url);
    parts.parallel = (await asset<typeof Parallel>('gpu-parallel.js', url)).parallel;
  }
  if (quantized(program) || evicts || program.kvOnGpu) {
    const url = new URL('./gpu-kv.js', import.meta.url);
    const { kernels, rows, KvEviction, KvState } = await asset<typeof Extra>('gpu-kv.js', url);
    useQuantizedKv(kernels);
    if (evicts) parts.OwnAttention = KvEviction;
    if (quantized(program)) parts.rows = rows;
    if (program.kvOnGpu) parts.KvState = KvState;
  }
  if (program.caches.some(({ state }) => state)) {
    const url = new URL('./gpu-recurrent.js', import.meta.url);
    parts.recurrent = await asset<typeof Recurrent>('gpu-recurrent.js', url);
  }
  if (program.buckets[0]) {
    const url = new URL('./gpu-relative.js', import.meta.url);
    parts.OwnAttention = (await asset<typeof Relative>('gpu-relative.js', url)).RelativeAttention;
  }
  // Per-layer embeddings, or streams.
  if (has(program, OpKind.Rows) || has(program, OpKind.MixStreams)) {
    const url = new URL('./gpu-gemma.js', import.meta.url);
    parts.rareOps = (await asset<typeof GemmaOps>('gpu-gemma.js', url)).gemmaOps(program);
  } else if (has(program, OpKind.HeadMatmul)) {
    const url = new URL('./gpu-ops.js', import.meta.url);
    parts.rareOps = (await asset<typeof RareOps>('gpu-ops.js', url)).rareOps;
  }
  return parts;
}
