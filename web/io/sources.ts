// Sources that a plain address or Blob is not: hf: references, file handles and lists, blob: and
// data: addresses; and the options of requests: headers, a token, the caller's fetch(). Loaded only
// if one of them is used. In Node always, since the environment may have a token.

import { isDirectory } from './directory.js';
import { serveFetch } from './fetch-channel.js';
import type { StoreBackend } from './files.js';
import type { CachedModel } from './model-cache.js';
import { projectors } from './hub-reference.js';
import { huggingFaceModel, huggingFaceProjector, kHub } from './huggingface.js';
import { fetchWith } from './requests.js';
import { fileName } from '../protocol/address.js';
import { invalid, moduleError, SluiceError } from '../protocol/errors.js';
import type { RequestSpec, SourceSpec } from '../protocol/messages.js';
import type { InspectOptions, ModelSource } from '../protocol/options.js';

type Options = Pick<
  InspectOptions,
  'headers' | 'token' | 'fetch' | 'hfEndpoint' | 'cache' | 'cacheDir' | 'signal' | 'projector'
>;

/** Functions of the entry that loads this module. */
export interface Entry {
  /** Converts plain sources. */
  sourceSpec(source: ModelSource): SourceSpec;
  /** Environment variables (Node). */
  env: Record<string, string | undefined>;
  /** Names of the files in a directory (Node). */
  listFolder: ((path: string) => Promise<string[]>) | undefined;
  /** The model cache (Node). */
  cache: ((cacheDir?: string) => Promise<StoreBackend>) | undefined;
}

/** Something with the address of an http(s) server. */
const originOf = (url: string): string => (/^https?:/i.test(url) ? new URL(url).origin : '');

/** The hub of these options, without a slash at its end. */
export function endpointOf({ hfEndpoint }: Options, env: Entry['env']): string {
  const given = `${hfEndpoint ?? (env['HF_ENDPOINT'] || kHub)}`.replace(/\/+$/, '');
  return URL.canParse(given) && /^https?:/i.test(given)
    ? given
    : invalid('hfEndpoint must be an http(s) address.');
}

function headersOf({ headers }: Options): [string, string][] {
  if (headers === undefined) return []; // Node takes 50 ms for the first use of Headers
  try {
    return [...new Headers(headers as HeadersInit)];
  } catch {
    return invalid('headers must be the names and values of HTTP headers.');
  }
}

/** The sources of one load, and how they are requested. */
export class Sources {
  readonly #options: Options;
  readonly #entry: Entry;
  readonly #request: RequestSpec;
  readonly #endpoint: string;

  constructor(options: Options, entry: Entry) {
    this.#options = options;
    this.#entry = entry;
    const { token = entry.env['HF_TOKEN'] || undefined, fetch } = options;
    if (token !== undefined && !/^[\x21-\x7e]+$/.test(`${token}`))
      invalid('token must be a text without spaces.');
    if (fetch !== undefined && typeof fetch !== 'function') invalid('fetch must be a function.');
    this.#endpoint = endpointOf(options, entry.env);
    this.#request = {
      headers: headersOf(options),
      origins: [],
      token,
      hub: originOf(this.#endpoint),
    };
  }

