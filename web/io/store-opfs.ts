// Store files in the browser: one directory per model in the origin private file system (OPFS). A
// Web Lock makes one engine the writer of an entry, across tabs. Other tabs read the entry if the
// browser can share handles ('readwrite-unsafe'); otherwise they use the network.

import { SluiceError } from '../protocol/errors.js';
import type { EntryFiles, SharedFile, SwapFiles, StoreBackend, SyncFile } from './files.js';
import { collectGarbage } from './force-gc.js';
import { entryPrefix } from './store-index.js';

const kRoot = 'sluice-llm';
// After a page is closed, its threads keep the model's file open for up to two seconds.
const kRemoveTries = 16;
const kRemoveMs = 200;
const kReadsPerCollection = 1 << 14; // half a megabyte

interface HandleWithSync extends FileSystemFileHandle {
  createSyncAccessHandle(options?: { mode: string }): Promise<SyncFile>;
}

/** Opens a file. Other threads can open it too if the browser supports that. */
export async function openShared(handle: SharedFile): Promise<SyncFile> {
  return collecting(
    await (handle as HandleWithSync).createSyncAccessHandle({ mode: 'readwrite-unsafe' }),
  );
}

/**
 * Triggers garbage collection after many reads. In Chromium each read creates an object for its
 * options, thousands per token, and a compute thread has no other garbage.
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

/** Takes the entry's lock. Returns the function that releases it; null if it is already taken. */
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

  async open(url: string, until?: AbortSignal): Promise<EntryFiles | null> {
    const key = entryPrefix(url);
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
      throw busy; // another tab reads it
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

/** Opens the store. NOT_SUPPORTED if there is none, as on plain http or in a sandboxed frame. */
export async function opfsBackend(): Promise<StoreBackend> {
  const storage = globalThis.navigator?.storage;
  if (!storage?.getDirectory || !navigator.locks) {
    throw new SluiceError('NOT_SUPPORTED', 'No cache: it needs https or localhost.');
  }
  try {
    const root = await storage.getDirectory();
    return new OpfsBackend(await root.getDirectoryHandle(kRoot, { create: true }));
  } catch (cause) {
    const message = `No cache: the browser denies storage (${(cause as Error).message}).`;
    throw new SluiceError('NOT_SUPPORTED', message, { cause });
  }
}

/** Swap files of sessions in OPFS; null if it is not available. */
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
