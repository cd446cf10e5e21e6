// The pictures of a prompt: their marks in its text, and what is posted to the worker.

import type { ContentPart } from '../chat/engine.js';
import { invalid, SluiceError } from '../protocol/errors.js';
import { kMediaMark, withoutMarks, withoutPictures } from '../protocol/literal-spans.js';
import type { ImageSpec } from '../protocol/messages.js';
import type { ImageSource } from '../protocol/options.js';

/** A text in which each picture is a mark; other marks are in literal spans. */
export interface MarkedPrompt {
  text: string;
  images: readonly ImageSource[];
}

export const isParts = (prompt: unknown): prompt is readonly ContentPart[] =>
  Array.isArray(prompt) && typeof prompt[0] === 'object';

/** `images`: those of a string, whose marks are theirs. */
export function markedPrompt(
  prompt: string | readonly ContentPart[],
  images?: readonly ImageSource[],
): MarkedPrompt {
  if (typeof prompt === 'string')
    return images
      ? { text: withoutMarks(prompt), images }
      : { text: withoutPictures(prompt), images: [] };
  if (images) invalid('A prompt of parts has its pictures there, not in images.');
  const found: ImageSource[] = [];
  const textOf = (part: ContentPart): string => {
    if (typeof part?.type !== 'string')
      invalid('A prompt is a string, token ids, or parts with a type; chat() takes messages.');
    if (part.type === 'text') return withoutPictures(`${part.text}`);
    const image = part.type === 'image' ? part.image : part.image_url?.url;
    if (!image)
      throw new SluiceError(
        'NOT_SUPPORTED',
        `Prompt parts of type ${JSON.stringify((part as ContentPart).type)} are unsupported, or have no picture.`,
      );
    found.push(image);
    return kMediaMark;
  };
  return { text: prompt.map(textOf).join(''), images: found };
}

/** Addresses are fetched here, elements are read here; files are decoded in the worker. */
export function imageSpecs(
  images: readonly ImageSource[],
  signal?: AbortSignal,
): Promise<ImageSpec[]> {
  if (!Array.isArray(images)) invalid('images must be an array.');
  return Promise.all(images.map((image) => specOf(image, signal)));
}

async function specOf(image: ImageSource, signal?: AbortSignal): Promise<ImageSpec> {
  if (typeof image === 'string' || image instanceof URL) return fetched(`${image}`, signal);
  if (image instanceof Blob) return image;
  if (image instanceof ArrayBuffer) return new Uint8Array(image.slice(0));
  if (ArrayBuffer.isView(image))
    return new Uint8Array(image.buffer, image.byteOffset, image.byteLength).slice();
  try {
    const { width, height, data } = image as Extract<ImageSpec, { data: unknown }>;
    if (data) return { width, height, data };
    return await createImageBitmap(image as ImageBitmap);
  } catch (cause) {
    throw new SluiceError(
      'INVALID_ARGUMENT',
      `A picture cannot be read: ${(cause as Error).message}`,
      { cause },
    );
  }
}

async function fetched(url: string, signal?: AbortSignal): Promise<Blob> {
  let why = '';
  try {
    const response = await fetch(url, { signal });
    if (response.ok) return await response.blob();
    why = `the server answered ${response.status}`;
  } catch (cause) {
    why = (cause as Error).message;
  }
  const code = /^data:/i.test(url) ? 'INVALID_ARGUMENT' : 'IO';
  throw new SluiceError(code, `The picture ${url.slice(0, 100)} cannot be read: ${why}.`);
}
