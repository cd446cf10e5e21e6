// The package's entry for browsers (and workers in them).

import { setPlatform } from './platform.js';
import type { WorkerPort } from './protocol.js';
import { opfsStash } from './stash.js';
import { opfsBackend } from './store-opfs.js';

setPlatform({
  startWorker(workerUrl) {
    // Bundlers recognise only this literal form.
    const worker = workerUrl
      ? new Worker(workerUrl, { type: 'module', name: 'sluice-engine' })
      : new Worker(new URL('./worker.js', import.meta.url), {
          type: 'module',
          name: 'sluice-engine',
        });
    return worker as unknown as WorkerPort;
  },
  storeBackend: opfsBackend,
  stash: opfsStash,
  resolveSource: (source) => ({ kind: 'url', url: new URL(source, globalThis.location?.href).href }),
});

export * from './api.js';
