// Loads gpu-types.js for the first model that has a type of it.
import { asset } from '../io/asset.js';
import { hasRareTypes, type RareTypes, types, useRareTypes } from './kernels/types.js';

/** `ids`: the types of a model. Errors: MODULE_LOAD. */
export async function loadTypes(ids: readonly number[]): Promise<void> {
  if (hasRareTypes() || !ids.some((id) => types.get(id)?.rare)) return;
  const url = new URL('./gpu-types.js', import.meta.url);
  useRareTypes(await asset<RareTypes>('gpu-types.js', url));
}
