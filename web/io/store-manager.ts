// Engine.modelCache: lists and deletes cached models, without an engine. A model is one entry here,
// although the store has separate entries for the parts of a split model and for the files of a
// Hugging Face directory.

import { storedUrl } from '../protocol/address.js';
import { invalid } from '../protocol/errors.js';
import { Turns } from '../protocol/turns.js';
import type { StoreBackend } from './files.js';
import { describeIndex, type EntryDescription } from './store-index.js';

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
}

interface Entry extends CachedModel {
  /** Keys of its store entries, the largest first: an engine locks those. */
  keys: string[];
}

/** The address of the model that a file belongs to. */
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

/** The model cache. Lists and deletes models; needs no engine. See Engine.modelCache. */
export class StoreManager {
  /** @internal Deletions run alone, in the order of the calls. */
  readonly turns = new Turns();
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

  /**
   * Cached models, the most recently used first.
   *
   * @example
   * ```ts
   * for (const { url, bytesCached, size, used } of await Engine.modelCache.list())
   *   console.log(url, `${bytesCached} of ${size} bytes`, used.toLocaleDateString());
   * ```
   */
  async list(): Promise<CachedModel[]> {
    return (await this.turns.call(() => this.#entries())).map(({ keys: _, ...model }) => model);
  }

  /**
   * Total size of all cached models in bytes.
   *
   * @example
   * ```ts
   * const bytes = await Engine.modelCache.size();
   * console.log(`${(bytes / 1e9).toFixed(1)} GB of models are cached`);
   * ```
   */
  async size(): Promise<number> {
    return (await this.list()).reduce((sum, model) => sum + model.bytesCached, 0);
  }

  /**
   * Deletes the model of this address. Returns false if it was not cached. CACHE_LOCKED while it is
   * in use.
   *
   * @example
   * ```ts
   * const deleted = await Engine.modelCache.delete(model);
   * console.log(deleted ? 'deleted' : 'was not cached');
   * ```
   */
  async delete(address: string | URL): Promise<boolean> {
    const url = modelOf(storedUrl(this.#urlOf(address)));
    return this.turns.change(async () => {
      const found = (await this.#entries()).find((entry) => entry.url === url);
      if (found) await this.#remove(found);
      return found !== undefined;
    });
  }

  /**
   * Deletes the least recently used models until at most `maxBytes` are cached. Models in use are
   * kept. Returns the URLs of the deleted models.
   *
   * @example
   * ```ts
   * const urls = await Engine.modelCache.evictOldest(4e9); // keep at most 4 GB
   * console.log(`deleted: ${urls.join(', ')}`);
   * ```
   */
  async evictOldest(maxBytes: number): Promise<string[]> {
    if (typeof maxBytes !== 'number' || !(maxBytes >= 0))
      invalid('maxBytes must be a number of 0 or more.');
    return this.turns.change(async () => {
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
    });
  }

  /**
   * Asks the browser not to evict the cache when storage is low. Returns false if it refuses.
   *
   * @example
   * ```ts
   * if (!(await Engine.modelCache.persist())) console.log('The browser may evict the models.');
   * ```
   */
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
