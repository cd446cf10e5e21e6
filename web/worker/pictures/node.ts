// Pictures in Node's worker: JPEG and WebP are decoded by libraries in wasm beside this file, GIF and
// BMP by the engine.

import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import type * as GpuPictures from '../../gpu/pictures/pictures.js';
import type { Decoders, PicturesModule } from './types.js';
import { fileDecoder } from './node-files.js';
import { Prompts } from './prompts.js';

async function compiled(name: string): Promise<WebAssembly.Module> {
  const file = fileURLToPath(new URL(`./${name}`, import.meta.url));
  return WebAssembly.compile(await readFile(file));
}

const decoders: Decoders = {
  byEngine: ['gif', 'bmp'],
  gpuPictures: async () =>
    (await import(new URL('./gpu-pictures.js', import.meta.url).href)) as typeof GpuPictures,
  file: fileDecoder(compiled),
};

export const picturePrompts: PicturesModule['picturePrompts'] = (host) =>
  new Prompts(host, decoders);
