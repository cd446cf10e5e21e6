// Where timelines wait that the engine does not hold: small ones in memory, others in files, piece by
// piece, so that no copy of a KV cache ever stands in memory. What finds no place is not kept. A
// waiting state is plain data, so that the engine of another worker can take it over; what a killed
// page left behind is swept a day later.

import type { Stash, SyncFile } from '../io/files.js';
import type { Parked } from '../wire/calls.js';
import { yieldToEvents } from '../wire/rpc.js';
import { kStageBytes as kPiece } from './binding.js';

/** Gives [offset, offset + length) of a state; good until the next call. */
export type ReadPiece = (offset: number, length: number) => Uint8Array;

const kInMemory = 4 << 20;
const kPiecesAtOnce = 64; // then the event loop runs
const kStaleMs = 24 * 3600_000;

/** Calls `each` for the pieces of `size` bytes. */
export async function eachPiece(size: number, each: (offset: number, length: number) => void): Promise<void> {
  for (let at = 0, n = 1; at < size; at += kPiece, n++) {
    each(at, Math.min(kPiece, size - at));
    if (n % kPiecesAtOnce === 0) await yieldToEvents();
  }
}

/** One engine's parking place. */
export class Parking {
  #inMemory = 0;
  #stash: Promise<Stash | null> | undefined;
  readonly #open: () => Promise<Stash | null>;
  readonly #memoryLimit: number;

  constructor(
    open: () => Promise<Stash | null>,
    memoryLimit = kInMemory,
  ) {
    this.#open = open;
    this.#memoryLimit = memoryLimit;
  }

  /** Keeps a state; null where there is no room for it. What `piece` throws means the same. */
  async park(size: number, piece: ReadPiece): Promise<Parked | null> {
    const small = this.#inMemory + size <= this.#memoryLimit;
    const parked: Parked = small ? { size, bytes: new Uint8Array(size) } : { size, name: `${Date.now()}-${crypto.randomUUID()}` };
    this.adopt(parked);
    let file: SyncFile | undefined;
    try {
      if ('name' in parked) file = await (await this.#folder())!.open(parked.name);
      await eachPiece(size, (at, length) => {
        if ('bytes' in parked) parked.bytes.set(piece(at, length), at);
        else if (file!.write(piece(at, length), { at }) !== length) throw new Error('The store is full.');
      });
      file?.close();
      return parked;
    } catch {
      file?.close();
      await this.drop(parked);
      return null;
    }
  }

  /** Hands a state over, piece by piece and in order. */
  async read(parked: Parked, take: (piece: Uint8Array) => void): Promise<void> {
    if ('bytes' in parked) return eachPiece(parked.size, (at, length) => take(parked.bytes.subarray(at, at + length)));
    const file = await (await this.#folder())!.open(parked.name);
    try {
      const piece = new Uint8Array(kPiece);
      await eachPiece(parked.size, (at, length) => {
        const part = piece.subarray(0, length);
        if (file.read(part, { at }) !== length) throw new Error('The state was cut off.');
        take(part);
      });
    } finally {
      file.close();
    }
  }

  /** Counts a state that another engine has left. */
  adopt(parked: Parked): void {
    if ('bytes' in parked) this.#inMemory += parked.size;
  }

  async drop(parked: Parked | null | undefined): Promise<void> {
    if (!parked) return;
    if ('bytes' in parked) this.#inMemory -= parked.size;
    else await (await this.#folder())?.remove(parked.name).catch(() => {});
  }

  #folder(): Promise<Stash | null> {
    return (this.#stash ??= this.#sweep());
  }

  async #sweep(): Promise<Stash | null> {
    const stash = await this.#open().catch(() => null);
    for (const name of (await stash?.names().catch(() => [])) ?? []) {
      if (Date.now() - Number.parseInt(name, 10) > kStaleMs) await stash!.remove(name).catch(() => {});
    }
    return stash;
  }
}
