// Entry of gpu-kv.js: what a KV cache needs on the GPU if it is quantized or evicts, or if memory has no
// copy of it.

export { KvEviction } from './eviction.js';
export * as kernels from './kernels/quantized-kv.js';
export { KvState } from './kv-state.js';
export { quantizedRows as rows } from './quantized-cache.js';
