// Worker script for browsers. The engine, its I/O worker and its threads all run this one file, so
// that a bundler has a single worker to find.

import { openShared, opfsBackend, opfsSwapFiles } from './io/store-opfs.js';
import type { Port } from './protocol/messages.js';
import type { HostPlatform } from './worker/loading.js';
import { modules } from './worker/modules.js';
import { takeRole } from './worker/roles.js';
import type { Variant } from './worker/variant.js';
import { compileWasm } from './worker/engine-wasm.js';

declare const self: Port;

const kMiB = 1 << 20;

// Some builds of WebKit report an isolated page but have no SharedArrayBuffer.
const isolated = globalThis.crossOriginIsolated === true && typeof SharedArrayBuffer === 'function';

/** Half of the device's memory (browsers report at most 8 GiB), within the 32-bit range. */
function budgetCap(): number {
  const gib = (navigator as { deviceMemory?: number }).deviceMemory;
  return gib === undefined ? 1536 * kMiB : Math.min(3584, Math.max(512, gib * 512)) * kMiB;
}

// Each URL is written out, because bundlers recognize only this form.
function wasmUrl(variant: Variant): URL {
  if (variant === 'relaxed') return new URL('./engine.relaxed.wasm', import.meta.url);
  if (variant === 'relaxed16') return new URL('./engine.relaxed16.wasm', import.meta.url);
  if (variant === 'gpu') return new URL('./engine.gpu.wasm', import.meta.url);
  if (variant === 'gpu-full') return new URL('./engine.gpu-full.wasm', import.meta.url);
  if (variant === 'relaxed-full') return new URL('./engine.relaxed-full.wasm', import.meta.url);
  if (variant === 'relaxed16-full') return new URL('./engine.relaxed16-full.wasm', import.meta.url);
  if (variant === 'simd128-full') return new URL('./engine.simd128-full.wasm', import.meta.url);
  return new URL('./engine.simd128.wasm', import.meta.url);
}

const platform: HostPlatform = {
  isolated,
  budgetCap: budgetCap(),
  hardwareThreads: Math.min(8, navigator.hardwareConcurrency || 1),
  store: () => opfsBackend(),
  swapFiles: opfsSwapFiles,
  openShared,
  ...modules,
  compile: (source, kernels) =>
    compileWasm(source, kernels, (variant, url) => fetch(url ?? wasmUrl(variant))),
};

takeRole(self, platform);
