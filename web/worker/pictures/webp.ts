// The first frame of an animated WebP file, as a file of its own.
// https://developers.google.com/speed/webp/docs/riff_container

import type { Rgba } from './types.js';

export interface WebpFrame {
  file: Uint8Array<ArrayBuffer>;
  /** Where it lies on the canvas. */
  x: number;
  y: number;
}

const kRiff = 12; // bytes before the first chunk
const kFrame = 16; // before the chunks of a frame
const kAnimated = 2;
const kAlpha = 16;

const number3 = (view: DataView, at: number): number =>
  view.getUint16(at, true) | (view.getUint8(at + 2) << 16);

/** null: the file is no animation. Throws an Error if it is damaged. */
export function firstFrame(bytes: Uint8Array): WebpFrame | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const name = (at: number): string => String.fromCharCode(...bytes.subarray(at, at + 4));
  if (bytes.length < 30 || name(kRiff) !== 'VP8X' || !(bytes[20]! & kAnimated)) return null;
  for (let at = kRiff; at + 8 + kFrame < bytes.length;) {
    const length = view.getUint32(at + 4, true);
    if (name(at) === 'ANMF') {
      const chunks = bytes.subarray(at + 8 + kFrame, at + 8 + length);
      return {
        file: withHeader(bytes.subarray(at + 14, at + 20), chunks),
        x: 2 * number3(view, at + 8),
        y: 2 * number3(view, at + 11),
      };
    }
    at += 8 + length + (length & 1);
  }
  throw new Error('its animation has no frame');
}

/** `size`: width and height of the frame, as VP8X has them, too. */
function withHeader(size: Uint8Array, chunks: Uint8Array): Uint8Array<ArrayBuffer> {
  const file = new Uint8Array(kRiff + 18 + chunks.length);
  const view = new DataView(file.buffer);
  file.set(new TextEncoder().encode('RIFF....WEBPVP8X'));
  view.setUint32(4, file.length - 8, true);
  view.setUint32(16, 10, true);
  file[20] = kAlpha;
  file.set(size, 24);
  file.set(chunks, 30);
  return file;
}

/** A frame on its canvas, which is transparent beside it. */
export function onCanvas(frame: Rgba, { x, y }: WebpFrame, width: number, height: number): Rgba {
  if (x + frame.width > width || y + frame.height > height)
    throw new Error('a frame lies outside of the picture');
  const data = new Uint8Array(4 * width * height);
  const row = 4 * frame.width;
  for (let i = 0; i < frame.height; i++)
    data.set(frame.data.subarray(i * row, (i + 1) * row), 4 * ((y + i) * width + x));
  return { width, height, data };
}

/** Width and height of the canvas of an animation. */
export const canvasOf = (bytes: Uint8Array): [number, number] => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return [1 + number3(view, 24), 1 + number3(view, 27)];
};
