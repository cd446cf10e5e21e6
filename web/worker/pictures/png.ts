// PNG to RGB over white. A canvas multiplies colours by alpha and loses some, so pages need this, too.
// The platform inflates as a stream, which is read row by row: a file that inflates to more than its
// header claims costs nothing. Written here, because libraries inflate all of it at once (fast-png) or
// need Node's modules (pngjs). https://www.w3.org/TR/png-3/

import { crc32 } from '../../io/crc32.js';
import type { Rgb } from './types.js';
import { overWhite } from './over-white.js';

const enum Colour {
  Grey = 0,
  True = 2,
  Palette = 3,
  GreyAlpha = 4,
  TrueAlpha = 6,
}
const kChannels: Record<number, number> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
const kDepths: Record<number, number[]> = { 0: [1, 2, 4, 8, 16], 3: [1, 2, 4, 8] };
const kAround = 12; // bytes of a chunk besides its data
const kSlice = 1 << 14; // bytes that are inflated at once

/** First column and row of the passes of an interlaced picture, and steps. */
const kPasses = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
] as const;
const kWhole = [[0, 0, 1, 1]] as const;

interface Png {
  width: number;
  height: number;
  depth: number;
  colour: number;
  interlaced: boolean;
  /** Bytes of PLTE and tRNS; empty: there is none. */
  palette: Uint8Array;
  transparent: Uint8Array;
  data: Uint8Array<ArrayBuffer>[];
}

/** Throws an Error with the reason for what is damaged. The caller has checked the size. */
export async function decodePng(bytes: Uint8Array<ArrayBuffer>): Promise<Rgb> {
  const png = readChunks(bytes);
  const { width, height } = png;
  const rgb = new Uint8Array(3 * width * height);
  const inflated = new Inflated(png.data);
  try {
    for (const pass of png.interlaced ? kPasses : kWhole) await readPass(png, pass, inflated, rgb);
  } finally {
    inflated.close();
  }
  return { width, height, rgb };
}

function readChunks(bytes: Uint8Array<ArrayBuffer>): Png {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const none = new Uint8Array();
  let png: Png | undefined;
  // What is cut off is missing when the rows are read.
  for (let at = 8; at + kAround <= bytes.length;) {
    const length = view.getUint32(at);
    const end = at + kAround + length;
    if (end > bytes.length) break;
    const type = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    const data = bytes.subarray(at + 8, end - 4);
    if (!png !== (type === 'IHDR')) throw new Error('its header is not where it should be');
    // Chunks that do not change pixels have a small letter first.
    const matters = type === 'tRNS' || !(bytes[at + 4]! & 32);
    if (matters && crc32(bytes.subarray(at + 4, end - 4)) !== view.getUint32(end - 4))
      throw new Error(`the checksum of ${type} is wrong`);
    if (type === 'IEND') break;
    if (!png) png = { ...headerOf(data), palette: none, transparent: none, data: [] };
    else if (type === 'IDAT') png.data.push(data);
    else if (type === 'PLTE') png.palette = data;
    else if (type === 'tRNS') png.transparent = data;
    else if (matters) throw new Error(`chunks of type ${type} are unknown`);
    at = end;
  }
  if (!png) throw new Error('the file ends too early');
  const { colour, palette } = png;
  if (colour === Colour.Palette && (palette.length % 3 || !palette.length || palette.length > 768))
    throw new Error('it has no palette');
  return png;
}

function headerOf(data: Uint8Array): Omit<Png, 'palette' | 'transparent' | 'data'> {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  if (data.length !== 13) throw new Error('its header is not 13 bytes long');
  const [depth, colour, compression, filter, interlace] = data.subarray(8);
  const known = kChannels[colour!] && (kDepths[colour!] ?? [8, 16]).includes(depth!);
  if (!known || compression || filter || interlace! > 1) throw new Error('its kind is unknown');
  return {
    width: view.getUint32(0),
    height: view.getUint32(4),
    depth: depth!,
    colour: colour!,
    interlaced: interlace === 1,
  };
}

/** The rows of all IDAT chunks, inflated as they are asked for. */
class Inflated {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #held = new Uint8Array();

  constructor(parts: Uint8Array<ArrayBuffer>[]) {
    let part = 0;
    let at = 0;
    const packed = new ReadableStream<Uint8Array<ArrayBuffer>>(
      {
        pull(to) {
          while (part < parts.length && at >= parts[part]!.length) {
            part++;
            at = 0;
          }
          if (part === parts.length) return to.close();
          to.enqueue(parts[part]!.slice(at, at + kSlice));
          at += kSlice;
        },
      },
      { highWaterMark: 0 },
    );
    this.#reader = packed.pipeThrough(new DecompressionStream('deflate')).getReader();
  }

