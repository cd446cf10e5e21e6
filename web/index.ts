// The package's entry for browsers (and workers in them).

import { SluiceError } from './errors.js';
import { setPlatform } from './platform.js';
import type { WorkerPort } from './protocol.js';
import { opfsBackend } from './store-opfs.js';

let blobUrl: string | undefined;

function startWorker(workerUrl?: string | URL): Worker {
  if (typeof Worker === 'undefined') {
    throw new SluiceError('NOT_SUPPORTED', 'There are no workers here (a server, a service worker): load the engine in a page or a worker.');
  }
  if (workerUrl) return new Worker(workerUrl, { type: 'module', name: 'sluice' });
  try {
    // Bundlers recognise only this literal form.
    return new Worker(new URL('./worker.js', import.meta.url), {
      type: 'module',
      name: 'sluice',
    });
  } catch (error) {
    // From a CDN the worker's script is of another origin, which only a module may import.
    const script = import.meta.url.replace(/[^/]*$/, 'worker.js');
    if ((error as Error).name !== 'SecurityError' || !script.startsWith('http')) throw error;
    blobUrl ??= URL.createObjectURL(new Blob([`import ${JSON.stringify(script)};`], { type: 'text/javascript' }));
    return new Worker(blobUrl, { type: 'module', name: 'sluice' });
  }
}

setPlatform({
  startWorker: (workerUrl) => startWorker(workerUrl) as unknown as WorkerPort,
  storeBackend: opfsBackend,
  resolveSource: (source) => ({ kind: 'url', url: new URL(source, globalThis.location?.href).href }),
});

export * from './api.js';
