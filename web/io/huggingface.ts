// Models on the Hugging Face hub: resolves "hf:owner/repo/file.gguf@revision", and finds files by
// quantization with the hub's tree API. Requests are made only when a function here is called.

import { fileName, publicUrl, withoutSecrets } from '../protocol/address.js';
import { SluiceError, throwIfAborted } from '../protocol/errors.js';

import {
  cachedReference,
  choose,
  fileUrl,
  kHub,
  kPart,
  languageModels,
  parse,
  projectors,
  quantizationOf,
} from './hub-reference.js';

export { kHub, quantizationOf };

const kMaxPages = 200; // of a thousand entries each

/** Options of requests to the hub. */
export interface HuggingFaceOptions {
  /** URL of the hub or a mirror. Default https://huggingface.co. */
  endpoint?: string;
  /** Branch, tag or commit. Default 'main'. */
  revision?: string;
  /** Access token for gated and private repositories. Sent only to the hub. */
  token?: string;
  /** Aborts the requests. */
  signal?: AbortSignal | undefined;
  /** Replaces the global fetch. */
  fetch?: typeof globalThis.fetch;
}

/** A GGUF file in a repository. A split model is represented by its first part. */
export interface HubFile {
  /** Path in the repository. */
  path: string;
  /** Size of all parts in bytes. */
  bytes: number;
  /** Quantization in the file name, such as Q4_K_M, IQ2_XS or F16; undefined if there is none. */
  quantization?: string;
  /** Number of parts. */
  parts: number;
  /** URL for Engine.load. */
  url: string;
}

/**
 * The URL of "hf:owner/repo/file.gguf[@revision]". Without a file name: the URL of the repository,
 * whose safetensors files are then loaded. INVALID_ARGUMENT if the reference has another form.
 *
 * @example
 * ```ts
 * import { huggingFaceUrl } from 'sluice-llm/huggingface';
 *
 * const repository = 'HuggingFaceTB/SmolLM2-360M-Instruct-GGUF';
 * const url = huggingFaceUrl(`hf:${repository}/smollm2-360m-instruct-q8_0.gguf@main`);
 * ```
 */
export function huggingFaceUrl(
  reference: string,
  options: Pick<HuggingFaceOptions, 'endpoint'> = {},
): string {
  const found = parse(reference);
  if (!found.tag) return fileUrl(found, options.endpoint);
  throw new SluiceError(
    'INVALID_ARGUMENT',
    `'${reference}' names no file: findHuggingFaceFile() looks for one.`,
  );
}

/**
 * The GGUF files of a repository ("owner/repo" or "hf:owner/repo[@revision]"), smallest first.
 * Errors: NOT_FOUND, HTTP_STATUS, NETWORK.
 *
 * @example
 * ```ts
 * import { listHuggingFaceFiles } from 'sluice-llm/huggingface';
 *
 * const repository = 'HuggingFaceTB/SmolLM2-360M-Instruct-GGUF';
 * for (const { path, bytes } of await listHuggingFaceFiles(repository)) console.log(path, bytes);
 * ```
 */
export async function listHuggingFaceFiles(
  repository: string,
  options: HuggingFaceOptions = {},
): Promise<HubFile[]> {
  options = { ...options };
  const reference = parse(repository.startsWith('hf:') ? repository : `hf:${repository}`);
  reference.revision = options.revision ?? reference.revision;
  const endpoint = options.endpoint ?? kHub;
  const sizes = new Map<string, number>();
  const revision = encodeURIComponent(reference.revision);
  let next: string | null =
    `${endpoint}/api/models/${reference.repository}/tree/${revision}?recursive=true`;
  for (let page = 0; next; page++) {
    if (page === kMaxPages) {
      throw new SluiceError(
        'NOT_SUPPORTED',
        `${repository} has more than ${kMaxPages} pages of files: name the file.`,
      );
    }
    const response = await ask(next, options);
    for (const entry of await entries(response, next, options.signal)) {
      if (entry.type === 'file' && /\.gguf$/i.test(entry.path)) sizes.set(entry.path, entry.size);
    }
    const link: string | undefined = /<([^>]+)>;\s*rel="next"/.exec(
      response.headers.get('link') ?? '',
    )?.[1];
    next =
      link && new URL(link, next).origin === new URL(endpoint).origin
        ? new URL(link, next).href
        : null;
  }
  return collect(sizes, (path) => fileUrl({ ...reference, path }, endpoint));
}

interface TreeEntry {
  type: string;
  path: string;
  size: number;
}

async function ask(url: string, options: HuggingFaceOptions): Promise<Response> {
  const headers: Record<string, string> = options.token
    ? { Authorization: `Bearer ${options.token}` }
    : {};
  let response: Response;
  try {
    response = await (options.fetch ?? globalThis.fetch)(url, {
      headers,
      signal: options.signal ?? null,
    });
  } catch (cause) {
    throwIfAborted(options.signal);
    const message = `The hub cannot be reached: ${withoutSecrets((cause as Error).message)}`;
    throw new SluiceError('NETWORK', message, { cause });
  }
  if (response.ok) return response;
  const code = response.status === 404 ? 'NOT_FOUND' : 'HTTP_STATUS';
  const hint =
    response.status === 401 || response.status === 403
      ? ' The repository may be gated: pass a token.'
      : '';
  throw new SluiceError(code, `${publicUrl(url)} answered ${response.status}.${hint}`);
}

