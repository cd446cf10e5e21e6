// Types of the Emscripten glue that web/scripts/glue.mjs makes (build/wasm-glue/glue.js; esbuild
// resolves './glue.js' to it). The glue loads nothing by URL: the caller compiles the wasm, creates
// the memory, and creates the threads.

import type { SharedFile, SyncFile } from '../io/files.js';
import type { Port, WorkerPort } from '../protocol/messages.js';
import type { EngineModule } from './binding.js';

export interface GlueOptions {
  /** Shared; `initial` at least initialMemory / 65536, `maximum` the budget in pages. */
  wasmMemory: WebAssembly.Memory;
  /** One of the package's engine.*.wasm, compiled. Any other module is the error WASM_LOAD. */
  wasmModule: WebAssembly.Module;
  /**
   * Number of threads in addition to the caller's. They are created and loaded before the promise
   * resolves. 0 without isolation.
   */
  threadPoolSize: number;
  /** Port to a worker that calls serveThread(). Needed if threadPoolSize > 0. */
  createThread?(): WorkerPort;
  /** Files that the engine can read in this thread, by number. */
  files?: (SyncFile | null)[];
}

export function createEngine(options: GlueOptions): Promise<EngineModule>;
/**
 * Makes the calling worker a thread of the engine at the other end of the port. While the thread is
 * not running, a message { cmd: 'files', files, reply } replaces its open files; it responds on
 * `reply` when they are open.
 */
export function serveThread(port: Port, open: (file: SharedFile) => Promise<SyncFile>): void;
/** Minimum initial size of the memory, in bytes. */
export const initialMemory: number;
