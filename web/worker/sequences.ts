// Places the sequences of one engine: in its slots, or swapped out. Sequence 0 is the engine's own,
// negative numbers are further chats, positive ones are sessions. States are opaque here and move
// in chunks. A state that cannot be kept, or is lost, only costs time: every request brings all
// tokens of its sequence, so they can be recomputed.

import type { KvState } from '../gpu/kv-state.js';
import type { HandoverSequences, Waiting } from '../protocol/calls.js';
import { SluiceError } from '../protocol/errors.js';
import { sharedPrefix } from '../protocol/prefix.js';
import type { EngineBinding } from './binding.js';
import { errorOf } from './header-loader.js';
import { eachPiece, piecesOf, type SessionSwap, type TakePiece } from './session-swap.js';

/** A slot of the engine: one KV cache. */
interface Slot {
  number: number;
  /** The sequence in it; undefined: none. */
  id: number | undefined;
  /** Tokens of the sequence that must be recomputed; null: the KV cache is valid. */
  missing: Int32Array | null;
}

/**
 * What has the KV cache of all slots if memory has none. Undefined: memory has it; null: it was lost with
 * the GPU, and the engine recomputes it.
 */
export type KvElsewhere = () => KvState | null | undefined;

const kNone: ReadonlySet<number> = new Set();

export class Sequences {
  readonly #waiting = new Map<number, Waiting>();
  /** Keys of the engine's own sequences, by id. */
  readonly #keys = new Map<number, string>();
  /** In order of use, the most recent one last. */
  readonly #slots: Slot[];
  readonly #binding: EngineBinding;
  readonly #memory: WebAssembly.Memory;
  readonly #swap: SessionSwap;
  readonly #kv: KvElsewhere;

