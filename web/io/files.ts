// What the platform gives to I/O: files that are read at once, and the places where they lie. The
// browser's file store (store-opfs.ts) and a directory of Node (store-node.ts) are the two of them.

/** What a FileSystemSyncAccessHandle offers, as far as we use it. */
export interface SyncFile {
  read(into: Uint8Array, options: { at: number }): number;
  write(from: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

/**
 * A file that several threads can have open at once, in the form that travels: a handle, or a path
 * (Node).
 */
export type SharedFile = FileSystemFileHandle | string;

/** The two files of an entry. `writable` is false where another tab or engine is the writer. */
export interface EntryFiles {
  data: SyncFile;
  index: SyncFile;
  writable: boolean;
  /** The data, for the engine's threads, where the platform lets several have it open. */
  shared?: SharedFile | undefined;
  /** Closes the files and gives the writer's lock back. */
  release(): void;
}

/** Where entries live: OPFS or a directory. */
export interface StoreBackend {
  /**
   * Opens or creates an entry; null when it is locked and cannot even be read. With `until` it
   * first waits for its writer to leave, and gives up (rejects or null) when that is aborted.
   */
  open(key: string, until?: AbortSignal): Promise<EntryFiles | null>;
  keys(): Promise<string[]>;
  /** The first bytes of an entry's index, without any lock; null when there is none. */
  readIndex(key: string): Promise<Uint8Array | null>;
  /** Throws CACHE_LOCKED while a writer holds the entry. */
  remove(key: string): Promise<void>;
}

/** Keeps files by name. */
export interface SwapFiles {
  open(name: string): Promise<SyncFile>;
  remove(name: string): Promise<void>;
  names(): Promise<string[]>;
}
