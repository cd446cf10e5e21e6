// Loads gpu-types.js for the first model that needs it: a type of it, or a quantized KV cache.
import { asset } from '../io/asset.js';
import { hasRareTypes, type RareTypes, types, useRareTypes } from './kernels/types.js';

/** `ids`: the types of a model; `quantized`: its KV cache is. Errors: MODULE_LOAD. */
export async function loadTypes(ids: readonly number[], quantized = false): Promise<void> {
  if (hasRareTypes() || !(quantized || ids.some((id) => types.get(id)?.rare))) return;
  const url = new URL('./gpu-types.js', import.meta.url);
  useRareTypes(await asset<RareTypes>('gpu-types.js', url));
}
