// Pictures in Node's worker: JPEG and WebP are decoded by libraries in wasm beside this file, GIF and
// BMP by the engine.

import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import decodeJpeg, { init as initJpeg } from '@jsquash/jpeg/decode.js';
import decodeWebp, { init as initWebp } from '@jsquash/webp/decode.js';

import type * as GpuPictures from '../../gpu/pictures/pictures.js';
import type { Decoders, PicturesModule } from './types.js';
import { Prompts } from './prompts.js';

// The libraries return their results as this class of browsers.
(globalThis as { ImageData?: unknown }).ImageData ??= class {
  constructor(
    readonly data: Uint8ClampedArray,
    readonly width: number,
    readonly height: number,
  ) {}
};

async function compiled(name: string): Promise<WebAssembly.Module> {
  const file = fileURLToPath(new URL(name, import.meta.url));
  return WebAssembly.compile(await readFile(file));
}

let jpeg: Promise<unknown> | undefined;
let webp: Promise<unknown> | undefined;

const decoders: Decoders = {
  byEngine: ['gif', 'bmp'],
  gpuPictures: async () =>
    (await import(new URL('./gpu-pictures.js', import.meta.url).href)) as typeof GpuPictures,
  async file(bytes, format) {
    if (format === 'jpeg') {
      await (jpeg ??= compiled('./jpeg.wasm').then((module) => initJpeg(module)));
      return decodeJpeg(bytes.buffer, { preserveOrientation: false });
    }
    await (webp ??= compiled('./webp.wasm').then((module) => initWebp(module as never)));
    return decodeWebp(bytes.buffer);
  },
};

export const picturePrompts: PicturesModule['picturePrompts'] = (host) =>
  new Prompts(host, decoders);
