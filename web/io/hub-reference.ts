// References to models on the Hugging Face hub, "hf:owner/repo[:Q4_K_M][/file.gguf][@revision]", and
// the choice of a file among those of a repository. No requests: huggingface.ts lists repositories.

import { storedUrl } from '../protocol/address.js';
import { SluiceError } from '../protocol/errors.js';

export const kHub = 'https://huggingface.co';
/** GGUF files that are not language models: image projectors, importance matrices, vocabularies. */
const kOther = /(^|[-._/])(mmproj|imatrix|vocab|projector|adapter|control[-_]?vector)([-._/]|$)/i;
const kQuantization =
  /(?:^|[-._/])(I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|FP?16|FP?32|MXFP4(?:_MOE)?)(?=[-._/]|$)/gi;
export const kPart = /-(\d{5})-of-(\d{5})\.gguf$/i;

/** Quantizations in the order in which a model is chosen. */
const kOrder = ['Q4_K_M', 'Q4_0', 'Q4_K_S', 'Q5_K_M', 'Q8_0', 'IQ4_XS'];

export interface Reference {
  repository: string;
  /** A quantization; '': none. */
  tag: string;
  path: string;
  revision: string;
}

export function parse(reference: string): Reference {
  const match = /^hf:(?:\/\/)?([\w.-]+\/[\w.-]+)(?::([\w.-]+)|\/([^@?#]*))?(?:@([^?#]+))?$/.exec(
    reference,
  );
  if (!match || /(^|\/)\.\.?(\/|$)/.test(match[0].slice(3))) {
    throw new SluiceError(
      'INVALID_ARGUMENT',
      `'${reference}' is not like hf:owner/repo[:Q4_K_M][@revision] or hf:owner/repo/file.gguf[@revision].`,
    );
  }
  const [, repository = '', tag = '', path = '', revision = 'main'] = match;
  return { repository, tag, path, revision };
}

const escapePath = (path: string): string => path.split('/').map(encodeURIComponent).join('/');

export function fileUrl({ repository, path, revision }: Reference, endpoint = kHub): string {
  return `${endpoint}/${repository}/resolve/${encodeURIComponent(revision)}/${escapePath(path)}`;
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

export type Choice = { path: string; quantization?: string | undefined };

/** The first model, smallest first, of this quantization, or with this word in its path. */
function tagged<File extends Choice>(files: File[], tag: string): File | undefined {
  const word = new RegExp(`(^|[-._/])${tag.replace(/[^\w-]/g, '\\$&')}([-._/]|$)`, 'i');
  return (
    files.find((file) => file.quantization === tag.toUpperCase()) ??
    files.find((file) => word.test(file.path))
  );
}

/** The model that a reference without a file means. `files`: the smallest first. */
export function choose<File extends Choice>(files: File[], tag: string): File | undefined {
  const models = languageModels(files);
  if (tag) return tagged(models, tag);
  const known = kOrder.map((name) => models.find((file) => file.quantization === name));
  return known.find(Boolean) ?? models[0];
}

/**
 * The projectors (mmproj files) among some files, the one to take first: F16, BF16, Q8_0, F32. With the
 * name of a model: those that begin with it, or a part of it up to a `-`, `.` or `_`, the longest
 * first; and those of no model. As src/native/hub_files.cpp chooses.
 */
export const projectors = <File extends { path: string }>(
  files: readonly File[],
  model?: string,
): File[] => {
  const order = [/(^|[^B])F16/i, /BF16/i, /Q8_0/i, /F32/i];
  const rank = ({ path }: File): number =>
    (order.findIndex((type) => type.test(path)) + order.length + 1) % (order.length + 1);
  const stem = model?.replace(/\.gguf$/i, '');
  const shared = ({ path }: File): number => {
    const of = /([^/]*?)[-._]?mmproj[^/]*$/i.exec(path)?.[1];
    if (!of || stem === undefined) return 0;
    return `${stem}.`.startsWith(of) && /[-._]/.test(`${stem}.`[of.length]!) ? of.length : -1;
  };
  return files
    .filter((file) => /mmproj[^/]*\.gguf$/i.test(file.path) && shared(file) >= 0)
    .sort((a, b) => shared(b) - shared(a) || rank(a) - rank(b) || (a.path < b.path ? -1 : 1));
};

/** The GGUF files that are language models. */
export const languageModels = <File extends Choice>(files: File[]): File[] =>
  files.filter((file) => !kOther.test(file.path));

/** The cached model that a reference means, on whichever hub; undefined: none. */
export function cachedReference(
  reference: string,
  models: readonly { url: string; size: number }[],
): string | undefined {
  const { tag, ...rest } = parse(reference);
  const end = storedUrl(fileUrl(rest as Reference, 'https://h')).slice('https://h'.length);
  const files = [...models]
    .sort((a, b) => a.size - b.size || (a.url < b.url ? -1 : 1))
    .flatMap(({ url }) => {
      const { pathname } = new URL(url);
      const at = pathname.lastIndexOf(end);
      const path = at < 0 ? '' : pathname.slice(at + end.length);
      return at < 0 ? [] : [{ url, path, quantization: quantizationOf(path.replace(kPart, '')) }];
    });
  if (rest.path) return files.find(({ path }) => path === '')?.url;
  return (
    choose(
      files.filter(({ path }) => /\.gguf$/i.test(path)),
      tag,
    ) ?? (tag ? undefined : files[0])
  )?.url;
}
