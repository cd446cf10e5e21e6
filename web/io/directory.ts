// Which sources are Hugging Face directories, and the interface of safetensors.ts, which is loaded
// when one is opened.

import type { SourceSpec } from '../protocol/messages.js';
import type { ModelFile } from './model-file.js';

/** Whether a source is a Hugging Face directory: by its address, or by the names of its files. */
export function isDirectory(source: SourceSpec): boolean {
  if (source.kind === 'files')
    return source.names.some((name) => /(^|[/\\])config\.json$/.test(name));
  const path = source.kind === 'url' ? source.url.replace(/[?#].*/s, '') : source.path;
  return /(\/|config\.json|\.safetensors)$/.test(path);
}

/** Access to a directory's files: weights by number, small files as a whole. */
export interface DirectoryFiles {
  open(file: number, name: string, choice: number): Promise<{ size: number }>;
  read(file: number, offset: number, length: number): Promise<Uint8Array>;
  /** A whole file of at most `most` bytes; if it does not exist, the message that says so. */
  text(name: string, choice: number, most: number, optional: boolean): Promise<Uint8Array | string>;
}

/** A directory, described for the engine. */
export interface Described {
  /** A GGUF header whose tensor addresses also contain the file number (src/gguf/write.h). */
  header: Uint8Array;
  /** Contents of an additional file; empty: none. */
  made: Uint8Array;
  /** Description of a virtual file, for derivedFile(); empty: none. */
  derived: Uint8Array;
  /** Bytes of memory that describing it took. */
  room: number;
}

export interface Safetensors {
  /**
   * Describes the directory at this address, or chosen files with these names, each followed by a
   * slash; if `projector`, its vision projector. Uses `budget` bytes of memory (0: no limit). If
   * that is not enough, uses more, and `room` tells how much.
   */
  describe(
    address: string,
    names: string,
    budget: number,
    files: DirectoryFiles,
    projector: boolean,
  ): Promise<Described>;
  /** The virtual file that `runs` describe as transformations of other files. */
  derivedFile(runs: Uint8Array, file: (index: number) => ModelFile): ModelFile;
}
