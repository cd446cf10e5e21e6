// Entry of the package for Node: models from paths and http(s) URLs, the engine in a worker thread.

import * as fs from 'node:fs';
import * as path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';

import { wrapWorker } from './api/node-port.js';
import { setPlatform } from './api/platform.js';
import { swapFolder } from './io/swap-node.js';
import { nodeBackend, nodeStore } from './io/store-node.js';
import { SluiceError } from './protocol/errors.js';

process.once('exit', () => fs.rmSync(swapFolder, { recursive: true, force: true }));

const workerAt = (workerUrl?: string | URL): URL =>
  new URL(workerUrl ?? './worker-node.js', import.meta.url);

/** Path of a file: URL, even if it contains a percent sign that is not an escape. */
function pathOf(url: string): string {
  try {
    return fileURLToPath(url);
  } catch {
    return new URL(url).pathname;
  }
}

setPlatform({
  startWorker: (workerUrl) => wrapWorker(new Worker(workerAt(workerUrl))),
  workerAddress: (workerUrl) => workerAt(workerUrl).href,
  storeBackend: async (cacheDir) => nodeStore(cacheDir) ?? nodeBackend(''), // nothing is there
  readFile: (path) =>
    fs.promises.readFile(path).catch((cause: Error) => {
      throw new SluiceError('NOT_FOUND', `${String(path)} cannot be read.`, { cause });
    }),
  resolveSource(source) {
    const scheme = /^[a-z][\w+.-]+:/i.exec(source)?.[0].toLowerCase();
    if (
      scheme &&
      (/^https?:/.test(scheme) || source.startsWith('//', scheme.length)) &&
      scheme !== 'file:'
    )
      return { kind: 'url', url: source };
    const full = path.resolve(scheme === 'file:' ? pathOf(source) : source);
    const folder = fs.statSync(full, { throwIfNoEntry: false })?.isDirectory() ?? false;
    return { kind: 'path', path: folder ? `${full}/` : full };
  },
});

export * from './api/public.js';
