// The worker script of the browser: one file for the engine, its I/O worker and its threads, so
// that a bundler has one worker to find and nothing else.

import { openShared, opfsBackend, opfsSwapFiles } from './io/store-opfs.js';
import type { Port } from './protocol/messages.js';
import type { HostPlatform } from './worker/loading.js';
import { modules } from './worker/modules.js';
import { takeRole } from './worker/roles.js';
import type { Variant } from './worker/variant.js';
import { compileWasm } from './worker/wasm.js';

declare const self: Port;

const kMiB = 1 << 20;

// Some builds of WebKit call a page isolated and have no memory to share.
const isolated = globalThis.crossOriginIsolated === true && typeof SharedArrayBuffer === 'function';

/** Half of what the device says it has (browsers report at most 8 GiB), within the 32-bit range. */
function budgetCap(): number {
  const gib = (navigator as { deviceMemory?: number }).deviceMemory;
  return gib === undefined ? 1536 * kMiB : Math.min(3584, Math.max(512, gib * 512)) * kMiB;
}

// Written out in full, each, because bundlers recognise only this form.
function wasmUrl(variant: Variant): URL {
  if (variant === 'relaxed') return new URL('./engine.relaxed.wasm', import.meta.url);
  if (variant === 'relaxed16') return new URL('./engine.relaxed16.wasm', import.meta.url);
  if (variant === 'gpu') return new URL('./engine.gpu.wasm', import.meta.url);
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
