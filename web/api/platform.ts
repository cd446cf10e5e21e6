// Platform functions of the caller's thread: starting the worker, listing the model cache and
// resolving addresses. index.ts (browser), inline.ts and node.ts each install their own.

import type { StoreBackend } from '../io/files.js';
import { SluiceError } from '../protocol/errors.js';
import type { SourceSpec, WorkerPort } from '../protocol/messages.js';

export interface Platform {
  startWorker(workerUrl?: string | URL): WorkerPort;
  /** Address of the worker script, for messages. A bundler may have moved the actual script. */
  workerAddress(workerUrl?: string | URL): string;
  /** The engine's wasm, if it is embedded in the entry. */
  wasmBinary?(kernels: string): Promise<ArrayBuffer>;
  /** The model cache; absent in browsers, where it is the origin private file system. */
  storeBackend?(cacheDir?: string): Promise<StoreBackend>;
  /** Resolves an address: an absolute or relative URL, or a path in Node. */
  resolveSource(source: string): SourceSpec;
  /** Node: keeps the process alive until the promise settles. */
  keepAlive?(promise: Promise<unknown>): void;
  /** Node: environment variables. */
  env?: Record<string, string | undefined>;
  /** Node: names of the files in a directory. */
  listFolder?(path: string): Promise<string[]>;
  /** Node: reads a whole file. */
  readFile?(path: string | URL): Promise<Uint8Array>;
}

let current: Platform | null = null;

export function setPlatform(platform: Platform): void {
  current = platform;
}

export function platform(): Platform {
  if (!current) throw new SluiceError('NOT_SUPPORTED', 'Import sluice-llm, not a file inside it.');
  return current;
}
