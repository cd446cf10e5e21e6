// The sequences that share one engine, by number: 0 is the engine's own, those below are chats'
// beside it, the others are sessions'. The engine has slots for some of them, the others wait in
// the swap; which one is where stands here alone. What a sequence is, the C++ session alone knows:
// here its state passes through, piece by piece. A state that finds no place, or is lost on the
// way, costs time and nothing else, because whoever goes on with a sequence brings all of its
// tokens.

import type { HandoverSequences, Waiting } from '../protocol/calls.js';
import { SluiceError } from '../protocol/errors.js';
import { sharedPrefix } from '../protocol/prefix.js';
import type { EngineBinding } from './binding.js';
import { errorOf } from './header-loader.js';
import { eachPiece, type SessionSwap } from './session-swap.js';

/** A place of the engine's. */
interface Slot {
  number: number;
  /** The sequence that it holds; undefined: what it holds is nobody's. */
  id: number | undefined;
  /** Tokens that it should hold, and does not. */
  missing: Int32Array | null;
}

const kNone: ReadonlySet<number> = new Set();

export class Sequences {
  readonly #waiting = new Map<number, Waiting>();
  /** The one that was used last comes last. */
  readonly #slots: Slot[];
  readonly #binding: EngineBinding;
  readonly #memory: WebAssembly.Memory;
  readonly #swap: SessionSwap;

  constructor(
    binding: EngineBinding,
    memory: WebAssembly.Memory,
    swap: SessionSwap,
    left: HandoverSequences = [],
    slots = 1,
  ) {
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
   * Has a slot hold sequence `id`, or `missingTokens` tell what it would have to compute for that,
   * and selects it; its number. Slots of sequences that are `taken` stay as they are. One that
   * shares less with `prompt` than another does begins as a copy of that. One call at a time.
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
   * Of the engine's own sequences, one that is not taken, for a chat of `tokens`: the one that
   * holds most of them if that is most of what it holds; or else another chat begins, in the one
   * that was idle for longest.
   */
  best(tokens: Int32Array, taken: ReadonlySet<number>): number {
    let best = 0;
    let most = -Infinity;
    for (let id = 0; id > -this.#slots.length; id--) {
      if (taken.has(id)) continue;
      const held = this.#heldBy(id);
      const shared = sharedPrefix(held, tokens);
      // Nothing speaks against an empty one, little against one that waits.
      const worth =
        2 * shared > held.length
          ? shared - held.length / 1e7
          : held.length && -2 - this.#slots.indexOf(this.#slotOf(id)!);
      if (worth > most) [best, most] = [id, worth];
    }
    return best;
  }

  /** What the sequence that was used last still needs; null: nothing. */
  get missingTokens(): Int32Array | null {
    return this.#last().missing;
  }

  /** The engine holds it as it should be. */
  settle(): void {
    this.#last().missing = null;
  }

  /** An empty slot, for what belongs to no sequence. */
  async borrow(): Promise<void> {
    this.#select(await this.#vacate());
  }

  /** Moves all out. */
  async #empty(): Promise<void> {
    for (const slot of this.#slots) await this.#swapOut(slot);
  }

  /** All is to be computed again. */
  async expire(): Promise<void> {
    await this.#empty();
    for (const waiting of this.#waiting.values()) {
      await this.#swap.drop(waiting.swapped);
      waiting.swapped = null;
    }
  }

  /** Timeline `to` becomes what was used last. */
  async fork(to: number): Promise<void> {
    await this.forget(to);
    await this.#keep(this.#last(), to);
  }

  /** The state of the sequence that was used last, as one byte string. */
  async save(): Promise<Uint8Array> {
    const slot = this.#last();
    const size = this.#binding.stateBytes();
    let state: Uint8Array;
    try {
      state = new Uint8Array(size);
    } catch {
      throw new SluiceError('OUT_OF_MEMORY', `There is no room for a state of ${size} bytes.`);
    }
    await eachPiece(size, (at, length) => state.set(this.#piece(slot, at, length), at));
    return state;
  }

  /** Timeline `id` becomes `state`; when that is none of this model, everything stays as it was. */
  async restore(id: number, state: Uint8Array): Promise<void> {
    const slot = this.#slotOf(id) ?? (await this.#vacate());
    await this.#swapOut(slot);
    await this.#enter(slot, state.length, (take) =>
      eachPiece(state.length, (at, length) => take(state.subarray(at, at + length))),
    );
    slot.id = id;
    await this.#drop(id);
  }

  /** Forgets a sequence, wherever it is. */
  async forget(id: number): Promise<void> {
    const slot = this.#slotOf(id);
    if (slot) this.#clear(slot);
    await this.#drop(id);
  }

  async forgetAll(): Promise<void> {
    for (const id of [...this.#waiting.keys()]) await this.#drop(id);
  }

  /** All of them, for another engine of the same model. */
  async leave(): Promise<HandoverSequences> {
    await this.#empty();
    return [...this.#waiting];
  }

  #slotOf(id: number): Slot | undefined {
    return this.#slots.find((slot) => slot.id === id);
  }

  /** The slot that was used last, which `slot` becomes. */
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

  /** A slot that is nobody's, or whose sequence has been idle for longest and moves out. */
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

  /** Has sequence `id` wait as what the slot holds. */
  async #keep(slot: Slot, id: number): Promise<void> {
    const tokens = this.#held(slot);
    if (tokens.length === 0) return;
    const copy = slot.missing
      ? null
      : this.#swap.put(this.#binding.stateBytes(), (at, length) => this.#piece(slot, at, length));
    this.#waiting.set(id, { tokens, swapped: await copy });
  }

  /** Copying a state takes about a hundredth of what computing it took. */
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

  // Other slots compute between two pieces, so each says which slot it is of.
  #piece(slot: Slot, offset: number, length: number): Uint8Array {
    this.#select(slot);
    if (!this.#binding.readState(offset, length)) throw errorOf(this.#binding);
    return this.#stage(length);
  }

  async #enter(
    slot: Slot,
    size: number,
    give: (take: (piece: Uint8Array) => void) => Promise<void>,
  ): Promise<void> {
    try {
      this.#select(slot);
      if (!this.#binding.beginRestore(size)) throw errorOf(this.#binding);
      await give((piece) => {
        this.#select(slot);
        this.#stage(piece.length).set(piece);
        if (!this.#binding.writeState(piece.length)) throw errorOf(this.#binding);
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
