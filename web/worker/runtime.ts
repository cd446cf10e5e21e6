// Runs the engine's wasm in place of Emscripten's JavaScript, which finds its worker script and its
// binary by URL: that breaks in bundlers, in Node and in pages with an inlined engine. The caller
// compiles the wasm, creates the memory, and creates the threads, before the engine starts: a worker
// that is busy computing could not load another one.

import type { SharedFile, SyncFile } from '../io/files.js';
import { SluiceError } from '../protocol/errors.js';
import type { Port, WorkerPort } from '../protocol/messages.js';
import type { EngineModule } from './binding.js';
import { embind } from './embind.js';
import { Heap, systemImports, type Exports } from './heap.js';

export interface RuntimeOptions {
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

/** Messages to a thread. Addresses are of the engine's memory. */
export type ThreadMessage =
  | { cmd: 'load'; wasmMemory: WebAssembly.Memory; wasmModule: WebAssembly.Module }
  | { cmd: 'run'; thread: number; routine: number; argument: number; time: number }
  /** Replaces the open files. Responds on `reply` when they are open. */
  | { cmd: 'files'; files: readonly (SharedFile | undefined)[]; reply: Port };
/** Messages from a thread. */
type FromThread = { cmd: 'loaded' } | { cmd: 'ended'; thread: number };

/** Minimum initial size of the memory in bytes: SLUICE_WASM_INITIAL_MEMORY in CMakeLists.txt. */
export const initialMemory = 512 << 10;
const kStackBytes = 64 << 10; // of a thread
const kNoThread = 6; // EAGAIN
// In the C library's struct pthread.
const kStackTop = 44;
const kStackSize = 48;

const unwinding = (error: unknown): boolean => error === 'unwind';

/** Functions that the C library imports for features that the engine does not use. */
const unused = {
  emscripten_receive_on_main_thread_js() {},
  emscripten_set_canvas_element_size() {},
  emscripten_webgl_create_context() {},
  emscripten_check_blocking_allowed() {},
  _emscripten_notify_thread_queue() {},
  emscripten_unwind_to_js_event_loop() {
    throw 'unwind';
  },
};

/** The imports of an engine. `own`: those of its thread. */
function importsOf(own: object): WebAssembly.Imports {
  const env = {
    ...unused,
    _emscripten_default_pthread_stack_size: () => kStackBytes,
    emscripten_num_logical_cores: () => globalThis.navigator?.hardwareConcurrency ?? 1,
    ...own,
  } as WebAssembly.ModuleImports;
  return { env, wasi_snapshot_preview1: env };
}

/** Names of what the runtime provides, for the build, which checks the binaries' imports. */
export function importNames(): string[] {
  const heap = new Heap(new WebAssembly.Memory({ initial: 0, maximum: 1, shared: true }));
  const none = (): never => {
    throw new Error('there is no instance');
  };
  const ofThreads = [
    '__emscripten_init_main_thread_js',
    '__emscripten_thread_cleanup',
    '__pthread_create_js',
  ];
  const { env } = importsOf({
    ...systemImports(heap, none, [], () => 0),
    ...embind(heap, none).imports,
  });
  return [...Object.keys(env!), ...ofThreads];
}

/** Creates an engine in the calling worker. */
export async function createEngine({
  wasmMemory,
  wasmModule,
  threadPoolSize,
  createThread,
  files = [],
}: RuntimeOptions): Promise<EngineModule> {
  if (!WebAssembly.Module.customSections(wasmModule, 'sluice').length)
    throw new SluiceError('WASM_LOAD', 'The wasm is not an engine of this package.');
  const heap = new Heap(wasmMemory);
  const linked: { exports?: Exports } = {};
  const exports = (): Exports => linked.exports!;
  const idle: WorkerPort[] = [];
  const running = new Map<number, WorkerPort>();

  const ended = (thread: number): void => {
    const worker = running.get(thread);
    if (!worker) return;
    running.delete(thread);
    idle.push(worker);
    heap.setWord(thread, 0);
    exports()._emscripten_thread_free_data(thread);
  };
  const { imports, classes } = embind(heap, exports);
  const instance = WebAssembly.instantiate(
    wasmModule,
    importsOf({
      ...systemImports(heap, exports, files, () => performance.now()),
      ...imports,
      __emscripten_init_main_thread_js(thread: number) {
        exports()._emscripten_thread_init(thread, 0, 1, 1);
        exports().emscripten_tls_init();
      },
      __emscripten_thread_cleanup: ended,
      __pthread_create_js(thread: number, _attributes: number, routine: number, argument: number) {
        const worker = idle.pop();
        if (!worker) return kNoThread;
        running.set(thread, worker);
        const time = performance.now();
        worker.postMessage({ cmd: 'run', thread, routine, argument, time } satisfies ThreadMessage);
        return 0;
      },
    }),
  );
  const loaded = Array.from({ length: threadPoolSize }, () => {
    const worker = createThread!();
    idle.push(worker);
    worker.postMessage({ cmd: 'load', wasmMemory, wasmModule } satisfies ThreadMessage);
    return new Promise<void>((resolve) => {
      worker.onmessage = ({ data }) => {
        const message = data as FromThread;
        if (message.cmd === 'loaded') resolve();
        else ended(message.thread);
      };
    });
  });
  linked.exports = (await instance).exports as unknown as Exports;
  await Promise.all(loaded);
  exports().__wasm_call_ctors();
  return classes as unknown as EngineModule;
}

/** Makes the calling worker a thread of the engine at the other end of the port. */
export function serveThread(port: Port, open: (file: SharedFile) => Promise<SyncFile>): void {
  const files: (SyncFile | null)[] = [];
  let heap: Heap;
  let exports: Exports;
  let drift = 0; // of this thread's clock
  const send = (message: FromThread): void => port.postMessage(message);

  const load = (memory: WebAssembly.Memory, module: WebAssembly.Module): void => {
    heap = new Heap(memory);
    const { imports } = embind(heap, () => exports);
    const instance = new WebAssembly.Instance(
      module,
      importsOf({
        ...systemImports(
          heap,
          () => exports,
          files,
          () => performance.now() - drift,
        ),
        ...imports,
        __emscripten_init_main_thread_js() {},
        __emscripten_thread_cleanup: (thread: number) => send({ cmd: 'ended', thread }),
        __pthread_create_js: () => kNoThread, // no thread starts another one
      }),
    );
    exports = instance.exports as unknown as Exports;
    send({ cmd: 'loaded' });
  };
  const run = (thread: number, routine: number, argument: number): void => {
    exports._emscripten_thread_init(thread, 0, 0, 1);
    const top = heap.word(thread + kStackTop);
    exports.emscripten_stack_set_limits(top, top - heap.word(thread + kStackSize));
    exports.stackRestore(top);
    exports.emscripten_tls_init();
    const entry = exports.__indirect_function_table.get(routine) as (argument: number) => number;
    try {
      exports._emscripten_thread_exit(entry(argument));
    } catch (error) {
      if (!unwinding(error)) throw error;
    }
  };
  const share = async (shared: readonly (SharedFile | undefined)[], reply: Port): Promise<void> => {
    while (files.length) files.pop()?.close();
    const opened = shared.map((file) => (file ? open(file).catch(() => null) : null));
    files.push(...(await Promise.all(opened)));
    reply.postMessage(0);
  };
  port.onmessage = ({ data }) => {
    const message = data as ThreadMessage;
    if (message.cmd === 'load') return load(message.wasmMemory, message.wasmModule);
    if (message.cmd === 'files') return void share(message.files, message.reply);
    drift = performance.now() - message.time;
    run(message.thread, message.routine, message.argument);
  };
}
