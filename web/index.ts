// Entry of the package for browsers: pages and workers.

import { setPlatform } from './api/platform.js';
import { isOther, workerFrom } from './api/start.js';
import { SluiceError } from './protocol/errors.js';
import type { WorkerPort } from './protocol/messages.js';

const addressOf = (workerUrl?: string | URL): string =>
  workerUrl
    ? new URL(workerUrl, globalThis.location?.href).href
    : import.meta.url.replace(/[^/]*$/, 'worker.js');

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
    if (!workerUrl && !isOther(address))
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
