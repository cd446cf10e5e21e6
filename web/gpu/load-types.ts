// Loads gpu-types.js for the first model that has a type of it, and gpu-kv.js for the first quantized
// KV cache.
import { asset } from '../io/asset.js';
import { useQuantizedKv } from './kernels/attention.js';
import { hasRareTypes, type RareTypes, types, useRareTypes } from './kernels/types.js';
import { quantized } from './fusion.js';
import type { RowFormat } from './kv-cache.js';
import type * as Quantized from './quantized-cache.js';
import type { Program } from './program.js';

/** `ids`: the types of a model. Errors: MODULE_LOAD. */
export async function loadTypes(ids: readonly number[]): Promise<void> {
  if (hasRareTypes() || !ids.some((id) => types.get(id)?.rare)) return;
  const url = new URL('./gpu-types.js', import.meta.url);
  useRareTypes(await asset<RareTypes>('gpu-types.js', url));
}

/** The rows of a program's quantized KV cache; undefined: they are halves. Errors: MODULE_LOAD. */
export async function loadRows(program: Program): Promise<RowFormat | undefined> {
  if (!quantized(program)) return undefined;
  const url = new URL('./gpu-kv.js', import.meta.url);
  const { kernels, quantizedRows } = await asset<typeof Quantized>('gpu-kv.js', url);
  useQuantizedKv(kernels);
  return quantizedRows;
}
