// Decodes a picture to RGB: 8 bits, upright, alpha over white. PNG is decoded here, since a canvas
// multiplies colours by alpha and loses some. Everything else is decoded by the platform or the engine.

import { decode as decodePng } from 'fast-png';
import type { ImageSpec } from '../../protocol/messages.js';
import type { Decoders, EngineFile, Fail, Rgb, Rgba } from './types.js';
import { orientationOf, turned } from './orientation.js';

// Caps on what is allocated; src/media/image.h has the same.
const kMaxFileBytes = 256 << 20;
const kMaxPixels = 64 << 20;
const kMaxSide = 65535;

export async function decodeImage(
  image: ImageSpec,
  decoders: Decoders,
  error: Fail,
): Promise<Rgb | EngineFile> {
  if ('data' in image) {
    check(image.width, image.height, error);
    if (image.data.length !== 4 * image.width * image.height)
      throw error('INVALID_ARGUMENT', 'ImageData needs 4 bytes for each pixel.');
    return overWhite(image);
  }
  if (typeof ImageBitmap !== 'undefined' && image instanceof ImageBitmap) {
    check(image.width, image.height, error);
    return overWhite(await decoders.bitmap!(image));
  }
  const size = image instanceof Blob ? image.size : (image as Uint8Array).length;
  if (size > kMaxFileBytes)
    throw error(
      'INVALID_ARGUMENT',
      `The picture has ${size} bytes; the limit is ${kMaxFileBytes}.`,
    );
  const bytes =
    image instanceof Blob
      ? new Uint8Array(await image.arrayBuffer())
      : (image as Uint8Array<ArrayBuffer>);
  const format = formatOf(bytes);
  if (!format)
    throw error(
      'INVALID_ARGUMENT',
      'The file is not a picture that can be read: PNG, JPEG, WebP, GIF or BMP.',
    );
  const [width, height] = sizeOf(bytes, format);
  if (width) check(width, height!, error);
  if (decoders.byEngine?.includes(format)) return { file: bytes };
  try {
    const image = format === 'png' ? png(bytes) : overWhite(await decoders.file(bytes, format));
    return turned(image, orientationOf(bytes, format));
  } catch (cause) {
    const { code, message } = cause as Error & { code?: unknown };
    if (typeof code === 'string') throw cause;
    throw error('INVALID_ARGUMENT', `The ${format.toUpperCase()} picture is damaged: ${message}`);
  }
}

function check(width: number, height: number, error: Fail): void {
  if (
    Number.isInteger(width) &&
    Number.isInteger(height) &&
    Math.min(width, height) > 0 &&
    Math.max(width, height) <= kMaxSide &&
    width * height <= kMaxPixels
  )
    return;
  throw error(
    'INVALID_ARGUMENT',
    `The picture has ${width} x ${height} pixels; at most ${kMaxPixels} are read, ${kMaxSide} a side.`,
  );
}

/** The format that the first bytes name; '': none that is known. */
export function formatOf(bytes: Uint8Array): string {
  const starts = (text: string, at = 0): boolean =>
    [...text].every((char, i) => bytes[at + i] === char.charCodeAt(0));
  if (starts('\x89PNG\r\n\x1a\n')) return 'png';
  if (starts('\xff\xd8\xff')) return 'jpeg';
  if (starts('RIFF') && starts('WEBP', 8)) return 'webp';
  if (starts('GIF8')) return 'gif';
  return starts('BM') ? 'bmp' : '';
}

/** Width and height that a file claims, before anything is decoded; none: it does not say. */
export function sizeOf(bytes: Uint8Array, format: string): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  try {
    if (format === 'png') return [view.getUint32(16), view.getUint32(20)];
    if (format === 'gif') return [view.getUint16(6, true), view.getUint16(8, true)];
    if (format === 'bmp')
      return view.getUint32(14, true) === 12 // the header of OS/2
        ? [view.getUint16(18, true), view.getUint16(20, true)]
        : [view.getInt32(18, true), Math.abs(view.getInt32(22, true))];
    if (format === 'webp') return webpSize(view);
    for (let at = 2; at < bytes.length;) {
      if (view.getUint8(at) !== 0xff) return [];
      const marker = view.getUint8(at + 1);
      // Start of frame; C4, C8 and CC are other segments.
      if (marker >= 0xc0 && marker <= 0xcf && marker % 4 !== 0)
        return [view.getUint16(at + 7), view.getUint16(at + 5)];
      if (marker === 0xc0) return [view.getUint16(at + 7), view.getUint16(at + 5)];
      at += marker === 0xff ? 1 : 2 + view.getUint16(at + 2);
    }
  } catch {
    // Truncated: decoding says so.
  }
  return [];
}

function webpSize(view: DataView): number[] {
  const kind = view.getUint8(15);
  if (kind === 0x58)
    return [24, 27].map((at) => 1 + view.getUint16(at, true) + (view.getUint8(at + 2) << 16));
  if (kind === 0x4c) {
    const bits = view.getUint32(21, true);
    return [1 + (bits & 0x3fff), 1 + ((bits >> 14) & 0x3fff)];
  }
  return [view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff];
}

function overWhite({ width, height, data }: Rgba): Rgb {
  const rgb = new Uint8Array(3 * width * height);
  for (let i = 0, o = 0; o < rgb.length; i += 4) {
    const alpha = data[i + 3]!;
    for (let c = 0; c < 3; c++, o++) {
      const value = data[i + c]!;
      rgb[o] = alpha === 255 ? value : Math.round((value * alpha + 255 * (255 - alpha)) / 255);
    }
  }
  return { width, height, rgb };
}

/** PNG of any kind: palettes, gray, alpha, transparent colours, 16 bits (rounded). */
function png(bytes: Uint8Array): Rgb {
  const image = decodePng(bytes);
  const { width, height, palette, depth } = image;
  const transparent = image.transparency;
  const { channels } = image;
  const pixels = width * height;
  const data = new Uint8ClampedArray(4 * pixels);
  const wide = depth === 16;
  const most = 2 ** depth - 1;
  const value = (sample: number): number => (wide ? sample / 257 : (sample * 255) / most);
  if (palette) {
    const codes = samples(image.data as Uint8Array, width, height, depth);
    for (let i = 0; i < pixels; i++) {
      const [r, g, b, a = 255] = palette[codes[i]!] ?? [0, 0, 0];
      data.set([r!, g!, b!, a], 4 * i);
    }
    return overWhite({ width, height, data });
  }
  const codes = depth < 8 ? samples(image.data as Uint8Array, width, height, depth) : image.data;
  for (let i = 0, at = 0; i < pixels; i++, at += channels) {
    const gray = channels < 3;
    const alphas = channels === 2 || channels === 4;
    const own = [0, 1, 2].map((c) => codes[at + (gray ? 0 : c)]!);
    const hidden = transparent && own.every((sample, c) => sample === transparent[gray ? 0 : c]);
    for (let c = 0; c < 3; c++) data[4 * i + c] = value(own[c]!);
    data[4 * i + 3] = alphas ? value(codes[at + channels - 1]!) : hidden ? 0 : 255;
  }
  return overWhite({ width, height, data });
}

/** Samples of less than a byte, from packed rows. */
function samples(packed: Uint8Array, width: number, height: number, depth: number): Uint8Array {
  if (depth === 8) return packed;
  const out = new Uint8Array(width * height);
  const stride = Math.ceil((width * depth) / 8);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const bit = x * depth;
      const byte = packed[y * stride + (bit >> 3)]!;
      out[y * width + x] = (byte >> (8 - depth - (bit & 7))) & (2 ** depth - 1);
    }
  return out;
}
