// Models on the Hugging Face hub: resolves "hf:owner/repo/file.gguf@revision", and finds files by
// quantization with the hub's tree API. Requests are made only when a function here is called.

import { publicUrl } from '../protocol/address.js';
import { SluiceError, throwIfAborted } from '../protocol/errors.js';

/** Options of requests to the hub. */
export interface HuggingFaceOptions {
  /** URL of the hub or a mirror. Default https://huggingface.co. */
  endpoint?: string;
  /** Branch, tag or commit. Default 'main'. */
  revision?: string;
  /** Access token for gated and private repositories. Sent only to the hub. */
  token?: string;
  /** Aborts the requests. */
  signal?: AbortSignal;
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

const kHub = 'https://huggingface.co';
const kMaxPages = 200; // of a thousand entries each
/** GGUF files that are not language models: image projectors, importance matrices, vocabularies. */
const kOther = /(^|[-._/])(mmproj|imatrix|vocab|projector|adapter|control[-_]?vector)([-._/]|$)/i;
const kQuantization =
  /(?:^|[-._/])(I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|FP?16|FP?32|MXFP4(?:_MOE)?)(?=[-._/]|$)/gi;
const kPart = /-(\d{5})-of-(\d{5})\.gguf$/i;

interface Reference {
  repository: string;
  path: string;
  revision: string;
}

function parse(reference: string): Reference {
  const match = /^hf:(?:\/\/)?([\w.-]+\/[\w.-]+)(?:\/([^@?#]*))?(?:@([^?#]+))?$/.exec(reference);
  if (!match || /(^|\/)\.\.?(\/|$)/.test(match[0].slice(3))) {
    throw new SluiceError(
      'INVALID_ARGUMENT',
      `'${reference}' is not like hf:owner/repo/file.gguf[@revision].`,
    );
  }
  return { repository: match[1]!, path: match[2] ?? '', revision: match[3] ?? 'main' };
}

const escapePath = (path: string): string => path.split('/').map(encodeURIComponent).join('/');

function fileUrl({ repository, path, revision }: Reference, endpoint = kHub): string {
  return `${endpoint}/${repository}/resolve/${encodeURIComponent(revision)}/${escapePath(path)}`;
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
  return fileUrl(parse(reference), options.endpoint);
}

/**
 * The quantization in a file name; undefined if there is none.
 *
 * @example
 * ```ts
 * import { quantizationOf } from 'sluice-llm/huggingface';
 *
 * const type = quantizationOf('smollm2-360m-instruct-q8_0.gguf'); // 'Q8_0'
 * ```
 */
export function quantizationOf(path: string): string | undefined {
  const name = [...path.replace(/\.gguf$/i, '').matchAll(kQuantization)].at(-1)?.[1]?.toUpperCase();
  return name?.replace(/^FP(16|32)$/, 'F$1');
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
    throw new SluiceError('NETWORK', `The hub cannot be reached: ${(cause as Error).message}`, {
      cause,
    });
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
  return files.sort((a, b) => a.bytes - b.bytes);
}

/**
 * Finds a GGUF file in a repository: the one with this quantization, or the largest one of at most
 * `maxBytes`. Without either: Q4_K_M, or the smallest file. NOT_FOUND if there is none; the message
 * lists the quantizations.
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
  const { quantization, maxBytes } = wanted;
  const all = await listHuggingFaceFiles(repository, options);
  const models = all.filter((file) => !kOther.test(file.path));
  const files = models.filter((file) => file.bytes <= (maxBytes ?? Infinity));
  const named = (name: string): HubFile | undefined =>
    files.find((file) => file.quantization === name.toUpperCase());
  const found = quantization
    ? named(quantization)
    : maxBytes !== undefined
      ? files.at(-1)
      : (named('Q4_K_M') ?? files[0]);
  if (found) return found;
  const choices =
    [...new Set(models.map((file) => file.quantization ?? file.path))].join(', ') || 'none';
  throw new SluiceError('NOT_FOUND', `${repository} has no such GGUF file. It has: ${choices}.`);
}
