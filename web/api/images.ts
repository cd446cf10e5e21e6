// The pictures of a prompt as they are posted to the worker.

import { invalid, SluiceError } from '../protocol/errors.js';
import type { ImageSpec } from '../protocol/messages.js';
import type { ImageSource } from '../protocol/options.js';

/** Addresses are fetched here, elements are read here; files are decoded in the worker. */
export function imageSpecs(images: readonly ImageSource[]): Promise<ImageSpec[]> {
  if (!Array.isArray(images)) invalid('images must be an array.');
  return Promise.all(images.map(specOf));
}

async function specOf(image: ImageSource): Promise<ImageSpec> {
  if (typeof image === 'string' || image instanceof URL) return fetched(`${image}`);
  if (image instanceof Blob) return image;
  if (image instanceof ArrayBuffer) return new Uint8Array(image.slice(0));
  if (ArrayBuffer.isView(image))
    return new Uint8Array(image.buffer, image.byteOffset, image.byteLength).slice();
  const { width, height, data } = image as Extract<ImageSpec, { data: unknown }>;
  if (data) return { width, height, data };
  try {
    return await createImageBitmap(image as ImageBitmap);
  } catch (cause) {
    throw new SluiceError(
      'INVALID_ARGUMENT',
      `A picture cannot be read: ${(cause as Error).message}`,
      { cause },
    );
  }
}

async function fetched(url: string): Promise<Blob> {
  let why = '';
  try {
    const response = await fetch(url);
    if (response.ok) return await response.blob();
    why = `the server answered ${response.status}`;
  } catch (cause) {
    why = (cause as Error).message;
  }
  throw new SluiceError('IO', `The picture ${url.slice(0, 100)} cannot be read: ${why}.`);
}
