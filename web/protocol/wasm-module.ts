// WebAssembly modules of the package beside the engine: safetensors.wasm and chat*.wasm. They have no
// threads and do no I/O, so this small class replaces Emscripten's JavaScript. JavaScript makes the
// memory, with a maximum.

import { SluiceError } from './errors.js';

interface Exports {
  __wasm_call_ctors(): void;
  malloc(bytes: number): number;
  error_code(): number;
  error_message(): number;
}

const kPage = 65536;
const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * An instance with its own memory. Throws `noRoom()` when that is used up. It is created from
 * `imports`, in a page asynchronously: browsers create no large instance on its thread at once.
 */
export class WasmInstance<Calls> {
  readonly memory: WebAssembly.Memory;
  readonly imports: WebAssembly.Imports = {};
  calls!: Calls & Exports;
  readonly #noRoom: () => SluiceError;

  /** `maximum`: bytes of memory. `given`: further functions that the module imports. */
  constructor(
    module: WebAssembly.Module,
    initial: number,
    maximum: number,
    noRoom: () => SluiceError,
    given: (wasm: WasmInstance<Calls>) => Record<string, (...args: number[]) => number | void>,
  ) {
    const pages = Math.min(65535, Math.floor(maximum / kPage));
    if (pages * kPage < initial) throw noRoom();
    this.#noRoom = noRoom;
    const memory = new WebAssembly.Memory({ initial: initial / kPage, maximum: pages });
    this.memory = memory;
    const functions: Record<string, WebAssembly.ImportValue> = {
      memory,
      emscripten_resize_heap: (size: number) => {
        try {
          memory.grow(Math.ceil(((size >>> 0) - memory.buffer.byteLength) / kPage));
          return 1;
        } catch {
          return 0;
        }
      },
      emscripten_memcpy_big: (to: number, from: number, length: number) => {
        const end = (from >>> 0) + (length >>> 0);
        new Uint8Array(memory.buffer).copyWithin(to >>> 0, from >>> 0, end);
      },
      ...given(this),
    };
    const end = (): never => {
      throw noRoom(); // the only reason for which it aborts
    };
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      (this.imports[from] ??= {})[name] = functions[name] ?? end;
    }
  }

  begin({ exports }: WebAssembly.Instance): this {
    this.calls = exports as Calls & Exports;
    this.calls.__wasm_call_ctors();
    return this;
  }

  bytes(address: number, length: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.memory.buffer as ArrayBuffer, address >>> 0, length >>> 0);
  }
  words(address: number): Uint32Array {
    return new Uint32Array(this.memory.buffer, address >>> 0);
  }
  /** A string that ends with a zero byte, or has `length` bytes. */
  string(address: number, length?: number): string {
    const bytes = new Uint8Array(this.memory.buffer, address >>> 0, length);
    return decoder.decode(length === undefined ? bytes.subarray(0, bytes.indexOf(0)) : bytes);
  }
  allocate(bytes: number): number {
    const at = this.calls.malloc(bytes);
    if (!at) throw this.#noRoom();
    return at;
  }
  /** Copies a string, or bytes, to the memory. Returns address and length. The caller frees it. */
  text(text: string | Uint8Array): [number, number] {
    const bytes = typeof text === 'string' ? encoder.encode(text) : text;
    const at = this.allocate(bytes.length + 1);
    this.bytes(at, bytes.length).set(bytes);
    return [at, bytes.length];
  }
  error(): SluiceError {
    return new SluiceError(
      this.string(this.calls.error_code()),
      this.string(this.calls.error_message()),
    );
  }
}

/** What loads a binary: `fetchWasm` returns it, and it is compiled once. */
export function moduleLoader(
  name: string,
  beside: string,
): (fetchWasm: () => Promise<Response | ArrayBuffer | Uint8Array>) => Promise<WebAssembly.Module> {
  let compiled: Promise<WebAssembly.Module> | undefined;
  return (fetchWasm) => {
    compiled ??= fetchWasm()
      .then(async (from) => {
        if (!(from instanceof Response)) return WebAssembly.compile(from as BufferSource);
        if (!from.ok) throw new Error(`it answered ${from.status}`);
        return WebAssembly.compile(await from.arrayBuffer());
      })
      .catch((cause: Error) => {
        compiled = undefined;
        const advice = /unsafe-eval|CSP|Content.Security/.test(cause.message)
          ? `${cause.message}; allow 'wasm-unsafe-eval' in script-src of the Content-Security-Policy`
          : `${cause.message}; copy it beside ${beside}`;
        throw new SluiceError('MODULE_LOAD', `${name} cannot be loaded: ${advice}.`, { cause });
      });
    return compiled;
  };
}
