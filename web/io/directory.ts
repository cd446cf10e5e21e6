// What safetensors.ts, which is fetched when a Hugging Face directory is opened, offers to the others.

import type { ModelFile } from './model-file.js';

/** What is wanted next of a model's files (src/open/opener.h); `want`: 0 a file, 1 bytes, 2 a text, 3 nothing. */
export interface Wanted {
  want: number;
  file: number;
  /** A path or URL; of chosen files the name, and `choice` its number. */
  name: string;
  choice: number;
  offset: number;
  length: number;
  /** It may be absent. */
  optional: boolean;
}

/** Asks for a model's files. */
export interface Asking {
  need(): Wanted | null;
  opened(bytes: number): boolean;
  absent(why: string): boolean;
  reserve(bytes: number): number;
  supply(): boolean;
  error(): { code: string; message: string };
}

/** What a directory becomes. */
export interface Described {
  /** For an engine: a GGUF header whose tensors' addresses say the file too (src/gguf/write.h). */
  header: Uint8Array;
  /** When there are any: bytes of one more file; and what one behind that is made of. */
  made: Uint8Array;
  derived: Uint8Array;
  /** Bytes of memory that finding it out took. */
  room: number;
}

export interface Describer {
  binding: Asking;
  memory: WebAssembly.Memory;
  /** Once nothing more is wanted. */
  describe(): Described;
}

export interface Safetensors {
  /** For the directory of this address, or chosen files of these names; in at most `maximum` bytes of memory. */
  describer(address: string, names: string, maximum: number): Describer;
  /** The file that `runs` say how to make of others. */
  derivedFile(runs: Uint8Array, file: (index: number) => ModelFile): ModelFile;
}
