// Recurrent states on the GPU, in its arena. Copies 0 and 1 alternate as the state before and after
// a pass or a queued step. So a cancelled pass leaves the state intact, and so does a step whose token
// the sampler has to choose. Further copies are the checkpoints of a pass. As with the KV cache
// (kv-cache.ts), the engine's copy is authoritative: states are uploaded if the GPU has those of
// another sequence, and downloaded after each pass. Part of gpu-recurrent.js.

import { writeFrom } from './buffers.js';
import { Word, type Program } from './program.js';
import { kLive, type Carrying, type StatePlan } from './state-plan.js';

/** Offset in the arena of a layer's part of a copy, in floats. */
export const statePlace = ({ at, size, layers }: StatePlan, layer: number, copy: number): number =>
  at + copy * size + layers[layer]!;

export class GpuRecurrentStates {
  /** The copy that the next pass starts with. */
  #live: 0 | 1 = 0;
  readonly #plan: StatePlan;
  readonly #program: Program;
  readonly #memory: WebAssembly.Memory;
  readonly #arena: GPUBuffer;

  constructor(program: Program, plan: StatePlan, memory: WebAssembly.Memory, arena: GPUBuffer) {
    this.#program = program;
    this.#plan = plan;
    this.#memory = memory;
    this.#arena = arena;
  }

  /** Uploads the states before the pass if the GPU does not have them. */
  begin(queue: GPUQueue, words: Uint32Array): Carrying {
    const copies = this.#due(words);
    if (!words[Word.Kept]) {
      this.#each(words, (layer, floats, before) => {
        const at = 4 * statePlace(this.#plan, layer, this.#live);
        writeFrom(this.#memory, before, 4 * floats, { queue, target: this.#arena, at });
      });
    }
    return { live: this.#live, due: copies.length ? copies[0]!.position - words[Word.First]! : 0 };
  }

  /** The copy that a step of a queue starts with, or that which a queue of so many leaves. */
  liveAt(step: number): 0 | 1 {
    return ((this.#live + step) % kLive) as 0 | 1;
  }

  /** Copies the states after the pass to `target` at byte `at`. Returns the number of bytes. */
  download(encoder: GPUCommandEncoder, words: Uint32Array, target: GPUBuffer, at: number): number {
    const { at: first, size } = this.#plan;
    const { from, count } = this.#read(words);
    const due = this.#due(words).length;
    const copy = (i: number, n: number, to: number): void =>
      encoder.copyBufferToBuffer(this.#arena, 4 * (first + i * size), target, to, 4 * n * size);
    copy(from, count, at);
    if (due) copy(kLive, due, at + 4 * count * size);
    return 4 * (count + due) * size;
  }

  /** Writes downloaded states to the engine's memory. The next pass starts with them. */
  settle(words: Uint32Array, states: Uint8Array): void {
    const { size, layers } = this.#plan;
    const due = this.#due(words);
    const { from, count } = this.#read(words);
    this.#live = this.liveAt(words[Word.Steps] ? words[Word.NChosen]! : 1);
    this.#each(words, (layer, floats, before, after) => {
      const give = (to: number, i: number): void => {
        const at = 4 * (i * size + layers[layer]!);
        new Uint8Array(this.#memory.buffer, to, 4 * floats).set(
          states.subarray(at, at + 4 * floats),
        );
      };
      give(after, this.#live - from);
      // Copies of a layer are contiguous: src/kv/kv_cache.h.
      due.forEach(({ copy }, i) => give(Math.min(before, after) + 4 * floats * copy, count + i));
    });
  }

  /** The copies that are read back: both of a queue, which may end at any step. */
  #read(words: Uint32Array): { from: number; count: number } {
    return words[Word.Steps] ? { from: 0, count: kLive } : { from: this.liveAt(1), count: 1 };
  }

  /** Checkpoints of the pass: ascending, `checkpointEvery` positions apart. */
  #due(words: Uint32Array): { position: number; copy: number }[] {
    const all = new Uint32Array(this.#memory.buffer, words[Word.Due], 2 * words[Word.NDue]!);
    return Array.from({ length: words[Word.NDue]! }, (_, i) => ({
      position: all[2 * i]!,
      copy: all[2 * i + 1]!,
    }));
  }

  /** Visits each layer with a state, and the addresses of its states before and after the pass. */
  #each(
    words: Uint32Array,
    visit: (layer: number, floats: number, before: number, after: number) => void,
  ): void {
    this.#program.caches.forEach(({ state }, layer) => {
      if (!state) return;
      const [before, after] = new Uint32Array(
        this.#memory.buffer,
        words[Word.Rows]! + 16 * layer + 8,
        2,
      ) as unknown as [number, number];
      visit(layer, state, before, after);
    });
  }
}
