// Types of the Emscripten glue as web/scripts/glue.mjs makes it (build/wasm-glue/glue.js; esbuild
// resolves './glue.js' there). The glue fetches nothing and starts nothing by URL: the caller
// compiles the wasm, makes the memory, and creates the threads.

import type { SharedFile, SyncFile } from '../io/files.js';
import type { Port, WorkerPort } from '../protocol/messages.js';
import type { EngineModule } from './binding.js';

export interface GlueOptions {
  /** Shared; `initial` at least initialMemory / 65536, `maximum` the budget in pages. */
  wasmMemory: WebAssembly.Memory;
  /** One of the package's engine.*.wasm, compiled; any other is refused (WASM_LOAD). */
  wasmModule: WebAssembly.Module;
  /**
   * Threads beside the caller's own, created and loaded before the promise resolves. 0 without
   * isolation.
   */
  threadPoolSize: number;
  /**
   * The way to a worker that calls serveThread() with the other end. Needed if threadPoolSize > 0.
   */
  createThread?(): WorkerPort;
  /** Files that the engine reads in this thread, by number. */
  files?: (SyncFile | null)[];
}

export function createEngine(options: GlueOptions): Promise<EngineModule>;
/**
 * Makes the calling worker a thread of the engine at the other end of the port. A message { cmd:
 * 'files', files, reply } gives it other files than before, until the thread runs; it answers
 * through `reply` when they are open.
 */
export function serveThread(port: Port, open: (file: SharedFile) => Promise<SyncFile>): void;
/** Bytes that the memory must hold at the start. */
export const initialMemory: number;
