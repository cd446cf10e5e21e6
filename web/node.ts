// The package's entry for Node: models from paths and http(s) URLs, the engine in a worker thread.

import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';
import { Worker } from 'node:worker_threads';

import { wrapWorker } from './node-port.js';
import { setPlatform } from './platform.js';
import { stashFolder } from './stash-node.js';
import { nodeBackend } from './store-node.js';

/** Where models are kept when `cache` asks for it and no directory is named. */
export const defaultCacheDir = process.env['SLUICE_CACHE'] ?? path.join(os.homedir(), '.cache', 'sluice-llm');

process.once('exit', () => fs.rmSync(stashFolder, { recursive: true, force: true }));

setPlatform({
  startWorker(workerUrl) {
    const url = new URL(workerUrl ?? './worker-node.js', import.meta.url);
    return wrapWorker(new Worker(url));
  },
  storeBackend: async (cacheDir) => nodeBackend(cacheDir ?? defaultCacheDir),
  resolveSource(source) {
    if (/^https?:/.test(source)) return { kind: 'url', url: source };
    const full = path.resolve(source);
    const folder = fs.statSync(full, { throwIfNoEntry: false })?.isDirectory() ?? false;
    return { kind: 'path', path: folder ? `${full}/` : full };
  },
});

export * from './api.js';
