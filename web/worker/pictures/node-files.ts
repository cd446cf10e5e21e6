// JPEG and WebP files in Node: libraries in wasm decode them. An instance that has failed is not
// used again: it still holds the memory of the picture.

import decodeJpeg, { init as initJpeg } from '@jsquash/jpeg/decode.js';
import decodeWebp, { init as initWebp } from '@jsquash/webp/decode.js';

import { jpegMarkers } from './jpeg.js';
import type { Decoders, Fail, Rgba } from './types.js';
import { canvasOf, firstFrame, onCanvas } from './webp.js';

// The libraries return their results as this class of browsers.
(globalThis as { ImageData?: unknown }).ImageData ??= class {
  constructor(
    readonly data: Uint8ClampedArray,
    readonly width: number,
    readonly height: number,
  ) {}
};

/** What libjpeg writes about damage that it goes on behind, with grey blocks. */
const kDamage = /^(Corrupt JPEG data: (?!\d+ extraneous)|Inconsistent progression)/;

/** A library. `printErr` gets the lines that it writes. */
type Start = (module: never, how: { printErr: (line: string) => void }) => Promise<unknown>;

class Library {
  readonly #start: Start;
  readonly #compiled: () => Promise<WebAssembly.Module>;
  #module: Promise<WebAssembly.Module> | undefined;
  #started: Promise<unknown> | undefined;
  #lines: string[] = [];

  constructor(start: Start, compiled: () => Promise<WebAssembly.Module>) {
    this.#start = start;
    this.#compiled = compiled;
  }

  /** The picture, and what the library wrote. */
  async decode(work: () => Promise<Rgba>, error: Fail): Promise<[Rgba, string[]]> {
    const printErr = (line: string): void => void this.#lines.push(line);
    this.#module ??= this.#compiled();
    const module = await this.#module.catch(({ message }: Error) => {
      this.#module = undefined;
      throw error('MODULE_LOAD', `A picture's decoder cannot be loaded: ${message}`);
    });
    await (this.#started ??= this.#start(module as never, { printErr }));
    this.#lines = [];
    try {
      return [await work(), this.#lines];
    } catch (cause) {
      this.#started = undefined;
      throw new Error(this.#lines.at(-1) ?? (cause as Error).message, { cause });
    }
  }
}

/** `compiled`: jpeg.wasm or webp.wasm. */
export function fileDecoder(
  compiled: (name: string) => Promise<WebAssembly.Module>,
): Decoders['file'] {
  const jpeg = new Library(initJpeg as Start, () => compiled('jpeg.wasm'));
  const webp = new Library(initWebp as Start, () => compiled('webp.wasm'));
  return (bytes, format, error) =>
    format === 'jpeg' ? readJpeg(jpeg, bytes, error) : readWebp(webp, bytes, error);
}

/** The bytes alone, of which a library reads the buffer. */
const bufferOf = (bytes: Uint8Array<ArrayBuffer>): ArrayBuffer =>
  bytes.length === bytes.buffer.byteLength ? bytes.buffer : bytes.slice().buffer;

function withEndMark(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(bytes.length + 2);
  out.set(bytes);
  out.set([0xff, 0xd9], bytes.length);
  return out;
}

async function readJpeg(
  library: Library,
  bytes: Uint8Array<ArrayBuffer>,
  error: Fail,
): Promise<Rgba> {
  const { components, ended } = jpegMarkers(bytes)!;
  if (components !== 1 && components !== 3)
    throw error(
      'NOT_SUPPORTED',
      `JPEG pictures of ${components} components are not supported here: convert CMYK to RGB.`,
    );
  // With an end mark, the first line is about the data before it.
  const buffer = bufferOf(ended ? bytes : withEndMark(bytes));
  const [image, lines] = await library.decode(
    () => decodeJpeg(buffer, { preserveOrientation: false }),
    error,
  );
  const damage = lines.find((line) => kDamage.test(line));
  if (damage) throw new Error(damage);
  return image;
}

async function readWebp(
  library: Library,
  bytes: Uint8Array<ArrayBuffer>,
  error: Fail,
): Promise<Rgba> {
  const frame = firstFrame(bytes);
  const [image] = await library.decode(() => decodeWebp(bufferOf(frame?.file ?? bytes)), error);
  return frame ? onCanvas(image, frame, ...canvasOf(bytes)) : image;
}
