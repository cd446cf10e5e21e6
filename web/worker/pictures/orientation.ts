// How a picture is to be turned: the tag "Orientation" of its EXIF block (Exif 2.32, 4.6.4), in
// JPEG, PNG and WebP files.

import type { Rgb } from './types.js';

/** 1 to 8; 1: as stored, also where the block is missing or damaged. */
export function orientationOf(bytes: Uint8Array, format: string): number {
  try {
    const tiff = tiffBlock(bytes, format);
    return tiff ? orientationTag(tiff) : 1;
  } catch {
    return 1; // cut off
  }
}

const text = (view: DataView, at: number, length: number): string =>
  String.fromCharCode(...new Uint8Array(view.buffer, view.byteOffset + at, length));

function tiffBlock(bytes: Uint8Array, format: string): DataView | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const block = (at: number, length: number): DataView =>
    new DataView(bytes.buffer, bytes.byteOffset + at, length);
  if (format === 'jpeg') {
    for (let at = 2; view.getUint8(at) === 0xff && view.getUint8(at + 1) !== 0xda;) {
      const length = view.getUint16(at + 2);
      if (view.getUint8(at + 1) === 0xe1 && text(view, at + 4, 6) === 'Exif\0\0')
        return block(at + 10, length - 8);
      at += 2 + length;
    }
  } else if (format === 'png') {
    for (let at = 8; at + 12 <= bytes.length;) {
      const length = view.getUint32(at);
      if (text(view, at + 4, 4) === 'eXIf') return block(at + 8, length);
      at += 12 + length;
    }
  } else if (format === 'webp') {
    for (let at = 12; at + 8 <= bytes.length;) {
      const length = view.getUint32(at + 4, true);
      if (text(view, at, 4) === 'EXIF') {
        const skip = text(view, at + 8, 6) === 'Exif\0\0' ? 6 : 0; // some writers keep JPEG's
        return block(at + 8 + skip, length - skip);
      }
      at += 8 + length + (length & 1);
    }
  }
  return null;
}

function orientationTag(tiff: DataView): number {
  const little = tiff.getUint16(0) === 0x4949;
  const directory = tiff.getUint32(4, little);
  const entries = tiff.getUint16(directory, little);
  for (let i = 0; i < entries; i++) {
    const at = directory + 2 + 12 * i;
    const isShort = tiff.getUint16(at + 2, little) === 3;
    if (tiff.getUint16(at, little) !== 0x0112 || !isShort) continue;
    const value = tiff.getUint16(at + 8, little);
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

/** The picture as viewers show it. */
export function turned(image: Rgb, orientation: number): Rgb {
  if (orientation === 1) return image;
  // Which side of what is seen the stored first row and first column are, by the standard's table.
  const transposed = orientation >= 5;
  const flipX = [2, 3, 6, 7].includes(orientation);
  const flipY = [3, 4, 7, 8].includes(orientation);
  const [width, height] = transposed ? [image.height, image.width] : [image.width, image.height];
  const rgb = new Uint8Array(image.rgb.length);
  for (let y = 0, o = 0; y < height; y++)
    for (let x = 0; x < width; x++, o += 3) {
      const u = flipX ? width - 1 - x : x;
      const v = flipY ? height - 1 - y : y;
      const i = 3 * (transposed ? u * image.width + v : v * image.width + u);
      rgb.set(image.rgb.subarray(i, i + 3), o);
    }
  return { width, height, rgb };
}
