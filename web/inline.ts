// Entry sluice-llm/inline: one script that contains the worker as text and all binaries as gzipped
// base64. For pages that can host only a single file. They must allow blob: workers.

import relaxed from 'inlined:engine.relaxed-full.wasm';
import relaxed16 from 'inlined:engine.relaxed16-full.wasm';
import simd128 from 'inlined:engine.simd128-full.wasm';
import workerSource from 'inlined:worker.js';

import { setPlatform } from './api/platform.js';
import { workerFrom } from './api/start.js';
import type { WorkerPort } from './protocol/messages.js';
import { unpack } from './protocol/unpack.js';
import { variantFor } from './worker/variant.js';

/** Blob URL of the worker script, shared by all workers. */
let workerUrl: string | undefined;

function startWorker(url?: string | URL): Worker {
  if (url) return workerFrom(new URL(url, location.href).href);
  workerUrl ??= URL.createObjectURL(new Blob([workerSource], { type: 'text/javascript' }));
  // A classic worker, because a page opened from disk can start no other kind.
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
  resolveSource: (source) => ({
    kind: 'url',
    url: new URL(source, globalThis.location?.href).href,
  }),
});

export * from './api/public.js';
