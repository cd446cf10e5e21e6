// Loads gpu-types.js for the first model that has a type of it, and gpu-kv.js for the first quantized
// KV cache.
import { asset } from '../io/asset.js';
import { useQuantizedKv } from './kernels/attention.js';
import { hasRareTypes, type RareTypes, types, useRareTypes } from './kernels/types.js';
import { GpuKvCache, type KvCopy } from './kv-cache.js';
import type * as Quantized from './quantized-cache.js';
import type { Buffers } from './buffers.js';
import type { Program } from './program.js';

/** `ids`: the types of a model. Errors: MODULE_LOAD. */
export async function loadTypes(ids: readonly number[]): Promise<void> {
  if (hasRareTypes() || !ids.some((id) => types.get(id)?.rare)) return;
  const url = new URL('./gpu-types.js', import.meta.url);
  useRareTypes(await asset<RareTypes>('gpu-types.js', url));
}

type KvCopyClass = new (program: Program, memory: WebAssembly.Memory, buffers: Buffers) => KvCopy;

/** The class of a KV cache on the GPU. Errors: MODULE_LOAD. */
export async function loadCache(quantized: boolean): Promise<KvCopyClass> {
  if (!quantized) return GpuKvCache;
  const url = new URL('./gpu-kv.js', import.meta.url);
  const { kernels, QuantizedCache } = await asset<typeof Quantized>('gpu-kv.js', url);
  useQuantizedKv(kernels);
  return QuantizedCache;
}
