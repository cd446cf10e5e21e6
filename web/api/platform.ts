// What the caller's thread needs from its surroundings: a way to start the engine's worker, and the
// store's listing. index.ts (browser) and node.ts install theirs; nothing else tells them apart.

import type { StoreBackend } from '../io/files.js';
import { SluiceError } from '../protocol/errors.js';
import type { SourceSpec, WorkerPort } from '../protocol/messages.js';

export interface Platform {
  startWorker(workerUrl?: string | URL): WorkerPort;
  /**
   * Where startWorker() finds the script, as far as it can be known: a bundler may have moved it.
   */
  workerAddress(workerUrl?: string | URL): string;
  /** The engine's wasm, where the entry itself carries it. */
  wasmBinary?(kernels: string): Promise<ArrayBuffer>;
  storeBackend(cacheDir?: string): Promise<StoreBackend>;
  /** An address: a URL, a relative one, or a path in Node. */
  resolveSource(source: string): SourceSpec;
  /** Node: a whole file. */
  readFile?(path: string): Promise<Uint8Array>;
}

let current: Platform | null = null;

export function setPlatform(platform: Platform): void {
  current = platform;
}

export function platform(): Platform {
  if (!current) throw new SluiceError('NOT_SUPPORTED', 'Import sluice-llm, not one of its parts.');
  return current;
}
