// The list of what the store holds, and how to be rid of it, without any engine. What one address
// loads is one entry here, though the store has a file each for the parts of a split model and for
// those of a Hugging Face directory.

import { storedUrl } from '../protocol/address.js';
import { invalid } from '../protocol/errors.js';
import type { StoreBackend } from './files.js';
import { describeIndex, type EntryDescription } from './store-index.js';

/** A model in the store. */
export interface CachedModel {
  /** Where it came from, without passwords and signatures; of a directory its address. */
  url: string;
  /** Size of its files in bytes. */
  size: number;
  /** How much of them is stored. */
  bytesCached: number;
  /** Nothing is missing. */
  complete: boolean;
  /** When it was first stored. */
  created: Date;
  /** When it was last used. */
  used: Date;
}

interface Entry extends CachedModel {
  /** Of the store's entries, the largest first: those are the ones that an engine holds. */
  keys: string[];
}

/** The address that loads the model which a file is part of. */
function modelOf(url: string): string {
  const [path = '', query = ''] = url.split(/(?=\?)/);
  if (/\.(json|jinja|safetensors)$/.test(path)) return path.replace(/[^/]*$/, '') + query;
  return path.replace(/-\d{5}(-of-\d{5}\.gguf)$/, '-00001$1') + query;
}

function summary([url, files]: [string, (EntryDescription & { key: string })[]]): Entry {
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
    keys: files.map((file) => file.key),
  };
}

/** Lists, measures and deletes what the store holds; works without any engine. */
export class StoreManager {
  readonly #backend: () => Promise<StoreBackend>;
  readonly #urlOf: (address: string | URL) => string;

  /** @internal */
  constructor(
    backend: () => Promise<StoreBackend>,
    urlOf: (address: string | URL) => string = String,
  ) {
    this.#backend = backend;
    this.#urlOf = urlOf;
  }

  /** Stored models, the one used last first. */
  async list(): Promise<CachedModel[]> {
    return (await this.#entries()).map(({ keys: _, ...model }) => model);
  }

  /** Bytes that all models take together. */
  async size(): Promise<number> {
    return (await this.list()).reduce((sum, model) => sum + model.bytesCached, 0);
  }

  /**
   * Deletes the model loaded from this address; false when it was not there. Throws CACHE_LOCKED
   * while it is in use.
   */
  async delete(address: string | URL): Promise<boolean> {
    const url = modelOf(storedUrl(this.#urlOf(address)));
    const found = (await this.#entries()).find((entry) => entry.url === url);
    if (found) await this.#remove(found);
    return found !== undefined;
  }

  /**
   * Deletes the models used longest ago until at most `maxBytes` are stored; returns their URLs.
   */
  async evictOldest(maxBytes: number): Promise<string[]> {
    if (typeof maxBytes !== 'number' || !(maxBytes >= 0))
      invalid('maxBytes must be a number: how many bytes may stay stored.');
    const entries = await this.#entries();
    let total = entries.reduce((sum, entry) => sum + entry.bytesCached, 0);
    const evicted: string[] = [];
    for (const entry of entries.reverse()) {
      if (total <= maxBytes) break;
      try {
        await this.#remove(entry);
      } catch {
        continue; // in use
      }
      total -= entry.bytesCached;
      evicted.push(entry.url);
    }
    return evicted;
  }

  /** Asks the browser not to evict the store under pressure; false when it declines. */
  async persist(): Promise<boolean> {
    const storage = globalThis.navigator?.storage;
    return (await storage?.persist?.()) ?? false;
  }

  async #entries(): Promise<Entry[]> {
    const backend = await this.#backend();
    const models = new Map<string, (EntryDescription & { key: string })[]>();
    for (const key of await backend.keys()) {
      const index = await backend.readIndex(key);
      const file = index && describeIndex(index);
      if (!file) continue;
      const url = modelOf(storedUrl(file.url));
      models.set(url, [...(models.get(url) ?? []), { ...file, key }]);
    }
    return [...models].map(summary).sort((a, b) => b.used.getTime() - a.used.getTime());
  }

  async #remove({ keys }: Entry): Promise<void> {
    const backend = await this.#backend();
    for (const key of keys) await backend.remove(key);
  }
}
