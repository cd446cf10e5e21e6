// The timelines that share one engine, by number: 0 is the engine's own, the others are sessions'. The
// engine holds one of them; the others wait in the swap. What a timeline is, the C++ session alone
// knows: here its state passes through, piece by piece. A state that finds no place, or is lost on the
// way, costs time and nothing else, because whoever goes on with a timeline brings all of its tokens.

import type { LeftTimelines, Swapped, Waiting } from '../wire/calls.js';
import { SluiceError } from '../wire/errors.js';
import type { EngineBinding } from './binding.js';
import { eachPiece, type SessionSwap } from './session-swap.js';

/** In place of a timeline: what the engine holds is nobody's. */
const kNobody = -1;

export class Timelines {
  readonly #waiting = new Map<number, Waiting>();
  #live = kNobody;
  /** Tokens that the engine should hold, and does not. */
  #missing: Int32Array | null = null;
  readonly #binding: EngineBinding;
  readonly #memory: WebAssembly.Memory;
  readonly #swap: SessionSwap;

  constructor(binding: EngineBinding, memory: WebAssembly.Memory, swap: SessionSwap, left: LeftTimelines = []) {
    this.#binding = binding;
    this.#memory = memory;
    this.#swap = swap;
    for (const [id, waiting] of left) {
      this.#waiting.set(id, waiting);
      if (waiting.swapped) swap.adopt(waiting.swapped);
    }
  }

  /** Has the engine hold timeline `id`, or `missing` tell what it would have to compute for that. */
  async use(id: number): Promise<void> {
    if (id === this.#live) return;
    await this.swapOut();
    this.#live = id;
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (!waiting) return;
    const { tokens, swapped } = waiting;
    const back = swapped && (await this.#enter(swapped.size, (take) => this.#swap.read(swapped, take)).then(() => true, () => false));
    if (!back) this.#missing = tokens;
    await this.#swap.drop(swapped);
  }

  /** What the timeline still needs; null: nothing. */
  get owed(): Int32Array | null {
    return this.#missing;
  }

  /** The engine holds its timeline as it should be. */
  settle(): void {
    this.#missing = null;
  }

  /** An empty engine, for what belongs to no timeline. */
  async borrow(): Promise<void> {
    await this.swapOut();
    this.#binding.clear();
  }

  /** Moves the engine's timeline out. */
  async swapOut(): Promise<void> {
    if (this.#live !== kNobody) {
      const tokens = this.#missing ?? this.#binding.tokens().slice();
      const swapped = this.#missing || tokens.length === 0 ? null : await this.#copy();
      if (tokens.length > 0) this.#waiting.set(this.#live, { tokens, swapped });
    }
    this.#live = kNobody;
    this.#missing = null;
    this.#binding.clear();
  }

  /** All is to be computed again. */
  async expire(): Promise<void> {
    await this.swapOut();
    for (const waiting of this.#waiting.values()) {
      await this.#swap.drop(waiting.swapped);
      waiting.swapped = null;
    }
  }

  /** Timeline `to` becomes what the engine holds. */
  async fork(to: number): Promise<void> {
    await this.drop(to);
    const tokens = this.#missing ?? this.#binding.tokens().slice();
    this.#waiting.set(to, { tokens, swapped: this.#missing ? null : await this.#copy() });
  }

  /** The state of the timeline that the engine holds, as one byte string. */
  async save(): Promise<Uint8Array> {
    const size = this.#binding.stateBytes();
    let state: Uint8Array;
    try {
      state = new Uint8Array(size);
    } catch {
      throw new SluiceError('OUT_OF_MEMORY', `There is no room for a state of ${size} bytes.`);
    }
    await eachPiece(size, (at, length) => state.set(this.#piece(at, length), at));
    return state;
  }

  /** Timeline `id` becomes `state`; when that is none of this model, everything stays as it was. */
  async restore(id: number, state: Uint8Array): Promise<void> {
    await this.swapOut();
    await this.#enter(state.length, (take) => eachPiece(state.length, (at, length) => take(state.subarray(at, at + length))));
    this.#live = id;
    await this.drop(id);
  }

  /** Forgets a timeline. */
  async drop(id: number): Promise<void> {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    await this.#swap.drop(waiting?.swapped);
  }

  /** Forgets the timeline, wherever it is. */
  async forget(id: number): Promise<void> {
    if (id === this.#live) {
      this.#binding.clear();
      this.#live = kNobody;
      this.#missing = null;
    }
    await this.drop(id);
  }

  async forgetAll(): Promise<void> {
    for (const id of [...this.#waiting.keys()]) await this.drop(id);
  }

  /** All of them, for another engine of the same model. */
  async leave(): Promise<LeftTimelines> {
    await this.swapOut();
    return [...this.#waiting];
  }

  #copy(): Promise<Swapped | null> {
    return this.#swap.put(this.#binding.stateBytes(), (at, length) => this.#piece(at, length));
  }

  #piece(offset: number, length: number): Uint8Array {
    if (!this.#binding.readState(offset, length)) throw this.#failure();
    return this.#stage(length);
  }

  async #enter(size: number, give: (take: (piece: Uint8Array) => void) => Promise<void>): Promise<void> {
    try {
      if (!this.#binding.beginRestore(size)) throw this.#failure();
      await give((piece) => {
        this.#stage(piece.length).set(piece);
        if (!this.#binding.writeState(piece.length)) throw this.#failure();
      });
    } catch (error) {
      this.#binding.clear();
      throw error;
    }
  }

  #stage(length: number): Uint8Array {
    return new Uint8Array(this.#memory.buffer, this.#binding.stateStage(), length);
  }

  #failure(): SluiceError {
    const { code, message } = this.#binding.error();
    return new SluiceError(code, message);
  }
}

