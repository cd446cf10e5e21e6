// Recurrent states on the GPU. Each sequence has two copies in the arena, which alternate as the state
// before and after a pass or a queued step. So a cancelled pass leaves the state intact, and so does a
// step whose token the sampler has to choose. A third one, in a buffer of its own, has the state before
// a queue. The engine names states by the pass that made them (GpuState in src/gpu/gpu_executor.h). It
// fetches them before its memory is read; states that the GPU lacks are uploaded. Further copies in the
// arena are the checkpoints of a pass, which memory gets at once. Part of gpu-recurrent.js.

import { Usage, writeFrom } from './buffers.js';
import { PassState, Word } from './program.js';
import { recurrentOps, statePlace } from './recurrent-ops.js';
import { wordsOf, type Resources } from './resources.js';
import type { Carrying } from './state-plan.js';

/** The states that the GPU has of a sequence: what made each copy. 0: nothing that counts. */
type Made = [number, number, number];
/** The copy that is not in the arena. */
const kBeside = 2;

/** What finds the states that memory lacks of a sequence: address of a StateFetch, or 0. */
export interface StateSource {
  select(slot: number): void;
  missingStates?(): number;
}

export class GpuRecurrentStates {
  /** By sequence. */
  readonly #made: Made[];
  readonly #beside: GPUBuffer[];
  readonly #staging: GPUBuffer;
  /** The sequence of the pass, and the copy that it starts with. */
  #slot = 0;
  #live = 0;
  #fetching = Promise.resolve();
  readonly #resources: Resources;
  /** Records operations of recurrent layers. */
  readonly ops: ReturnType<typeof recurrentOps>;

  constructor(resources: Resources) {
    this.#resources = resources;
    const { buffers, host, layout } = resources;
    this.ops = recurrentOps(host.program, layout.states);
    const bytes = 4 * layout.states.size;
    const slots = Array.from({ length: host.program.parallel });
    this.#made = slots.map(() => [0, 0, 0]);
    this.#beside = slots.map(() => buffers.make(bytes, Usage.CopySource | Usage.CopyTarget));
    this.#staging = buffers.make(bytes, Usage.MapRead | Usage.CopyTarget);
  }

