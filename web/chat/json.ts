// JSON text of what callers pass to chat templates. Unlike JSON.stringify() it keeps the digits of a
// bigint, and fails where a value would be lost.

import { invalid } from '../protocol/errors.js';
import type { ImageSource } from '../protocol/options.js';

const kMaxDepth = 200;

/** Stands in JSON for a picture that is an object, with its place in the list behind it. */
const kImage = 'sluice-image:';

/** What the URLs of rendered pictures mean: themselves, or objects that jsonText() has taken. */
export const imagesOf = (urls: readonly string[], taken: readonly ImageSource[]): ImageSource[] =>
  urls.map((url) =>
    url.startsWith(kImage) ? (taken[Number(url.slice(kImage.length))] ?? url) : url,
  );

/** Blobs, bytes, pixels, and what has a size: elements and bitmaps, which are no plain objects. */
function isImage(value: object): value is Exclude<ImageSource, string> {
  const known = value instanceof Blob || value instanceof ArrayBuffer || ArrayBuffer.isView(value);
  const { width, height, data } = value as { width?: unknown; height?: unknown; data?: unknown };
  const sized = typeof width === 'number' && typeof height === 'number';
  const plain = Object.getPrototypeOf(value) === Object.prototype;
  return known || (sized && (!plain || ArrayBuffer.isView(data)));
}

/**
 * Throws INVALID_ARGUMENT, which names `what`, for what JSON cannot express. Pictures go to the list
 * `images`, if there is one.
 */
export function jsonText(what: string, given: unknown, images?: ImageSource[]): string {
  const write = (value: unknown, depth: number): string => {
    if (depth > kMaxDepth) invalid(`${what} must not be nested this deeply, nor contain itself.`);
    switch (typeof value) {
      case 'string':
        return quoted(value);
      case 'number':
        if (!Number.isFinite(value)) break;
        return String(value);
      case 'bigint':
      case 'boolean':
        return String(value);
      case 'undefined':
        return 'null';
      case 'object': {
        if (value === null) return 'null';
        if (images && isImage(value)) return quoted(`${kImage}${images.push(value) - 1}`);
        if (Array.isArray(value)) return `[${value.map((one) => write(one, depth + 1)).join()}]`;
        if ('toJSON' in value && typeof value.toJSON === 'function')
          return write(value.toJSON(), depth + 1);
        const members = Object.entries(value)
          .filter(([, member]) => member !== undefined)
          .map(([name, member]) => `${quoted(name)}:${write(member, depth + 1)}`);
        return `{${members.join()}}`;
      }
    }
    invalid(`${what} must not contain ${typeof value === 'number' ? value : `a ${typeof value}`}.`);
  };
  return write(given, 0);
}

/** A JSON string, in which half a surrogate pair, which UTF-8 does not have, is U+FFFD. */
const quoted = (text: string): string => JSON.stringify(text.replace(/\p{Surrogate}/gu, '\uFFFD'));
