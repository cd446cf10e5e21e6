// Entry of the package for browsers: pages and workers.

import { setPlatform } from './api/platform.js';
import { isOther, workerFrom } from './api/start.js';
import { moved, unmoved } from './protocol/address.js';
import { SluiceError } from './protocol/errors.js';
import type { WorkerPort } from './protocol/messages.js';

/** Address of this script; undefined in bundles that are not ES modules. */
const here: string | undefined = import.meta.url;

function addressOf(workerUrl?: string | URL): string {
  if (workerUrl) return new URL(workerUrl, globalThis.location?.href).href;
  if (!here)
    throw new SluiceError(
      'WORKER_LOAD',
      'No import.meta.url: use --format=esm, or pass workerUrl.',
    );
  return unmoved(here.replace(/[^/]*$/, 'worker.js'));
}

function startWorker(workerUrl?: string | URL): Worker {
  if (typeof Worker === 'undefined') {
    throw new SluiceError(
      'NOT_SUPPORTED',
      'No workers here (server or service worker): load the engine in a page or a worker.',
    );
  }
  const address = addressOf(workerUrl);
  try {
    // Bundlers recognize only this literal form.
    if (!workerUrl && !isOther(address) && !moved(here))
      return new Worker(new URL('./worker.js', import.meta.url), {
        type: 'module',
        name: 'sluice',
      });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // TypeError: the page requires trusted types
  }
  return workerFrom(address);
}

setPlatform({
  startWorker: (workerUrl) => startWorker(workerUrl) as unknown as WorkerPort,
  workerAddress: addressOf,
  resolveSource: (source) => ({
    kind: 'url',
    url: new URL(source, globalThis.location?.href).href,
  }),
});

export * from './api/public.js';
