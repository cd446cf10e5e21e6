// The store's files in the browser: a directory per model in the origin private file system. A Web
// Lock makes one engine the writer of an entry across tabs; where the platform can share handles
// ('readwrite-unsafe') another tab reads along, otherwise it goes to the network.

import { SluiceError } from '../protocol/errors.js';
import type { EntryFiles, SharedFile, SwapFiles, StoreBackend, SyncFile } from './files.js';
import { collectGarbage } from './force-gc.js';

const kRoot = 'sluice-llm';
// A page that was left ends its threads, which have the model's file open, within two seconds.
const kRemoveTries = 16;
const kRemoveMs = 200;
const kReadsPerCollection = 1 << 14; // half a megabyte

interface HandleWithSync extends FileSystemFileHandle {
  createSyncAccessHandle(options?: { mode: string }): Promise<SyncFile>;
}

/** Where handles can be shared; elsewhere it opens a file for one thread alone. */
export async function openShared(handle: SharedFile): Promise<SyncFile> {
  return collecting(
    await (handle as HandleWithSync).createSyncAccessHandle({ mode: 'readwrite-unsafe' }),
  );
}

/**
 * Each read makes Chromium an object for its options, thousands a token, and a thread that computes
 * has no other garbage.
 */
function collecting(file: SyncFile): SyncFile {
  let reads = 0;
  const read = file.read.bind(file);
  file.read = (into, options) => {
    if (++reads % kReadsPerCollection === 0) collectGarbage();
    return read(into, options);
  };
  return file;
}

/** Holds the entry's lock until the returned function is called; null when another holds it now. */
function takeLock(key: string, until?: AbortSignal): Promise<(() => void) | null> {
  return new Promise((resolve, reject) => {
    navigator.locks
      .request(`sluice-llm:${key}`, until ? { signal: until } : { ifAvailable: true }, (lock) => {
        if (!lock) {
          resolve(null);
          return undefined;
        }
        return new Promise<void>((release) => resolve(release));
      })
      .catch(reject);
  });
}

class OpfsBackend implements StoreBackend {
  readonly #root: FileSystemDirectoryHandle;

  constructor(root: FileSystemDirectoryHandle) {
    this.#root = root;
  }

  async open(key: string, until?: AbortSignal): Promise<EntryFiles | null> {
    const unlock = await takeLock(key, until);
    const handles: FileSystemFileHandle[] = [];
    const opened: SyncFile[] = [];
    const release = (): void => {
      for (const file of opened) file.close();
      unlock?.();
    };
    try {
      const directory = await this.#root.getDirectoryHandle(key, { create: true });
      for (const name of ['data', 'index']) {
        handles.push(await directory.getFileHandle(name, { create: true }));
        opened.push(await openShared(handles.at(-1)!));
      }
    } catch (error) {
      release();
      if ((error as Error).name === 'NoModificationAllowedError') return null;
      throw error;
    }
    const [data, index] = opened as [SyncFile, SyncFile];
    const shared = 'mode' in data ? handles[0] : undefined;
    return { data, index, shared, writable: unlock !== null, release };
  }

  async keys(): Promise<string[]> {
    const keys: string[] = [];
    for await (const key of this.#root.keys()) keys.push(key);
    return keys;
  }

  async readIndex(key: string): Promise<Uint8Array | null> {
    try {
      const directory = await this.#root.getDirectoryHandle(key);
      const file = await (await directory.getFileHandle('index')).getFile();
      return new Uint8Array(await file.arrayBuffer());
    } catch {
      return null;
    }
  }

  async remove(key: string): Promise<void> {
    const unlock = await takeLock(key);
    const busy = new SluiceError(
      'CACHE_LOCKED',
      'This model is in use; dispose of its engine first.',
    );
    if (!unlock) throw busy;
    try {
      for (let tries = 0; tries < kRemoveTries; tries++) {
        if (await this.#removed(key)) return;
        await new Promise((resolve) => setTimeout(resolve, kRemoveMs));
      }
      throw busy; // another tab reads along
    } finally {
      unlock();
    }
  }

  async #removed(key: string): Promise<boolean> {
    try {
      await this.#root.removeEntry(key, { recursive: true });
      return true;
    } catch (error) {
      if ((error as Error).name !== 'NoModificationAllowedError') throw error;
      return false;
    }
  }
}

/** Opens the browser's store; throws NOT_SUPPORTED where there is none (such as plain http). */
export async function opfsBackend(): Promise<StoreBackend> {
  const storage = globalThis.navigator?.storage;
  if (!storage?.getDirectory || !navigator.locks) {
    throw new SluiceError('NOT_SUPPORTED', 'No file store: it needs https or localhost.');
  }
  const root = await storage.getDirectory();
  return new OpfsBackend(await root.getDirectoryHandle(kRoot, { create: true }));
}

/** The swap files of sessions in the origin's private files; null where there are none. */
export async function opfsSwapFiles(): Promise<SwapFiles | null> {
  const root = await navigator.storage?.getDirectory?.();
  if (!root) return null;
  const folder = await root.getDirectoryHandle('sluice-sessions', { create: true });
  return {
    open: async (name) =>
      (
        (await folder.getFileHandle(name, { create: true })) as HandleWithSync
      ).createSyncAccessHandle(),
    remove: (name) => folder.removeEntry(name),
    async names() {
      const names: string[] = [];
      for await (const name of folder.keys()) names.push(name);
      return names;
    },
  };
}