async function entries(
  response: Response,
  url: string,
  signal?: AbortSignal,
): Promise<TreeEntry[]> {
  const body: unknown = await response.json().catch(() => throwIfAborted(signal));
  const sane = (entry: Partial<TreeEntry> | null): boolean =>
    typeof entry?.path === 'string' && Number.isSafeInteger(entry.size) && entry.size! >= 0;
  if (Array.isArray(body)) return body.filter(sane) as TreeEntry[];
  throw new SluiceError('HTTP_STATUS', `${publicUrl(url)} did not return a list of files.`);
}

/** One entry per model: combines the parts of split models. */
function collect(sizes: Map<string, number>, url: (path: string) => string): HubFile[] {
  const files: HubFile[] = [];
  for (const [path, size] of sizes) {
    const part = kPart.exec(path);
    if (part && Number(part[1]) !== 1) continue;
    let bytes = size;
    const parts = part ? Number(part[2]) : 1;
    for (let i = 2; i <= parts && i <= sizes.size; i++) {
      bytes +=
        sizes.get(path.replace(kPart, `-${String(i).padStart(5, '0')}-of-${part![2]}.gguf`)) ?? 0;
    }
    files.push({
      path,
      bytes,
      quantization: quantizationOf(path.replace(kPart, '')),
      parts,
      url: url(path),
    });
  }
  return files.sort((a, b) => a.bytes - b.bytes || (a.path < b.path ? -1 : 1));
}

function noSuchFile(repository: string, files: HubFile[]): SluiceError {
  const models = languageModels(files);
  const choices =
    [...new Set(models.map((file) => file.quantization ?? file.path))].join(', ') || 'none';
  return new SluiceError('NOT_FOUND', `${repository} has no such GGUF file. It has: ${choices}.`);
}

/**
 * Finds a GGUF file in a repository: the one with this quantization, or the largest one of at most
 * `maxBytes`. Without either: the first of Q4_K_M, Q4_0, Q4_K_S, Q5_K_M, Q8_0 and IQ4_XS that is
 * there, or the smallest file. NOT_FOUND if there is none; the message lists the quantizations.
 *
 * @example
 * ```ts
 * import { findHuggingFaceFile } from 'sluice-llm/huggingface';
 *
 * const repository = 'HuggingFaceTB/SmolLM2-360M-Instruct-GGUF';
 * const { url } = await findHuggingFaceFile(repository, { quantization: 'Q8_0' });
 * const engine = await Engine.load(url);
 * ```
 */
export async function findHuggingFaceFile(
  repository: string,
  wanted: { quantization?: string; maxBytes?: number } = {},
  options: HuggingFaceOptions = {},
): Promise<HubFile> {
  const { quantization = '', maxBytes } = wanted;
  const all = await listHuggingFaceFiles(repository, options);
  const files = all.filter((file) => file.bytes <= (maxBytes ?? Infinity));
  const found =
    quantization || maxBytes === undefined
      ? choose(files, quantization)
      : languageModels(files).at(-1);
  if (found) return found;
  throw noSuchFile(repository, all);
}

/** @internal The projector in the repository of a model's URL on a hub; NOT_FOUND if it has none. */
export async function huggingFaceProjector(
  url: string,
  options: HuggingFaceOptions,
): Promise<string> {
  const path = url.slice((options.endpoint ?? kHub).length + 1);
  const [owner, name, , revision] = path.split('/');
  const repository = `${owner}/${name}`;
  const files = await listHuggingFaceFiles(repository, {
    ...options,
    ...(revision && { revision: decodeURIComponent(revision) }),
  });
  const [found] = [...projectors(files, fileName(url)), ...projectors(files)];
  if (found) return found.url;
  throw new SluiceError('NOT_FOUND', `${repository} has no projector (mmproj*.gguf).`);
}

/**
 * @internal The address that a reference means, with or without a file. A repository without GGUF
 * files is a directory of safetensors. Without network: what is cached of the repository.
 */
export async function huggingFaceModel(
  reference: string,
  options: HuggingFaceOptions & {
    cached: () => Promise<readonly { url: string; size: number }[]>;
    offline: boolean;
  },
): Promise<string> {
  const { repository, tag, path, revision } = parse(reference);
  const { endpoint } = options;
  const directory = fileUrl({ repository, tag, path, revision }, endpoint);
  if (path) return directory;
  let failure = new SluiceError('NOT_FOUND', `${reference} is not cached.`);
  if (!options.offline) {
    try {
      const files = await listHuggingFaceFiles(`hf:${repository}@${revision}`, options);
      const found = choose(files, tag);
      if (!found && tag) throw noSuchFile(repository, files);
      return found?.url ?? directory;
    } catch (error) {
      const { code } = error as SluiceError;
      if (code === 'NOT_FOUND' && !tag) return directory; // a mirror without the hub's API
      if (code !== 'NETWORK') throw error;
      failure = error as SluiceError;
    }
  }
  const found = cachedReference(reference, await options.cached().catch(() => []));
  if (found) return found;
  throw failure;
}
