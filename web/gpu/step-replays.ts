// Decode steps that are recorded once and replayed (kernels/replay.ts): those of a queue, and single
// ones. A recording is made anew when a step needs other dispatches: at another range of positions, such
// as behind 256 more, or with other sampling. Buffers of the GPU are the same as long as its engine.

import { Usage, type Buffers } from './buffers.js';
import type { Kernels, Memory, Recorder, Replay } from './kernels.js';
import type { Recording } from './recording.js';
import type { Rows } from './record.js';
import { kSubmitted, type StepQueue } from './step-queue.js';

export class StepReplays {
  readonly #kernels: Kernels;
  readonly #memory: Memory;
  readonly #buffers: Buffers;
  readonly #queue: StepQueue;
  readonly #room: () => number;
  readonly #record: (to: Recorder, rows: Rows, queued: boolean) => void;
  /**
   * By sequence: of single steps and of queued ones, each by the copy of the recurrent states that they
   * begin with.
   */
  readonly #replays = new Map<string, Replay>();
  /** There was no room for parameters. */
  #full = false;

  /** `room`: bytes that the budget has left. `record`: records a step of one token. */
  constructor(
    kernels: Kernels,
    memory: Memory,
    buffers: Buffers,
    queue: StepQueue,
    room: () => number,
    record: (to: Recorder, rows: Rows, queued: boolean) => void,
  ) {
    this.#kernels = kernels;
    this.#memory = memory;
    this.#buffers = buffers;
    this.#queue = queue;
    this.#room = room;
    this.#record = record;
  }

  /** Frees the recordings: steps need other dispatches from now on. */
  drop(): void {
    for (const { buffer } of this.#replays.values()) this.#buffers.drop(buffer);
    this.#replays.clear();
    this.#full = false;
  }

  /** Replays a step of one token of sequence `slot`. False: it has to be recorded. */
  play(recording: Recording, rows: Rows, queued: boolean, slot: number): boolean {
    const { first, step, states } = rows;
    const key = `${[slot, states.live, queued]}`;
    const kind = queued ? this.#queue.kind : '';
    let replay = this.#replays.get(key);
    if (!replay?.covers(kind, first)) {
      if (this.#full) return false;
      recording.submit(); // replays that use what is overwritten
      replay = this.#make(rows, queued, kind, replay?.buffer);
      if (!replay) return false;
      this.#replays.set(key, replay);
    }
    recording.to().play(replay, first, step);
    return true;
  }

  #make(rows: Rows, queued: boolean, kind: string, before?: GPUBuffer): Replay | undefined {
    const { first, step } = rows;
    const bufferOf = (bytes: number): GPUBuffer | undefined => {
      if (before && before.size >= bytes) return before;
      this.#full = bytes > this.#room();
      if (this.#full) return undefined;
      if (before) this.#buffers.drop(before);
      return this.#buffers.make(bytes, Usage.Uniform | Usage.CopyTarget);
    };
    return this.#kernels.replay(
      this.#memory,
      { kind, first, step, replays: queued ? kSubmitted : 1 },
      (to) => this.#record(to, { ...rows }, queued),
      bufferOf,
    );
  }
}
