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

/** This script; undefined in bundles for CommonJS. */
const here: string | undefined = import.meta.url;

/** The worker's script. A bundler that includes this script may leave it behind, or rename it. */
function workerAt(workerUrl?: string | URL): URL {
  const url = here || workerUrl ? new URL(workerUrl ?? './worker-node.js', import.meta.url) : null;
  if (workerUrl || (url?.pathname.endsWith('/worker-node.js') && fs.existsSync(url))) return url!;
  throw new SluiceError(
    'WORKER_LOAD',
    'A bundler has separated the package from its worker: keep sluice-llm out of the bundle ' +
      "(Next.js: serverExternalPackages: ['sluice-llm']; esbuild: --external:sluice-llm).",
  );
}

/** Path of a file: URL, even if it contains a percent sign that is not an escape. */
function pathOf(url: string): string {
  try {
    return fileURLToPath(url);
  } catch {
    return new URL(url).pathname;
  }
}

/**
 * Workers inherit neither the flags of this process, some of which are for its main script alone
 * (--input-type, --import), nor such a flag from NODE_OPTIONS.
 */
function startWorker(url: URL): Worker {
  const { NODE_OPTIONS: flags, ...env } = process.env;
  const own = flags?.replace(/(^|\s)--input-type(=|\s+)\S+/, '');
  return new Worker(url, { execArgv: [], env: own ? { ...env, NODE_OPTIONS: own } : env });
}

/** Keeps the process alive until `promise` settles. A worker alone does not (see node-port.ts). */
function keepAlive(promise: Promise<unknown>): void {
  const timer = setInterval(() => {}, 2 ** 30);
  const end = (): void => clearInterval(timer);
  promise.then(end, end);
}

setPlatform({
  startWorker: (workerUrl) => wrapWorker(startWorker(workerAt(workerUrl))),
  keepAlive,
  env: process.env,
  workerAddress: (workerUrl) => workerAt(workerUrl).href,
  storeBackend: async (cacheDir) => nodeStore(cacheDir) ?? nodeBackend(''), // nothing is there
  listFolder: (path) => fs.promises.readdir(path),
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
