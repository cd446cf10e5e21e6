// Recurrent states on the GPU, in its arena. Copies 0 and 1 alternate as the state before and after
// a pass, so a cancelled pass leaves the state intact. Further copies are the checkpoints of a
// pass. As with the KV cache (kv-cache.ts), the engine's copy is authoritative: states are uploaded
// if the GPU has those of another sequence, and downloaded after each pass. Part of gpu-recurrent.js.

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

  /** Copies the states after the pass to `target` at byte `at`. Returns the number of bytes. */
  download(encoder: GPUCommandEncoder, words: Uint32Array, target: GPUBuffer, at: number): number {
    const { at: first, size } = this.#plan;
    const due = this.#due(words).length;
    if (!size) return 0;
    encoder.copyBufferToBuffer(
      this.#arena,
      4 * (first + this.#after(words) * size),
      target,
      at,
      4 * size,
    );
    if (due)
      encoder.copyBufferToBuffer(
        this.#arena,
        4 * (first + kLive * size),
        target,
        at + 4 * size,
        4 * due * size,
      );
    return 4 * size * (1 + due);
  }

  /** Writes downloaded states to the engine's memory. The next pass starts with them. */
  settle(words: Uint32Array, states: Uint8Array): void {
    const { size, layers } = this.#plan;
    const due = this.#due(words);
    this.#each(words, (layer, floats, before, after) => {
      const give = (to: number, i: number): void => {
        const at = 4 * (i * size + layers[layer]!);
        new Uint8Array(this.#memory.buffer, to, 4 * floats).set(
          states.subarray(at, at + 4 * floats),
        );
      };
      give(after, 0);
      // Copies of a layer are contiguous: src/kv/kv_cache.h.
      due.forEach(({ copy }, i) => give(Math.min(before, after) + 4 * floats * copy, 1 + i));
    });
    this.#live = this.#after(words);
  }

  /** The copy with the states after the pass. */
  #after(words: Uint32Array): 0 | 1 {
    if (words[Word.Steps] || !this.#plan.size) return this.#live;
    return this.#live ? 0 : 1;
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
