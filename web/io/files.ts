// Interfaces of the platform's files: synchronous files, and where they are stored. Implemented by
// store-opfs.ts (browser) and store-node.ts (Node).

import type { Validators } from './validators.js';

/** A file with synchronous access: the used part of FileSystemSyncAccessHandle. */
export interface SyncFile {
  read(into: Uint8Array, options: { at: number }): number;
  write(from: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

/** A file that several threads can open: a handle, or a path (Node). Can be posted to workers. */
export type SharedFile = FileSystemFileHandle | string;

/** One version of a file. */
export interface EntryMeta extends Validators {
  /** storedUrl() of the file. */
  url: string;
  size: number;
  chunkSize: number;
  /** Milliseconds since 1970. */
  created: number;
  used: number;
}

/** The two files of a store entry. `writable` is false if another tab is the writer. */
export interface EntryFiles {
  data: SyncFile;
  index: SyncFile;
  writable: boolean;
  /** The data file for the engine's threads, if the platform allows several to open it. */
  shared?: SharedFile | undefined;
  /** Node, where several processes may write an entry. */
  several?: SharedEntry;
  /** Closes the files and releases the writer's lock. */
  release(): void;
}

/** What an entry needs that several processes may write. */
export interface SharedEntry {
  /**
   * Switches to the entry of this version of the file, which is created with the header `index` if
   * it is missing. `head`: the first bytes of the file. False: it was open already.
   */
  begin(index: Uint8Array, meta: EntryMeta, head: Uint8Array): boolean;
  /** Deletes the file's other versions, except those in use. */
  removeOthers(): void;
  /**
   * Reserves the download of bytes [first, end), and returns how far: another process downloads the
   * rest. unreserve() what was reserved.
   */
  reserve(first: number, end: number): number;
  unreserve(first: number, end: number): void;
  /** Whether another process downloads this byte, as far as is known since lookAgain(). */
  isElsewhere(at: number): boolean;
  lookAgain(): void;
  /** Bytes have arrived: keeps what was reserved. */
  refresh(): void;
}

/** Storage of entries: OPFS or a directory. */
export interface StoreBackend {
  /**
   * Opens the entry of a key (storedUrl()). Null if it is locked and cannot be read. With `until`, first waits
   * until its writer closes it; rejects or returns null if that is aborted.
   */
  open(key: string, until?: AbortSignal): Promise<EntryFiles | null>;
  /** Names of all entries. */
  keys(): Promise<string[]>;
  /** The index file of an entry, read without a lock; null if there is none. */
  readIndex(key: string): Promise<Uint8Array | null>;
  /** Node: the path of an entry. */
  pathOf?(key: string): string;
  /** Throws CACHE_LOCKED while the entry is in use. */
  remove(key: string): Promise<void>;
}

/** Swap files by name. */
export interface SwapFiles {
  open(name: string): Promise<SyncFile>;
  remove(name: string): Promise<void>;
  names(): Promise<string[]>;
}
