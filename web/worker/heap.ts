// The engine's memory, which grows, and what its C library asks of JavaScript: time, memory, Unicode
// tables and files.

import type { SyncFile } from '../io/files.js';
import { SluiceError } from '../protocol/errors.js';

export const kPage = 65536;
/** Largest memory: 4 GiB minus one page, so that the address of its end fits in 32 bits. */
export const kMaxPages = 65535;
const kNotSupported = 52; // ENOSYS of WASI
const kInvalid = 28; // EINVAL

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
const encoder = new TextEncoder();

/** The only reason for which the engine's C++ throws or aborts. */
export const noRoom = (): never => {
  throw new SluiceError('OUT_OF_MEMORY', 'The memory budget is too small for this.');
};

/** What the engine's binaries export. Addresses are unsigned when they come back through `>>> 0`. */
export interface Exports {
  __indirect_function_table: WebAssembly.Table;
  __wasm_call_ctors(): void;
  __errno_location(): number;
  malloc(bytes: number): number;
  free(address: number): void;
  stackSave(): number;
  stackRestore(top: number): void;
  emscripten_stack_set_limits(top: number, end: number): void;
  emscripten_tls_init(): number;
  _emscripten_thread_init(thread: number, mainBrowser: 0, mainRuntime: 0 | 1, canBlock: 1): void;
  _emscripten_thread_exit(result: number): void;
  _emscripten_thread_free_data(thread: number): void;
}

/** Views of a memory, renewed when it has grown. */
export class Heap {
  #bytes: Uint8Array;
  #words: DataView;

  constructor(readonly memory: WebAssembly.Memory) {
    this.#bytes = new Uint8Array(memory.buffer);
    this.#words = new DataView(memory.buffer);
  }

  get bytes(): Uint8Array {
    this.#renew();
    return this.#bytes;
  }
  get words(): DataView {
    this.#renew();
    return this.#words;
  }
  word(address: number): number {
    return this.words.getUint32(address >>> 0, true);
  }
  setWord(address: number, value: number): void {
    this.words.setUint32(address >>> 0, value, true);
  }
  /** A string that ends with a zero byte, or has `length` bytes. */
  text(address: number, length?: number): string {
    const from = address >>> 0;
    const bytes = this.bytes;
    const end = length === undefined ? bytes.indexOf(0, from) : from + (length >>> 0);
    return decoder.decode(bytes.slice(from, end)); // a copy, because the memory is shared
  }
  /** Writes at most `room` bytes of a text. Returns the bytes written. */
  write(text: string, address: number, room: number): number {
    const bytes = encoder.encode(text).subarray(0, room);
    this.bytes.set(bytes, address >>> 0);
    return bytes.length;
  }

  #renew(): void {
    const { buffer } = this.memory;
    if (buffer === this.#bytes.buffer) return;
    this.#bytes = new Uint8Array(buffer);
    this.#words = new DataView(buffer);
  }
}

/** Lowercases a text and strips its accents, as src/tokenizer/fold.h describes. */
function fold(text: string, lower: number, accents: number): string {
  if (accents === 1)
    text = text
      .replace(/\P{ASCII}/gu, (c) => String.fromCodePoint(c.normalize('NFD').codePointAt(0)!))
      .replace(/\p{M}/gu, '');
  if (accents === 2) text = text.normalize('NFD').replace(/\p{Mn}/gu, '');
  return lower ? text.replace(/./gsu, (c) => c.toLowerCase()) : text;
}

/** Imports of one thread. `now`: milliseconds of a clock that all threads share. */
export function systemImports(
  heap: Heap,
  exports: () => Exports,
  files: readonly (SyncFile | null)[],
  now: () => number,
) {
  const { memory } = heap;
  // The engine reads to the same few destinations again and again; a new view per read would be
  // garbage, freed late.
  const views: (Uint8Array | undefined)[] = [];
  const from = { at: 0 };
  const unsupported = (): number => kNotSupported;
  return {
    memory,
    abort: noRoom,
    __cxa_allocate_exception: noRoom,
    __cxa_throw: noRoom,
    exit() {
      throw 'unwind';
    },
    fd_close: unsupported,
    fd_seek: unsupported,
    fd_write: unsupported,
    emscripten_get_now: now,
    clock_gettime(clock: number, at: number): number {
      const realtime = clock === 0;
      if (!realtime && clock !== 1 && clock !== 4) {
        heap.setWord(exports().__errno_location(), kInvalid);
        return -1;
      }
      const ms = realtime ? Date.now() : now();
      heap.setWord(at, ms / 1000);
      heap.setWord(at + 4, (ms % 1000) * 1e6);
      return 0;
    },
    emscripten_get_heap_max: () => kMaxPages * kPage,
    // Grows in steps of one page.
    emscripten_resize_heap(bytes: number): 0 | 1 {
      const pages = Math.ceil((bytes >>> 0) / kPage);
      const grown = pages - memory.buffer.byteLength / kPage;
      if (grown <= 0 || pages > kMaxPages) return 0;
      try {
        memory.grow(grown);
        return 1;
      } catch {
        return 0;
      }
    },
    emscripten_memcpy_big(to: number, source: number, length: number): void {
      heap.bytes.copyWithin(to >>> 0, source >>> 0, (source >>> 0) + (length >>> 0));
    },
    /** Reads from a file that was shared with this thread. Returns the bytes read; -1: an error. */
    sluice_read(file: number, offset: number, to: number, length: number): number {
      const slot = Math.imul(to + length, 0x9e3779b1) >>> 26;
      const start = to >>> 0;
      let view = views[slot];
      try {
        if (view?.byteOffset !== start || view.length !== length)
          views[slot] = view = heap.bytes.subarray(start, start + length);
        from.at = offset;
        return files[file]!.read(view, from);
      } catch {
        return -1;
      }
    },
    /** Unicode normalization form C. */
    sluice_nfc: (at: number, bytes: number, out: number, room: number): number =>
      heap.write(heap.text(at, bytes).normalize('NFC'), out, room),
    sluice_fold: (
      at: number,
      bytes: number,
      lower: number,
      accents: number,
      out: number,
      room: number,
    ): number => heap.write(fold(heap.text(at, bytes), lower, accents), out, room),
  };
}
