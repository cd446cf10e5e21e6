// Engine.modelCache: lists and deletes cached models, without an engine. The implementation
// (model-cache.ts) is a file of its own, which is loaded at the first call. Deletions run one at a
// time.

import { invalid, moduleError, onlyKnown } from '../protocol/errors.js';
import { Turns } from '../protocol/turns.js';
import type { CachedFile, CachedModel } from './model-cache.js';
import type { StoreBackend } from './files.js';

export type { CachedFile, CachedModel };

/** Options of the model cache's methods. */
export interface ModelCacheOptions {
  /** Node: the directory, as in Engine.load. */
  cacheDir?: string;
}

let asked = false;

/** A model is cached: asks the browser to keep it, once in a page. A refusal is fine. */
export function persistOnce(): void {
  if (asked) return;
  asked = true;
  globalThis.navigator?.storage?.persist?.().catch(() => {});
}

/** The model cache. Lists and deletes models; needs no engine. See Engine.modelCache. */
export class StoreManager {
  /** @internal Deletions run alone, in the order of the calls. */
  readonly turns = new Turns();
  readonly #backend: (cacheDir?: string) => Promise<StoreBackend> | undefined;
  readonly #urlOf: (address: string | URL) => string;

  /** @internal */
  constructor(
    backend: (cacheDir?: string) => Promise<StoreBackend> | undefined,
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
  async list(options?: ModelCacheOptions): Promise<CachedModel[]> {
    return this.turns.call(() => this.#with('listModels', options));
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
  async size(options?: ModelCacheOptions): Promise<number> {
    return (await this.list(options)).reduce((sum, model) => sum + model.bytesCached, 0);
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
  async delete(address: string | URL, options?: ModelCacheOptions): Promise<boolean> {
    const url = this.#urlOf(address);
    return this.turns.change(() => this.#with('deleteModel', options, url));
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
  async evictOldest(maxBytes: number, options?: ModelCacheOptions): Promise<string[]> {
    if (typeof maxBytes !== 'number' || !(maxBytes >= 0))
      invalid('maxBytes must be a number of 0 or more.');
    return this.turns.change(() => this.#with('evictOldest', options, maxBytes));
  }

  /**
   * Asks the browser not to evict the cache when storage is low. Returns false if it refuses.
   * Loading asks for it once, when a model is first cached.
   *
   * @example
   * ```ts
   * if (!(await Engine.modelCache.persist())) console.log('The browser may evict the models.');
   * ```
   */
  async persist(): Promise<boolean> {
    return (await globalThis.navigator?.storage?.persist?.().catch(() => false)) ?? false;
  }

  /**
   * Whether the browser keeps the cache when storage is low. True in Node.
   *
   * @example
   * ```ts
   * if (!(await Engine.modelCache.persisted())) console.log('The browser may evict the models.');
   * ```
   */
  async persisted(): Promise<boolean> {
    return (
      (await globalThis.navigator?.storage?.persisted?.().catch(() => false)) ?? !!this.#backend()
    );
  }

  async #with<Name extends 'listModels' | 'deleteModel' | 'evictOldest'>(
    name: Name,
    options: ModelCacheOptions = {},
    ...args: CacheArguments<Name>
  ): Promise<Awaited<ReturnType<Cache[Name]>>> {
    onlyKnown('the model cache', options, 'cacheDir');
    const cache = await import('./model-cache.js').catch(moduleError('model-cache.js'));
    const backend = await (this.#backend(options.cacheDir) ?? cache.opfsBackend());
    return (cache[name] as (backend: StoreBackend, ...args: unknown[]) => never)(backend, ...args);
  }
}

type Cache = typeof import('./model-cache.js');
type CacheArguments<Name extends keyof Cache> =
  Parameters<Cache[Name]> extends [StoreBackend, ...infer Rest] ? Rest : [];
