// Alpha in pictures: everything is shown over white.

import type { Rgb, Rgba } from './types.js';

/** One channel of a pixel. */
export const overWhite = (value: number, alpha: number): number =>
  alpha === 255 ? value : Math.round((value * alpha + 255 * (255 - alpha)) / 255);

export function flattened({ width, height, data }: Rgba): Rgb {
  const rgb = new Uint8Array(3 * width * height);
  for (let i = 0, o = 0; o < rgb.length; i += 4)
    for (let c = 0; c < 3; c++, o++) rgb[o] = overWhite(data[i + c]!, data[i + 3]!);
  return { width, height, rgb };
}
