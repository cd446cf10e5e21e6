// The package's entry for Node: models from paths and http(s) URLs, the engine in a worker thread.

import * as os from 'node:os';
import * as path from 'node:path';
import { Worker } from 'node:worker_threads';

import { wrapWorker } from './node-port.js';
import { setPlatform } from './platform.js';
import { nodeStash } from './stash-node.js';
import { nodeBackend } from './store-node.js';

/** Where models are kept when `cache` asks for it and no directory is named. */
export const defaultCacheDir = process.env['SLUICE_CACHE'] ?? path.join(os.homedir(), '.cache', 'sluice-llm');

setPlatform({
  startWorker(workerUrl) {
    const url = new URL(workerUrl ?? './worker-node.js', import.meta.url);
    return wrapWorker(new Worker(url, { workerData: { role: 'sluice-engine' } }));
  },
  storeBackend: async (cacheDir) => nodeBackend(cacheDir ?? defaultCacheDir),
  stash: async () => nodeStash(),
  resolveSource: (source) =>
    /^https?:/.test(source) ? { kind: 'url', url: source } : { kind: 'path', path: path.resolve(source) },
});

export * from './api.js';
