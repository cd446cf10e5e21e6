// Compiles the engine's wasm and creates an instance whose memory can never grow past the budget.

import type { SharedFile, SyncFile } from '../io/files.js';
import { publicUrl } from '../protocol/address.js';
import { SluiceError } from '../protocol/errors.js';
import type { WasmSource, WorkerPort } from '../protocol/messages.js';
import type { EngineBinding, EngineModule, PicturesBinding } from './binding.js';
import { kMaxPages, kPage } from './heap.js';
import { createEngine, initialMemory } from './runtime.js';
import { variantFor, type Variant } from './variant.js';

export interface EngineWasm {
  binding: EngineBinding;
  /** The engine's pictures, once a projector is read. */
  pictures?: PicturesBinding;
  Pictures: EngineModule['Pictures'];
  memory: WebAssembly.Memory;
  /** Replaces the files that all threads have open. Not allowed while the threads are running. */
  shareFiles(files: (SharedFile | undefined)[]): Promise<void>;
}

export const kMaxBudget = kMaxPages * kPage;

/** Compiles the source that the caller gave, or what `fetchBytes` returns. */
export async function compileWasm(
  source: WasmSource,
  kernels: string,
  fetchBytes: (variant: Variant, url: string | undefined) => Promise<ArrayBuffer | Response>,
): Promise<WebAssembly.Module> {
  const variant = variantFor(kernels, source.full);
  if (source.module) return source.module;
  let from = source.binary ? 'wasmBinary' : (source.url ?? `engine.${variant}.wasm`);
  try {
    const bytes = source.binary ?? (await fetchBytes(variant, source.url));
    // Not instanceof: Node takes 50 ms for the first use of Response.
    if (!('headers' in bytes)) return await WebAssembly.compile(bytes as ArrayBuffer);
    from = bytes.url;
    return await compileResponse(bytes);
  } catch (cause) {
    const { message } = cause as Error;
    const advice = /unsafe-eval|CSP|Content.Security/.test(message)
      ? "allow 'wasm-unsafe-eval' in script-src of the worker's Content-Security-Policy"
      : "copy the package's engine.*.wasm beside worker.js, or give an address as wasmUrl";
    throw new SluiceError(
      'WASM_LOAD',
      `The engine's wasm cannot be loaded from ${publicUrl(from)}: ${message}; ${advice}.`,
      { cause },
    );
  }
}

async function compileResponse(response: Response): Promise<WebAssembly.Module> {
  if (!response.ok) throw new Error(`it answered ${response.status}`);
  const type = `${response.headers.get('content-type')}`;
  if (type.startsWith('application/wasm') && WebAssembly.compileStreaming) {
    return WebAssembly.compileStreaming(response);
  }
  const bytes = await response.arrayBuffer();
  if (WebAssembly.validate(bytes.slice(0, 8))) return WebAssembly.compile(bytes);
  throw new Error(`it is ${type}, not wasm`);
}

/**
 * Creates an instance in a memory of at most `budget` bytes. OUT_OF_MEMORY if that is less than the
 * engine itself needs; INVALID_ARGUMENT if the platform refuses the memory.
 */
export async function instantiateWasm(
  wasmModule: WebAssembly.Module,
  budget: number,
  poolThreads: number,
  createThread: () => WorkerPort,
  openShared: (file: SharedFile) => Promise<SyncFile>,
): Promise<EngineWasm> {
  const initial = Math.ceil(initialMemory / kPage);
  const maximum = Math.floor(budget / kPage);
  if (maximum < initial) {
    throw new SluiceError('OUT_OF_MEMORY', `The engine itself needs ${initialMemory} bytes.`);
  }
  let memory: WebAssembly.Memory;
  try {
    memory = new WebAssembly.Memory({ initial, maximum, shared: true });
  } catch (cause) {
    const message =
      `The platform refused ${maximum * kPage} bytes of memory; ` + 'set a smaller memoryBudget.';
    throw new SluiceError('INVALID_ARGUMENT', message, { cause });
  }
  const threads: WorkerPort[] = [];
  const own: (SyncFile | null)[] = [];
  const module = await createEngine({
    wasmMemory: memory,
    wasmModule,
    files: own,
    threadPoolSize: poolThreads,
    createThread: () => {
      const thread = createThread();
      threads.push(thread);
      return thread;
    },
  });
  const shareFiles = async (files: (SharedFile | undefined)[]): Promise<void> => {
    const answers = threads.map((thread) => {
      const { port1, port2 } = new MessageChannel();
      thread.postMessage({ cmd: 'files', files, reply: port2 }, [port2]);
      return new Promise((done) => (port1.onmessage = done)).then(() => port1.close());
    });
    while (own.length) own.pop()?.close();
    own.push(
      ...(await Promise.all(
        files.map((file) => (file ? openShared(file).catch(() => null) : null)),
      )),
    );
    await Promise.all(answers);
  };
  return { binding: new module.Engine(), Pictures: module.Pictures, memory, shareFiles };
}
