// What Engine.modelCache does (store-manager.ts), loaded at its first use. A model is one entry
// there, although the store has separate entries for the parts of a split model and for the files
// of a Hugging Face directory.

import { storedUrl } from '../protocol/address.js';
import type { StoreBackend } from './files.js';
import { cachedReference } from './hub-reference.js';
import { describeIndex, type EntryDescription } from './store-index.js';

export { opfsBackend } from './store-opfs.js';

/** A model in the model cache. */
export interface CachedModel {
  /** URL of the file or directory, without passwords and signatures. */
  url: string;
  /** Size of its files in bytes. */
  size: number;
  /** Bytes that are cached. */
  bytesCached: number;
  /** All bytes are cached. */
  complete: boolean;
  /** When it was first cached. */
  created: Date;
  /** When it was last used. */
  used: Date;
  /** Its files, the largest first: one, the parts of a split model, or those of a directory. */
  files: CachedFile[];
}

/** A file of a cached model, in one version. */
export interface CachedFile {
  /** Its address, without secrets. */
  url: string;
  /** Length of the file, in bytes. */
  size: number;
  /** Bytes of it that are stored. */
  bytesCached: number;
  /** The ETag that the server sent with this version. */
  etag?: string | undefined;
  /** The Last-Modified header that the server sent. */
  lastModified?: string | undefined;
  /** Node: the directory with its bytes (docs/model-cache.md). */
  path?: string | undefined;
}

interface Entry extends CachedModel {
  /** Keys of its store entries, the largest first: an engine locks those. */
  keys: string[];
}

/** The address of the model that a file belongs to, without secrets. */
export function modelUrl(file: string): string {
  const url = storedUrl(file);
  const [path = '', query = ''] = url.split(/(?=\?)/);
  if (/\.(json|jinja|safetensors)$/.test(path)) return path.replace(/[^/]*$/, '') + query;
  return path.replace(/-\d{5}(-of-\d{5}\.gguf)$/, '-00001$1') + query;
}

type File = EntryDescription & { key: string; path?: string | undefined };

function summary([url, files]: [string, File[]]): Entry {
  files.sort((a, b) => b.size - a.size);
  const weights = files.filter((file) => !/\.(json|jinja)(\?|$)/.test(file.url));
  const parts = Number(/-of-(\d{5})\./.exec(weights[0]?.url ?? '')?.[1] ?? 1);
  const size = files.reduce((sum, file) => sum + file.size, 0);
  const bytesCached = files.reduce((sum, file) => sum + file.bytesCached, 0);
  return {
    url,
    size,
    bytesCached,
    complete: bytesCached === size && weights.length >= parts,
    created: new Date(Math.min(...files.map((file) => file.created))),
    used: new Date(Math.max(...files.map((file) => file.used))),
    files: files.map(({ url, size, bytesCached, etag, lastModified, path }) => ({
      url,
      size,
      bytesCached,
      etag,
      lastModified,
      path,
    })),
    keys: files.map((file) => file.key),
  };
}

async function entries(backend: StoreBackend): Promise<Entry[]> {
  const models = new Map<string, File[]>();
  for (const key of await backend.keys()) {
    const index = await backend.readIndex(key);
    const file = index && describeIndex(index);
    if (!file) {
      // damaged, or of an earlier format
      if (index) await backend.remove(key).catch(() => {});
      continue;
    }
    const url = modelUrl(file.url);
    models.set(url, [...(models.get(url) ?? []), { ...file, key, path: backend.pathOf?.(key) }]);
  }
  return [...models].map(summary).sort((a, b) => b.used.getTime() - a.used.getTime());
}

async function remove(backend: StoreBackend, { keys }: Entry): Promise<void> {
  for (const key of keys) await backend.remove(key);
}

/** Cached models, the most recently used first. */
export async function listModels(backend: StoreBackend): Promise<CachedModel[]> {
  return (await entries(backend)).map(({ keys: _, ...model }) => model);
}

/** Deletes the model of this address. Returns false if it was not cached. */
export async function deleteModel(backend: StoreBackend, address: string): Promise<boolean> {
  const all = await entries(backend);
  const url = /^hf:/i.test(address) ? cachedReference(address, all) : modelUrl(address);
  const found = all.find((entry) => entry.url === url);
  if (found) await remove(backend, found);
  return found !== undefined;
}

/** Deletes the least recently used models, and returns their URLs. */
export async function evictOldest(backend: StoreBackend, maxBytes: number): Promise<string[]> {
  const all = await entries(backend);
  let total = all.reduce((sum, entry) => sum + entry.bytesCached, 0);
  const evicted: string[] = [];
  for (const entry of all.reverse()) {
    if (total <= maxBytes) break;
    try {
      await remove(backend, entry);
    } catch {
      continue; // in use
    }
    total -= entry.bytesCached;
    evicted.push(entry.url);
  }
  return evicted;
}