  /** Uploads the states before the pass if the GPU does not have them. */
  begin(words: Uint32Array): Carrying {
    const { host, device, memory } = this.#resources;
    const [slot, before, steps] = [Word.Slot, Word.Before, Word.Steps].map(
      (word) => words[word]!,
    ) as [number, number, number];
    const made = this.#made[slot]!;
    const copy = before ? made.indexOf(before) : -1;
    this.#slot = slot;
    this.#live = 2 * slot + (copy === 1 ? 1 : 0);
    if (copy < 0)
      this.#each(words[Word.Rows]! + 8, 16, (layer, floats, place) => {
        const at = 4 * this.#place(this.#live, layer);
        writeFrom(host.memory, place, 4 * floats, {
          queue: device.queue,
          target: memory.arena,
          at,
        });
      });
    if (copy === kBeside || (steps && before)) {
      const [arena, beside] = [memory.arena, this.#beside[slot]!];
      const at = 4 * this.#place(this.#live);
      this.#submit((encoder) =>
        copy === kBeside
          ? encoder.copyBufferToBuffer(beside, 0, arena, at, beside.size)
          : encoder.copyBufferToBuffer(arena, at, beside, 0, beside.size),
      );
    }
    // A queue overwrites both copies, a pass the other one.
    this.#made[slot] = [0, 0, steps || copy === kBeside ? before : made[kBeside]];
    if (!steps) this.#made[slot][copy === 1 ? 1 : 0] = before;
    const [first] = this.#due(words);
    return { live: this.#live, due: first ? first.position - words[Word.First]! : 0 };
  }

  /** The copy that a step of a queue starts with, or that which a queue of so many leaves. */
  liveAt(step: number): number {
    return this.#live ^ (step & 1);
  }

  /** Copies checkpoints of the pass to `target` at byte `at`. Returns the number of bytes. */
  download(encoder: GPUCommandEncoder, words: Uint32Array, target: GPUBuffer, at: number): number {
    const { host, layout, memory } = this.#resources;
    const bytes = 4 * layout.states.size * this.#due(words).length;
    const from = 4 * this.#place(2 * host.program.parallel);
    if (bytes) encoder.copyBufferToBuffer(memory.arena, from, target, at, bytes);
    return bytes;
  }

  /** Writes downloaded checkpoints to the engine's memory. The next pass may start with the new state. */
  settle(words: Uint32Array, states: Uint8Array): void {
    const { size, layers } = this.#resources.layout.states;
    const rows = words[Word.Rows]!;
    const heap = this.#resources.host.memory.buffer;
    this.#due(words).forEach(({ copy }, i) =>
      this.#each(rows + 8, 16, (layer, floats, before) => {
        const [after] = new Uint32Array(heap, rows + 16 * layer + 12, 1) as unknown as [number];
        // Copies of a layer are contiguous: src/kv/kv_cache.h.
        const place = Math.min(before, after) + 4 * floats * copy;
        const at = 4 * (i * size + layers[layer]!);
        new Uint8Array(heap, place, 4 * floats).set(states.subarray(at, at + 4 * floats));
      }),
    );
    const steps = words[Word.Steps] ? words[Word.NChosen]! : 1;
    if (steps) this.#made[this.#slot]![this.liveAt(steps) & 1] = words[Word.Serial]!;
  }

  /** Computes a request of the engine for states instead of a pass. */
  async serve(words: Uint32Array): Promise<void> {
    const serial = words[Word.Serial];
    const given = (): boolean =>
      words[Word.Lost] !== 0 ||
      words[Word.Serial] !== serial ||
      words[Word.State] !== PassState.Wanted ||
      !words[Word.Fetch];
    await this.#fetch(words[Word.Fetch]!, given);
    if (!given()) words[Word.State] = PassState.Done;
  }

  /**
   * Gives memory the states that it lacks of the sequence in `slot`, or of the selected one. If the GPU
   * is lost, they are forgotten. No pass of that sequence may run.
   */
  async keep(engine: StateSource, slot?: number): Promise<void> {
    const { host } = this.#resources;
    const lost = (): boolean => wordsOf(host)[Word.Lost] !== 0;
    for (;;) {
      if (slot !== undefined) engine.select(slot);
      const request = engine.missingStates!();
      if (!request) return;
      await this.#fetch(request, lost).catch((error: unknown) => {
        if (!lost()) throw error;
      });
    }
  }

  /** Copies the states of a StateFetch to memory, unless that is `given` up. */
  #fetch(address: number, given: () => boolean): Promise<void> {
    const { host } = this.#resources;
    const request = [...new Uint32Array(host.memory.buffer, address, 4)];
    const next = this.#fetching.then(() => (given() ? undefined : this.#copy(request, given)));
    this.#fetching = next.catch(() => {});
    return next;
  }

  async #copy([slot, id, places, away]: number[], given: () => boolean): Promise<void> {
    const { host, memory, layout } = this.#resources;
    const { layers } = layout.states;
    const staging = this.#staging;
    const copy = this.#made[slot!]!.indexOf(id!);
    if (copy < 0) throw new Error('a recurrent state is missing');
    const [from, at] =
      copy === kBeside
        ? [this.#beside[slot!]!, 0]
        : [memory.arena, 4 * this.#place(2 * slot! + copy)];
    this.#submit((encoder) => encoder.copyBufferToBuffer(from, at, staging, 0, staging.size));
    await staging.mapAsync(Usage.MapRead);
    try {
      if (given()) return;
      const states = new Uint8Array(staging.getMappedRange());
      const heap = host.memory.buffer;
      this.#each(places!, 4, (layer, floats, place) => {
        const begin = 4 * layers[layer]!;
        new Uint8Array(heap, place, 4 * floats).set(states.subarray(begin, begin + 4 * floats));
      });
      new Uint32Array(heap, away, 1)[0] = 0;
    } finally {
      staging.unmap();
    }
  }

  #submit(record: (encoder: GPUCommandEncoder) => void): void {
    const { device } = this.#resources;
    const encoder = device.createCommandEncoder();
    record(encoder);
    device.queue.submit([encoder.finish()]);
  }

  #place(copy: number, layer = 0): number {
    return statePlace(this.#resources.layout.states, layer, copy);
  }

  /** Checkpoints of the pass: ascending, `checkpointEvery` positions apart. */
  #due(words: Uint32Array): { position: number; copy: number }[] {
    const all = new Uint32Array(words.buffer, words[Word.Due], 2 * words[Word.NDue]!);
    return Array.from({ length: words[Word.NDue]! }, (_, i) => ({
      position: all[2 * i]!,
      copy: all[2 * i + 1]!,
    }));
  }

  /** Visits each layer with a state, and its address in a table of them, `step` bytes apart. */
  #each(
    table: number,
    step: number,
    visit: (layer: number, floats: number, place: number) => void,
  ): void {
    const { memory, program } = this.#resources.host;
    program.caches.forEach(({ state }, layer) => {
      if (state) visit(layer, state, new Uint32Array(memory.buffer, table + step * layer, 1)[0]!);
    });
  }
}
