// The worker script of the browser. One file plays three parts, told apart by the worker's name:
// the engine, its I/O worker, and the engine's threads; the engine starts the other two from its own
// URL, so that a bundler has one worker to find and nothing else.

import { initialMemory, serveThread, type ThreadPort } from './glue.js';
import { Host, type HostPlatform } from './host.js';
import { runIoWorker } from './io-worker.js';
import type { Port, Role, WorkerPort } from './protocol.js';
import { opfsBackend } from './store-opfs.js';
import type { Variant } from './variant.js';
import { compileWasm, instantiateWasm } from './wasm.js';

declare const self: { name: string; location: Location; importScripts(url: string): void } & Port;

const kMiB = 1 << 20;

/** The kind of script this is: the package's own is a module, but Turbopack makes a classic one of it. */
function ownType(): WorkerType {
  try {
    self.importScripts('http://'); // no URL at all, which a classic script hears as a DOMException
  } catch (error) {
    if (error instanceof TypeError) return 'module'; // which may not import at all
  }
  return 'classic';
}

function spawn(role: Role): WorkerPort & ThreadPort {
  return new Worker(self.location.href, { type: ownType(), name: role }) as WorkerPort & ThreadPort;
}

// Some builds of WebKit call a page isolated and have no memory to share. In Firefox 153 a worker that
// starts another one blocks for good once in some thirty times; so it starts none there.
const isolated = globalThis.crossOriginIsolated === true && typeof SharedArrayBuffer === 'function' &&
  !/Firefox/.test(navigator.userAgent);

/** Half of what the device says it has (browsers report at most 8 GiB), within the 32-bit range. */
function budgetCap(): number {
  const gib = (navigator as { deviceMemory?: number }).deviceMemory;
  return gib === undefined ? 1536 * kMiB : Math.min(3584, Math.max(512, gib * 512)) * kMiB;
}

// Written out in full, twice, because bundlers recognise only this form.
function wasmUrl(variant: Variant): URL {
  return variant === 'relaxed'
    ? new URL('./engine.relaxed.wasm', import.meta.url)
    : new URL('./engine.simd128.wasm', import.meta.url);
}

const platform: HostPlatform = {
  isolated,
  budgetCap: budgetCap(),
  initialMemory,
  hardwareThreads: Math.min(8, navigator.hardwareConcurrency || 1),
  store: () => opfsBackend(),
  spawnIo: () => spawn('sluice-io'),
  compile: (source, kernels) =>
    compileWasm(source, kernels, (variant, url) => fetch(url ?? wasmUrl(variant))),
  instantiate: (wasm, budget, threads) =>
    instantiateWasm(wasm, budget, threads, () => spawn('sluice-thread')),
};

if (self.name === 'sluice-thread') serveThread(self as unknown as ThreadPort);
else if (self.name === 'sluice-io') runIoWorker(self, platform);
else new Host(self, platform);
