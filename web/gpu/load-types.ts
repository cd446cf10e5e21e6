// Loads gpu-types.js for the first model that has a type of it, and gpu-kv.js for the first KV cache
// that is quantized or evicts.
import { asset } from '../io/asset.js';
import { useQuantizedKv } from './kernels/attention.js';
import { hasRareTypes, type RareTypes, types, useRareTypes } from './kernels/types.js';
import { evictionIn } from './eviction-plan.js';
import { quantized } from './fusion.js';
import type { RowFormat } from './kv-cache.js';
import type * as Extra from './kv-parts.js';
import type { Program } from './program.js';

/** `ids`: the types of a model. Errors: MODULE_LOAD. */
export async function loadTypes(ids: readonly number[]): Promise<void> {
  if (hasRareTypes() || !ids.some((id) => types.get(id)?.rare)) return;
  const url = new URL('./gpu-types.js', import.meta.url);
  useRareTypes(await asset<RareTypes>('gpu-types.js', url));
}

/** What a program's KV cache needs beyond rows of halves. */
export interface KvParts {
  rows?: RowFormat | undefined;
  KvEviction?: typeof Extra.KvEviction | undefined;
}

/** Errors: MODULE_LOAD. */
export async function loadKvParts(program: Program): Promise<KvParts> {
  const evicts = evictionIn(program);
  if (!quantized(program) && !evicts) return {};
  const url = new URL('./gpu-kv.js', import.meta.url);
  const { kernels, rows, KvEviction } = await asset<typeof Extra>('gpu-kv.js', url);
  useQuantizedKv(kernels);
  return evicts ? { KvEviction } : { rows };
}
