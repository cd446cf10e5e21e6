// Decode steps that follow one another on the GPU without a word from the engine: each looks up the
// embedding of the token that the step before has chosen. Ids are read back when all are done. A token
// that ends the text sets a flag in the arena; steps behind it are computed in vain, and dropped.
// Requires the whole model on the GPU, with the rows of its embedding.

import { evictionIn } from './eviction-plan.js';
import { Kernels, type Recorder, type Sampling } from './kernels.js';
import { Buf, Word, type Program } from './program.js';
import type { GpuPlan } from './plan.js';
import {
  kCount,
  kDraws,
  kLeaving,
  kMaxSteps,
  kMaxStops,
  kStops,
  type QueuePlan,
} from './queue-plan.js';
import type { Rows, Writer } from './record.js';

/** Steps after which what is recorded is submitted, so that the GPU does not wait for the rest. */
const kSubmits = new Set([0, 4, 20, 36, 52]);
/** Steps that are submitted together, at most. */
export const kSubmitted = 16;
/** Bytes of their parameters. */
export const queueBytes = (program: Program): number =>
  kSubmitted * ((evictionIn(program) ? 2 : 1) * program.ops.length + 8) * 256;
/** How long a queue may take: its tokens come together, and a cancel leaves the rest in vain. */
const kQueueMs = 100;
const kMinSteps = 4;
/** Parameters in front of the draws of StepQueue::sampling. */
const kSampling = 8;

/** Whether the program can compute queued steps, if its embedding is on the GPU. */
export const queues = ({ embedding, head, mats, cut, nVocab, bidirectional }: Program): boolean =>
  embedding >= 0 &&
  head >= 0 &&
  !bidirectional &&
  !cut &&
  nVocab < 2 ** 24 && // ids are floats
  Kernels.supports(mats[embedding]!.type);

export class StepQueue {
  readonly #program: Program;
  readonly #plan: GpuPlan;
  readonly #writer: Writer;
  readonly #layout: { queue: QueuePlan; buffers: number[] };
  #nStops = 0;
  #sampling: Sampling | undefined;
  /** Queues with the same sampling have the same dispatches. */
  kind = '';

  constructor(
    program: Program,
    plan: GpuPlan,
    layout: { queue: QueuePlan; buffers: number[] },
    writer: Writer,
  ) {
    this.#program = program;
    this.#plan = plan;
    this.#layout = layout;
    this.#writer = writer;
  }

  /** Steps of the first queue; 0: the embedding is not on the GPU. */
  get steps(): number {
    return this.#plan.table.length ? kMinSteps : 0;
  }

  submits(step: number): boolean {
    return kSubmits.has(step);
  }

  /** Writes the first token, what ends the queue, and what sampling needs to the arena. */
  begin(queue: GPUQueue, words: Uint32Array, arena: GPUBuffer): void {
    const stops = new Int32Array(words.buffer, words[Word.Stops], words[Word.NStops]).subarray(
      0,
      kMaxStops,
    );
    const floats = new Float32Array(kStops + stops.length);
    floats[0] = words[Word.Token]!;
    floats.set(stops, kStops);
    this.#nStops = stops.length;
    this.kind = `${stops.length}`;
    this.#sampling = undefined;
    if (words[Word.Sampling]) {
      const given = [
        ...new Float32Array(words.buffer, words[Word.Sampling], kSampling + words[Word.Steps]!),
      ];
      floats.set(given.slice(kSampling), kDraws);
      const window = (this.#sampling = given as Sampling)[kSampling - 1];
      this.kind += ` ${given.slice(0, kSampling - 1)} ${!window}`;
      if (window) {
        const counts = this.#count(words, window, floats.subarray(kLeaving, kStops));
        queue.writeBuffer(arena, 4 * this.#layout.queue.counts, counts);
      }
    }
    queue.writeBuffer(arena, 4 * this.#layout.queue.tokens, floats);
  }

  /** How often each token occurs in the window before the queue; `leaving`: see Choose. */
  #count(words: Uint32Array, window: number, leaving: Float32Array): Float32Array<ArrayBuffer> {
    const recent = new Int32Array(words.buffer, words[Word.Recent], words[Word.NRecent]);
    const counts = new Float32Array(this.#program.nVocab);
    const n = recent.length;
    for (const token of recent) if (token in counts) counts[token]!++; // others stand for pictures
    leaving.forEach((_, step) => {
      const i = step + n - window;
      const token = recent[i]!; // undefined: none has left yet
      leaving[step] = i < n ? (token in counts ? token : -1) : n - i - 2;
    });
    return counts;
  }

  /** Records the lookup of the step's token. `place`: the buffer of a unit of plan.table. */
  embed(to: Recorder, rows: Rows, place: (unit: number) => GPUBuffer): void {
    const { ops, mats, embedding } = this.#program;
    const op = ops[0]!;
    const { type, cols } = mats[embedding]!;
    const out = this.#writer.place(op.out, op.outCol, rows);
    for (const u of this.#plan.table)
      for (const { mat, row0, rows: count, at } of this.#plan.units[u]!.pieces)
        if (mat === embedding)
          to.rows({
            weights: { type, buffer: place(u), offset: at },
            row: row0,
            count,
            cols,
            ids: this.#layout.queue.tokens,
            step: rows.step,
            tokens: 1,
            n: op.n,
            out,
            scale: op.scale,
          });
    const added = { in: out, out, tokens: 1, n: op.n };
    const [positions, vec] = [this.#writer.vec(op.vec0), this.#writer.vec(op.vec1)];
    if (vec !== undefined) to.addVec({ ...added, vec });
    if (positions !== undefined) to.addVec({ ...added, vec: positions, position: rows.first });
  }

  /** Records the choice of the token behind the step. */
  choose(to: Recorder, rows: Rows): void {
    to.choose({
      ...this.#layout.queue,
      logits: this.#layout.buffers[Buf.Logits]!,
      n: this.#program.nVocab,
      step: rows.step,
      n_stops: this.#nStops,
      sampling: this.#sampling,
    });
  }

  /** Gives the engine the tokens that were read back, after `ms`, and the length of the next queue. */
  settle(memory: WebAssembly.Memory, words: Uint32Array, floats: Float32Array, ms: number): void {
    const steps = Math.floor((kQueueMs * words[Word.Steps]!) / ms);
    words[Word.MaxQueue] = Math.max(kMinSteps, Math.min(steps, kMaxSteps));
    const count = floats[kCount]!;
    new Int32Array(memory.buffer, words[Word.Chosen], count).set(floats.subarray(1, 1 + count));
    words[Word.NChosen] = count;
  }
}
