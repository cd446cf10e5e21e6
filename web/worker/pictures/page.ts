// Pictures in the browser's worker: the browser decodes what is not PNG.

import type * as GpuPictures from '../../gpu/pictures/pictures.js';
import { asset } from '../../io/asset.js';
import type { Decoders, PicturesModule, Rgba } from './types.js';
import { Prompts } from './prompts.js';

async function bitmap(image: ImageBitmap): Promise<Rgba> {
  const { width, height } = image;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext('2d', { willReadFrequently: true })!;
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  return { width, height, data };
}

const decoders: Decoders = {
  bitmap,
  gpuPictures: () =>
    asset<typeof GpuPictures>('gpu-pictures.js', new URL('./gpu-pictures.js', import.meta.url)),
  async file(bytes, format) {
    const blob = new Blob([bytes], { type: `image/${format}` });
    const image = await createImageBitmap(blob, {
      imageOrientation: 'none',
      premultiplyAlpha: 'none',
      colorSpaceConversion: 'none',
    });
    try {
      return await bitmap(image);
    } finally {
      image.close();
    }
  },
};

export const picturePrompts: PicturesModule['picturePrompts'] = (host) =>
  new Prompts(host, decoders);