  async fill(to: Uint8Array): Promise<void> {
    for (let n = 0; n < to.length;) {
      if (this.#held.length === 0) {
        const { done, value } = await this.#reader.read().catch(({ message }: Error) => {
          throw new Error(message); // without the platform's code
        });
        if (done) throw new Error('the file ends too early');
        this.#held = value as Uint8Array<ArrayBuffer>;
      }
      const part = this.#held.subarray(0, to.length - n);
      to.set(part, n);
      n += part.length;
      this.#held = this.#held.subarray(part.length);
    }
  }

  /** What is left is not inflated. */
  close(): void {
    this.#reader.cancel().catch(() => {});
  }
}

async function readPass(
  png: Png,
  [left, top, stepX, stepY]: readonly [number, number, number, number],
  inflated: Inflated,
  rgb: Uint8Array,
): Promise<void> {
  const { width, height, depth, colour } = png;
  const columns = Math.ceil((width - left) / stepX);
  if (columns <= 0) return;
  const bits = depth * kChannels[colour]!;
  const length = Math.ceil((columns * bits) / 8);
  let line = new Uint8Array(1 + length); // the filter, and the row
  let above = new Uint8Array(1 + length);
  const show = shower(png);
  for (let y = top; y < height; y += stepY) {
    await inflated.fill(line);
    const row = line.subarray(1);
    unfilter(line[0]!, row, above.subarray(1), Math.ceil(bits / 8));
    for (let i = 0, to = 3 * (y * width + left); i < columns; i++, to += 3 * stepX)
      show(row, i, rgb, to);
    [line, above] = [above, line];
  }
}

/** `step`: bytes from a pixel to the one left of it. */
function unfilter(filter: number, row: Uint8Array, above: Uint8Array, step: number): void {
  if (filter > 4) throw new Error('its filter is unknown');
  for (let i = 0; i < row.length; i++) {
    const a = i < step ? 0 : row[i - step]!;
    const b = above[i]!;
    if (filter === 1) row[i]! += a;
    else if (filter === 2) row[i]! += b;
    else if (filter === 3) row[i]! += (a + b) >> 1;
    else if (filter === 4) row[i]! += nearest(a, b, i < step ? 0 : above[i - step]!);
  }
}

/** Paeth's: the one of left, above and above left that is nearest to a + b - c. */
function nearest(a: number, b: number, c: number): number {
  const toA = Math.abs(b - c);
  const toB = Math.abs(a - c);
  const toC = Math.abs(a + b - 2 * c);
  return toA <= toB && toA <= toC ? a : toB <= toC ? b : c;
}

/** Writes pixel i of a row. */
type Show = (row: Uint8Array, i: number, rgb: Uint8Array, to: number) => void;

function shower({ depth, colour, palette, transparent }: Png): Show {
  if (colour === Colour.Palette) {
    return (row, i, rgb, to) => {
      const code = sampleOf(row, i, depth);
      const alpha = transparent[code] ?? 255;
      for (let c = 0; c < 3; c++) rgb[to + c] = overWhite(palette[3 * code + c] ?? 0, alpha);
    };
  }
  const channels = kChannels[colour]!;
  const grey = colour === Colour.Grey || colour === Colour.GreyAlpha;
  const alphas = colour === Colour.GreyAlpha || colour === Colour.TrueAlpha;
  const colours = grey ? 1 : 3;
  const most = 2 ** depth - 1;
  const byte = (sample: number): number => Math.round((sample * 255) / most);
  const hidden =
    !alphas && transparent.length >= 2 * colours
      ? Array.from({ length: colours }, (_, c) => sampleOf(transparent, c, 16) & most)
      : null;
  return (row, i, rgb, to) => {
    const at = i * channels;
    let alpha = alphas ? byte(sampleOf(row, at + colours, depth)) : 255;
    if (hidden?.every((sample, c) => sample === sampleOf(row, at + c, depth))) alpha = 0;
    for (let c = 0; c < 3; c++)
      rgb[to + c] = overWhite(byte(sampleOf(row, at + (grey ? 0 : c), depth)), alpha);
  };
}

function sampleOf(row: Uint8Array, i: number, depth: number): number {
  if (depth === 8) return row[i]!;
  if (depth === 16) return (row[2 * i]! << 8) | row[2 * i + 1]!;
  const bit = i * depth;
  return (row[bit >> 3]! >> (8 - depth - (bit & 7))) & (2 ** depth - 1);
}
