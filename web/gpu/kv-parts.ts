// Entry of gpu-kv.js: what a KV cache needs on the GPU if it is quantized or evicts.

export { KvEviction } from './eviction.js';
export * as kernels from './kernels/quantized-kv.js';
export { quantizedRows as rows } from './quantized-cache.js';