  constructor(
    binding: EngineBinding,
    memory: WebAssembly.Memory,
    swap: SessionSwap,
    left: HandoverSequences = [],
    slots = 1,
    kv: KvElsewhere = () => undefined,
  ) {
    this.#kv = kv;
    this.#binding = binding;
    this.#memory = memory;
    this.#swap = swap;
    this.#slots = Array.from({ length: slots }, (_, number) => ({
      number,
      id: undefined,
      missing: null,
    }));
    for (const [id, waiting] of left) {
      this.#waiting.set(id, waiting);
      if (waiting.swapped) swap.adopt(waiting.swapped);
    }
  }

  /**
   * Brings sequence `id` into a slot, selects the slot and returns its number. If the state was not
   * kept, `missingTokens` are the tokens to recompute. Slots of `taken` sequences are not touched.
   * If another sequence shares a longer prefix with `prompt`, `id` starts as a copy of it. Calls
   * must not overlap.
   */
  async use(id: number, taken = kNone, prompt?: Int32Array): Promise<number> {
    if (prompt) await this.#inherit(id, taken, prompt);
    const slot = this.#slotOf(id) ?? (await this.#vacate(taken));
    this.#last(slot);
    if (slot.id !== id) {
      slot.id = id;
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (waiting) {
        const { tokens, swapped } = waiting;
        const back =
          swapped &&
          (await this.#enter(slot, swapped.size, (take) => this.#swap.read(swapped, take)).then(
            () => true,
            () => false,
          ));
        if (!back) slot.missing = tokens;
        await this.#swap.drop(swapped);
      }
    }
    return this.#select(slot);
  }

  /**
   * Chooses one of the engine's own sequences, not `taken`, for a chat with these tokens: the one
   * that was last used with this key, or the one with the longest common prefix, if that is most of
   * its content. Otherwise an empty one, or the one that has been idle longest.
   */
  best(tokens: Int32Array, taken: ReadonlySet<number>, key = ''): number {
    let best = 0;
    let most = -Infinity;
    for (let id = 0; id > -this.#slots.length; id--) {
      if (taken.has(id)) continue;
      if (key && this.#keys.get(id) === key) return id;
      const held = this.#heldBy(id);
      const shared = sharedPrefix(held, tokens);
      // An empty sequence costs nothing, a swapped-out one little.
      const worth =
        2 * shared > held.length
          ? shared - held.length / 1e7
          : held.length && -2 - this.#slots.indexOf(this.#slotOf(id)!);
      if (worth > most) [best, most] = [id, worth];
    }
    if (most > -Infinity) this.#keys.set(best, key);
    return best;
  }

  /** Tokens that the most recently used sequence must recompute; null: none. */
  get missingTokens(): Int32Array | null {
    return this.#last().missing;
  }

  /** Before the most recently used sequence is saved: its KV cache may be lost with the GPU. */
  checkLost(): void {
    const slot = this.#last();
    const tokens = this.#held(slot);
    if (this.#kv() !== null || !tokens.length) return;
    slot.missing = tokens;
    this.#binding.clear();
  }

  /** The most recently used sequence has recomputed its tokens. */
  settle(): void {
    this.#last().missing = null;
  }

  /** Selects an empty slot, for work that belongs to no sequence. */
  async borrow(): Promise<void> {
    this.#select(await this.#vacate());
  }

  /** Swaps out all sequences. */
  async #empty(): Promise<void> {
    for (const slot of this.#slots) await this.#swapOut(slot);
  }

  /** Drops all states, so that all sequences are recomputed. */
  async expire(): Promise<void> {
    await this.#empty();
    for (const waiting of this.#waiting.values()) {
      await this.#swap.drop(waiting.swapped);
      waiting.swapped = null;
    }
  }

  /** Makes sequence `to` a copy of the most recently used one. */
  async fork(to: number): Promise<void> {
    await this.forget(to);
    const from = this.#last();
    const kv = this.#kv();
    const free = this.#slots.find(({ id }) => id === undefined);
    if (!kv || !free || from.missing || !this.#held(from).length) return this.#keep(from, to);
    // On the GPU. What memory has of the state is copied in chunks, without the rows.
    const size = this.#binding.stateBytes();
    const piece = (at: number, length: number): Uint8Array => this.#piece(from, at, length).slice();
    await this.#enter(free, size, (take) => eachPiece(size, piece, take), null);
    kv.copy(from.number, free.number, this.#binding.position());
    free.id = to;
  }

  /** State of the most recently used sequence. */
  async save(): Promise<Uint8Array> {
    const slot = this.#last();
    const size = this.#binding.stateBytes();
    let state: Uint8Array;
    try {
      state = new Uint8Array(size);
    } catch {
      throw new SluiceError('OUT_OF_MEMORY', `No memory for a state of ${size} bytes.`);
    }
    await eachPiece(size, this.#pieces(slot), (piece, at) => state.set(piece, at));
    return state;
  }

  /** Restores sequence `id` from a state. If the state is invalid, the sequence stays as it was. */
  async restore(id: number, state: Uint8Array): Promise<void> {
    const slot = this.#slotOf(id) ?? (await this.#vacate());
    await this.#swapOut(slot);
    await this.#enter(slot, state.length, (take) => eachPiece(state.length, piecesOf(state), take));
    slot.id = id;
    await this.#drop(id);
  }

  /** Deletes a sequence, in a slot or swapped out. */
  async forget(id: number): Promise<void> {
    const slot = this.#slotOf(id);
    if (slot) this.#clear(slot);
    await this.#drop(id);
  }

  async forgetAll(): Promise<void> {
    for (const id of [...this.#waiting.keys()]) await this.#drop(id);
  }

  /** Swaps out and returns all sequences, for another engine of the same model. */
  async leave(): Promise<HandoverSequences> {
    await this.#empty();
    return [...this.#waiting];
  }

  #slotOf(id: number): Slot | undefined {
    return this.#slots.find((slot) => slot.id === id);
  }

  /** The most recently used slot. If `slot` is given, makes it the most recent one. */
  #last(slot?: Slot): Slot {
    if (slot) this.#slots.push(...this.#slots.splice(this.#slots.indexOf(slot), 1));
    return this.#slots.at(-1)!;
  }

  #select({ number }: Slot): number {
    this.#binding.select(number);
    return number;
  }

  #held(slot: Slot): Int32Array {
    this.#select(slot);
    return slot.missing ?? this.#binding.tokens().slice();
  }

  #heldBy(id: number): Int32Array {
    const slot = this.#slotOf(id);
    return slot ? this.#held(slot) : (this.#waiting.get(id)?.tokens ?? new Int32Array());
  }

  #clear(slot: Slot): void {
    slot.id = undefined;
    slot.missing = null;
    this.#select(slot);
    this.#binding.clear();
  }

  /** A free slot, or the one that has been idle longest, after its sequence is swapped out. */
  async #vacate(taken = kNone): Promise<Slot> {
    const slot =
      this.#slots.find(({ id }) => id === undefined) ??
      this.#slots.find(({ id }) => !taken.has(id!))!;
    await this.#swapOut(slot);
    return slot;
  }

  async #swapOut(slot: Slot): Promise<void> {
    if (slot.id !== undefined) await this.#keep(slot, slot.id);
    this.#clear(slot);
  }

  /** Swaps out a copy of the slot's content as sequence `id`. */
  async #keep(slot: Slot, id: number): Promise<void> {
    const tokens = this.#held(slot);
    if (tokens.length === 0) return;
    const lost = slot.missing || this.#kv() === null;
    const copy = lost ? null : this.#swap.put(this.#binding.stateBytes(), this.#pieces(slot));
    this.#waiting.set(id, { tokens, swapped: await copy });
  }

  /**
   * Starts sequence `id` as a copy of the slot that shares a longer prefix with the prompt, if
   * there is one. Copying a state takes about 1 % of the time of computing it.
   */
  async #inherit(id: number, taken: ReadonlySet<number>, prompt: Int32Array): Promise<void> {
    const own = sharedPrefix(this.#heldBy(id), prompt);
    const from = this.#slots.find((slot) => {
      const held = this.#held(slot);
      return !taken.has(slot.id!) && sharedPrefix(held, prompt) > own + held.length / 32;
    });
    if (!from) return;
    await this.forget(id);
    await this.#keep(from, id);
    if (!this.#waiting.get(id)?.swapped) this.#waiting.delete(id);
  }

  async #drop(id: number): Promise<void> {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    await this.#swap.drop(waiting?.swapped);
  }

  /** What reads chunks of the slot's state, in order. */
  #pieces(slot: Slot): (offset: number, length: number) => Uint8Array | Promise<Uint8Array> {
    const kv = this.#kv();
    return kv
      ? (offset, length) => this.#pieceWith(kv, slot, offset, length)
      : (offset, length) => this.#piece(slot, offset, length);
  }

  // Other slots may compute between two chunks, so each chunk selects its slot again.
  #piece(slot: Slot, offset: number, length: number): Uint8Array {
    this.#select(slot);
    if (!this.#binding.readState(offset, length)) throw errorOf(this.#binding);
    return this.#stage(length);
  }

  /** The same if the rows of the KV cache come from the GPU. The stage has them before the rest. */
  async #pieceWith(kv: KvState, slot: Slot, offset: number, length: number): Promise<Uint8Array> {
    if (offset === 0) kv.begin(slot.number, this.#piece(slot, 0, length));
    const piece = new Uint8Array(length);
    await kv.save(piece, offset);
    if (this.#kv() !== kv) throw new SluiceError('DEVICE_LOST', 'The GPU is lost.');
    this.#stage(length).set(piece);
    return this.#piece(slot, offset, length).slice(); // others use the stage, too
  }

  async #enter(
    slot: Slot,
    size: number,
    give: (take: TakePiece) => Promise<void>,
    kv = this.#kv(),
  ): Promise<void> {
    try {
      this.#select(slot);
      if (!this.#binding.beginRestore(size)) throw errorOf(this.#binding);
      await give((piece, offset) => {
        this.#select(slot);
        this.#stage(piece.length).set(piece);
        if (!this.#binding.writeState(piece.length)) throw errorOf(this.#binding);
        if (offset === 0) kv?.begin(slot.number, piece);
        kv?.restore(piece, offset);
      });
    } catch (error) {
      this.#select(slot);
      this.#binding.clear();
      throw error;
    }
  }

  #stage(length: number): Uint8Array {
    return new Uint8Array(this.#memory.buffer, this.#binding.stateStage(), length);
  }
}
