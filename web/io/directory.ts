// What safetensors.ts, which is fetched when a Hugging Face directory is opened, offers to the
// others.

import type { ModelFile } from './model-file.js';

/** How a directory's files are read: of the model, by number, and small ones whole. */
export interface DirectoryFiles {
  open(file: number, name: string, choice: number): Promise<{ size: number }>;
  read(file: number, offset: number, length: number): Promise<Uint8Array>;
  /** Of at most `most` bytes; when it is not there, what says so. */
  text(name: string, choice: number, most: number, optional: boolean): Promise<Uint8Array | string>;
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

export interface Safetensors {
  /**
   * What the directory of this address becomes, or that of chosen files of these names, each
   * followed by a slash. It takes at most `budget` bytes of memory (0: enough), or else says how
   * many it would have to be.
   */
  describe(
    address: string,
    names: string,
    budget: number,
    files: DirectoryFiles,
  ): Promise<Described>;
  /** The file that `runs` say how to make of others. */
  derivedFile(runs: Uint8Array, file: (index: number) => ModelFile): ModelFile;
}
