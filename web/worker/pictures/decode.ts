// Decodes a picture to RGB: 8 bits, upright, alpha over white. PNG is decoded in png.ts, everything
// else by the platform or the engine.

import type { ImageSpec } from '../../protocol/messages.js';
import type { Decoders, EngineFile, Fail, Rgb } from './types.js';
import { jpegMarkers } from './jpeg.js';
import { orientationOf, turned } from './orientation.js';
import { flattened } from './over-white.js';
import { decodePng } from './png.js';

// Caps on what is allocated; src/media/image.h has the same.
const kMaxFileBytes = 256 << 20;
const kMaxPixels = 64 << 20;
const kMaxSide = 65535;
// Caps on scans, each of which visits every block; src/media/decode_jpeg.cpp has the same.
const kMinScans = 16;
const kMaxScanPixels = 1 << 30;

export async function decodeImage(
  image: ImageSpec,
  decoders: Decoders,
  error: Fail,
): Promise<Rgb | EngineFile> {
  if ('data' in image) {
    check(image.width, image.height, error);
    if (image.data.length !== 4 * image.width * image.height)
      throw error('INVALID_ARGUMENT', 'ImageData needs 4 bytes for each pixel.');
    return flattened(image);
  }
  if (typeof ImageBitmap !== 'undefined' && image instanceof ImageBitmap) {
    check(image.width, image.height, error);
    return flattened(await decoders.bitmap!(image));
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
  const damaged = (why: string): Error =>
    error('INVALID_ARGUMENT', `The ${format.toUpperCase()} picture is damaged: ${why}`);
  const [width, height] = sizeOf(bytes, format);
  if (height === undefined) throw damaged('it has no size');
  check(width!, height, error);
  if (format === 'jpeg') {
    const { scans, partial, ended } = jpegMarkers(bytes)!;
    if (partial && !ended) throw damaged('the file ends too early');
    if (scans > kMinScans && scans * width! * height > kMaxScanPixels)
      throw damaged('it has too many scans');
  }
  if (decoders.byEngine?.includes(format)) return { file: bytes };
  try {
    const image =
      format === 'png'
        ? await decodePng(bytes)
        : flattened(await decoders.file(bytes, format, error));
    return turned(image, orientationOf(bytes, format));
  } catch (cause) {
    const { code, message } = cause as Error & { code?: unknown };
    throw typeof code === 'string' ? cause : damaged(message);
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
    const found = jpegMarkers(bytes);
    if (found) return [found.width, found.height];
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
