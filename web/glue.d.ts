// Types of the Emscripten glue as web/scripts/glue.mjs makes it (build/wasm-glue/glue.js; esbuild
// resolves './glue.js' there). The glue fetches nothing and starts nothing by URL: the caller
// compiles the wasm, makes the memory, and creates the threads.
import type { EngineModule } from './binding.js';

/** A worker as the glue needs it; the browser's Worker is one, Node's needs a few lines around it. */
export interface ThreadPort {
  postMessage(message: unknown, transfer?: Transferable[]): void;
  onmessage: ((event: { data: any }) => void) | null;
  onerror?: ((event: any) => void) | null;
  terminate?(): void;
}

export interface GlueOptions {
  /** Shared; `initial` at least initialMemory / 65536, `maximum` the budget in pages. */
  wasmMemory: WebAssembly.Memory;
  /** engine.relaxed.wasm or engine.simd128.wasm, compiled. */
  wasmModule: WebAssembly.Module;
  /** True for engine.simd128.wasm, false for engine.relaxed.wasm. */
  simd128: boolean;
  /** Threads beside the caller's own, created and loaded before the promise resolves. 0 without isolation. */
  threadPoolSize: number;
  /** Starts a worker whose script calls serveThread(self) at once. Needed if threadPoolSize > 0. */
  createThread?(): ThreadPort;
  print?(line: string): void;
  printErr?(line: string): void;
  onAbort?(what: unknown): void;
}

export function createEngine(options: GlueOptions): Promise<EngineModule>;
/** Makes the calling worker a thread of the engine; port is `self` in a browser. */
export function serveThread(port: ThreadPort): void;
/** Bytes that the memory must hold at the start. */
export const initialMemory: number;
