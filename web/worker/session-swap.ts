// Storage for swapped-out sequences: small states in memory, others in files. States move in
// chunks, so a large KV cache is never copied in memory. A state that does not fit is dropped. A
// swapped state is plain data, so another worker's engine can take it over. Files that a killed
// page left behind are deleted after a day.

import type { SwapFiles, SyncFile } from '../io/files.js';
import type { Swapped } from '../protocol/calls.js';
import { yieldToEvents } from '../protocol/rpc.js';
import { kStageBytes as kPiece } from './binding.js';

/** Returns [offset, offset + length) of a state. Valid until the next call, or a copy. */
export type ReadPiece = (offset: number, length: number) => Uint8Array | Promise<Uint8Array>;

/** Takes a chunk of a state. They come in order. */
export type TakePiece = (piece: Uint8Array, offset: number) => void;

const kInMemory = 4 << 20;
const kPiecesAtOnce = 64; // between yields to the event loop
const kStaleMs = 24 * 3600_000;

/** Calls `each` for every chunk of a state of `size` bytes, with what `piece` returns for it. */
export async function eachPiece<T>(
  size: number,
  piece: (offset: number, length: number) => T | Promise<T>,
  each: (piece: T, offset: number) => void,
): Promise<void> {
  for (let at = 0, n = 1; at < size; at += kPiece, n++) {
    const got = piece(at, Math.min(kPiece, size - at));
    each(got instanceof Promise ? await got : got, at); // at once, if it is there
    if (n % kPiecesAtOnce === 0) await yieldToEvents();
  }
}

/** Chunks of a state that is in memory. */
export const piecesOf =
  (state: Uint8Array) =>
  (at: number, length: number): Uint8Array =>
    state.subarray(at, at + length);

/** Swap storage of one engine. */
export class SessionSwap {
  #inMemory = 0;
  #files: Promise<SwapFiles | null> | undefined;
  readonly #open: () => Promise<SwapFiles | null>;
  readonly #memoryLimit: number;

  constructor(open: () => Promise<SwapFiles | null>, memoryLimit = kInMemory) {
    this.#open = open;
    this.#memoryLimit = memoryLimit;
  }

  /** Stores a state. Returns null if there is no space for it or `piece` throws. */
  async put(size: number, piece: ReadPiece): Promise<Swapped | null> {
    const small = this.#inMemory + size <= this.#memoryLimit;
    const swapped: Swapped = small
      ? { size, bytes: new Uint8Array(size) }
      : { size, name: `${Date.now()}-${crypto.randomUUID()}` };
    this.adopt(swapped);
    let file: SyncFile | undefined;
    try {
      if ('name' in swapped) file = await (await this.#folder())!.open(swapped.name);
      await eachPiece(size, piece, (bytes, at) => {
        if ('bytes' in swapped) swapped.bytes.set(bytes, at);
        else if (file!.write(bytes, { at }) !== bytes.length) throw new Error('Swap file is full.');
      });
      file?.close();
      return swapped;
    } catch {
      file?.close();
      await this.drop(swapped);
      return null;
    }
  }

  /** Passes a state to `take`, chunk by chunk and in order. */
  async read(swapped: Swapped, take: TakePiece): Promise<void> {
    if ('bytes' in swapped) return eachPiece(swapped.size, piecesOf(swapped.bytes), take);
    const file = await (await this.#folder())!.open(swapped.name);
    try {
      const piece = new Uint8Array(kPiece);
      const read = (at: number, length: number): Uint8Array => {
        const part = piece.subarray(0, length);
        if (file.read(part, { at }) !== length) throw new Error('Swap file is cut off.');
        return part;
      };
      await eachPiece(swapped.size, read, take);
    } finally {
      file.close();
    }
  }

  /** Counts a state that another engine handed over. */
  adopt(swapped: Swapped): void {
    if ('bytes' in swapped) this.#inMemory += swapped.size;
  }

  async drop(swapped: Swapped | null | undefined): Promise<void> {
    if (!swapped) return;
    if ('bytes' in swapped) this.#inMemory -= swapped.size;
    else await (await this.#folder())?.remove(swapped.name).catch(() => {});
  }

  #folder(): Promise<SwapFiles | null> {
    return (this.#files ??= this.#sweep());
  }

  async #sweep(): Promise<SwapFiles | null> {
    const files = await this.#open().catch(() => null);
    for (const name of (await files?.names().catch(() => [])) ?? []) {
      if (Date.now() - Number.parseInt(name, 10) > kStaleMs)
        await files!.remove(name).catch(() => {});
    }
    return files;
  }
}