  /** fetch() as these options ask for, in this thread. */
  get fetch(): typeof fetch {
    return fetchWith(this.#request, this.#options.fetch);
  }

  /** What a worker needs for the same fetch(), and what ends it. undefined: nothing. */
  request(): [RequestSpec, (() => void)?] | undefined {
    const { fetch } = this.#options;
    const { headers, token } = this.#request;
    if (!fetch) return headers.length > 0 || token ? [this.#request] : undefined;
    const channel = `sluice-llm:${crypto.getRandomValues(new Uint32Array(4)).join('-')}`;
    return [{ ...this.#request, channel }, serveFetch(channel, fetch)];
  }

  /** The source of the model, whose hosts get `headers`. */
  async model(source: ModelSource): Promise<SourceSpec> {
    const urls = listOf(source).filter((one) => typeof one === 'string' || one instanceof URL);
    // A reference is resolved with requests to the hub.
    if (urls.some((url) => /^hf:/i.test(`${url}`))) this.#request.origins.push(this.#request.hub);
    const beside = this.#options.projector === true ? projectorsIn(source) : [];
    const own = listOf(source).filter((one) => !beside.includes(one));
    const spec = await this.spec(beside.length ? (own as ModelSource) : source);
    const found = spec.kind === 'url' ? [spec.url] : spec.kind === 'files' ? spec.files : [];
    for (const url of found) if (typeof url === 'string') this.#request.origins.push(originOf(url));
    return spec;
  }

  /** Any source. */
  async spec(source: ModelSource): Promise<SourceSpec> {
    if (listOf(source).every((one) => one instanceof Blob))
      return this.#entry.sourceSpec(listOf(source) as Blob[]);
    const all = await Promise.all(listOf(source).map((one) => this.#one(one)));
    const [only] = all;
    if (all.length === 1 && listOf(source)[0] === source)
      return only instanceof Blob ? this.#entry.sourceSpec(only) : only!;
    const files = all.map((one) =>
      one instanceof Blob
        ? one
        : one.kind === 'url'
          ? one.url
          : invalid('A list holds addresses or Files, not paths.'),
    );
    const names = files.map((file) =>
      typeof file === 'string' ? fileName(file) : ((file as File).name ?? 'model'),
    );
    return { kind: 'files', files, names };
  }

  /** The projector beside a model whose source is `spec`. */
  async beside(model: ModelSource, spec: SourceSpec): Promise<SourceSpec> {
    const { listFolder, sourceSpec } = this.#entry;
    const [listed] = projectorsIn(model);
    if (listed) return this.spec(listed as ModelSource);
    if (isDirectory(spec)) return spec; // its checkpoint has both
    if (spec.kind === 'path' && listFolder) {
      const folder = spec.path.replace(/[^/\\]*$/, '');
      const files = (await listFolder(folder)).map((path) => ({ path }));
      const [found] = projectors(files, spec.path.slice(folder.length));
      if (found) return sourceSpec(folder + found.path);
      throw new SluiceError('NOT_FOUND', `${folder} has no projector (mmproj*.gguf).`);
    }
    if (
      spec.kind === 'url' &&
      (/^hf:/i.test(`${model}`) || originOf(spec.url) === this.#request.hub)
    ) {
      const { signal } = this.#options;
      const url = await huggingFaceProjector(spec.url, {
        endpoint: this.#endpoint,
        fetch: this.fetch,
        signal,
      });
      return { kind: 'url', url };
    }
    return invalid(
      'projector: true needs a model on the hub, a path, or an mmproj file among the files.',
    );
  }

  async #one(source: unknown): Promise<SourceSpec | Blob> {
    if (source instanceof Blob) return source;
    const handle = source as Partial<FileSystemFileHandle>;
    if (typeof handle?.getFile === 'function') return handle.getFile();
    if (typeof source !== 'string' && !(source instanceof URL))
      return invalid('Pass a model address, a File or a list of them.');
    const address = `${source}`;
    if (/^(blob|data):/i.test(address)) return this.#blob(address);
    if (!/^hf:/i.test(address)) return this.#entry.sourceSpec(address);
    const { cache, signal } = this.#options;
    const url = await huggingFaceModel(address, {
      endpoint: this.#endpoint,
      fetch: this.fetch,
      signal,
      cached: () => this.#cached(),
      offline: cache === 'only',
    });
    return { kind: 'url', url };
  }

  /** Complete models in the cache, for references when there is no network. */
  async #cached(): Promise<CachedModel[]> {
    const { cache, cacheDir } = this.#options;
    if (cache === 'none') return [];
    const { listModels, opfsBackend } = await import('./model-cache.js').catch(
      moduleError('model-cache.js'),
    );
    const models = await listModels(await (this.#entry.cache?.(cacheDir) ?? opfsBackend()));
    return models.filter(({ complete }) => complete);
  }

  /** What a blob: or data: address has. It is read in place, and never cached. */
  async #blob(address: string): Promise<Blob> {
    try {
      const blob = await (await fetch(address)).blob();
      return new File([blob], /^data:/i.test(address) ? 'model' : fileName(address));
    } catch {
      return invalid(`The ${address.slice(0, 4)}: address cannot be read; it may be revoked.`);
    }
  }
}

/** The projectors in a list of files and addresses, the one to take first. */
function projectorsIn(source: unknown): unknown[] {
  const files = listOf(source).map((one) => {
    const name = typeof one === 'string' || one instanceof URL ? `${one}` : (one as File).name;
    return { one, path: fileName(`${name}`) };
  });
  return files.length > 1 ? projectors(files).map(({ one }) => one) : [];
}

/** The members of an array or a FileList, or the source itself. */
const listOf = (source: unknown): unknown[] =>
  Array.isArray(source) || typeof (source as Partial<FileList> | null)?.item === 'function'
    ? Array.from(source as ArrayLike<unknown>)
    : [source];
