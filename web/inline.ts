// The entry that needs no other file: the worker's script and all binaries are inside it, as text
// and as gzipped base64. For pages that can host one script alone; they must allow blob: workers.

import relaxed from 'inlined:engine.relaxed.wasm';
import relaxed16 from 'inlined:engine.relaxed16.wasm';
import simd128 from 'inlined:engine.simd128.wasm';
import workerSource from 'inlined:worker.js';

import { setPlatform } from './api/platform.js';
import { workerFrom } from './api/start.js';
import { opfsBackend } from './io/store-opfs.js';
import type { WorkerPort } from './protocol/messages.js';
import { unpack } from './protocol/unpack.js';
import { variantFor } from './worker/variant.js';

/** One for all workers. */
let workerUrl: string | undefined;

function startWorker(url?: string | URL): Worker {
  if (url) return workerFrom(new URL(url, location.href).href);
  workerUrl ??= URL.createObjectURL(new Blob([workerSource], { type: 'text/javascript' }));
  // Classic: all that a page from the disk may start.
  return workerFrom(workerUrl, { name: 'sluice' });
}

function wasmBinary(kernels: string): Promise<ArrayBuffer> {
  return unpack({ relaxed, relaxed16, simd128 }[variantFor(kernels) as 'simd128']);
}

setPlatform({
  startWorker: (url) => startWorker(url) as unknown as WorkerPort,
  workerAddress: (url) =>
    url ? new URL(url, globalThis.location?.href).href : (workerUrl ?? 'blob:'),
  wasmBinary,
  storeBackend: opfsBackend,
  resolveSource: (source) => ({
    kind: 'url',
    url: new URL(source, globalThis.location?.href).href,
  }),
});

export * from './api/public.js';
