// Weights of a program on the GPU, unit by unit, as plan.ts divides them: pinned units have a buffer
// each, the others share one slot. Text models (executor.ts) and vision encoders (pictures) record
// their passes through it, each with kernel calls of its own.

import { Usage, type Buffers } from './buffers.js';
import { align, type GpuPlan, type Unit } from './plan.js';
import type { Program } from './program.js';
import type { GpuCounts, Recording } from './recording.js';
import { WeightUpload, type ReadWeights } from './weight-upload.js';

/** Weight bytes × rows after which what is recorded is submitted, so that it can be cancelled. */
const kPieceWork = 2 ** 31;

export class WeightUnits {
  readonly #plan: GpuPlan;
  readonly #feed: WeightUpload;
  readonly #counts: Pick<GpuCounts, 'uploaded'>;
  readonly #slot: GPUBuffer | null;
  /** Buffers of pinned units, and whether each is loaded. */
  readonly #pinned: (GPUBuffer | null)[];
  readonly #there: boolean[];

  constructor(
    program: Program,
    plan: GpuPlan,
    buffers: Pick<Buffers, 'make'>,
    read: ReadWeights,
    counts: Pick<GpuCounts, 'uploaded'>,
  ) {
    const make = (bytes: number): GPUBuffer =>
      buffers.make(align(bytes, 16), Usage.Storage | Usage.CopyTarget);
    this.#plan = plan;
    this.#counts = counts;
    this.#slot = plan.streamSlotBytes ? make(plan.streamSlotBytes) : null;
    this.#pinned = plan.units.map(({ pinned, bytes }) => (pinned ? make(bytes) : null));
    this.#there = plan.units.map(() => false);
    this.#feed = new WeightUpload(program, plan, buffers, read, (unit) => this.#there[unit]!);
  }

  /** Frees the buffers, behind a pass. */
  async drop(buffers: Pick<Buffers, 'drop'>): Promise<void> {
    for (const buffer of [...(await this.#feed.stop()), this.#slot, ...this.#pinned])
      if (buffer) buffers.drop(buffer);
  }

  /** Starts to read what a pass needs first. */
  ahead(): void {
    this.#feed.ahead();
  }

  /** The buffer of a unit, which load() fills. */
  readonly place = (unit: number): GPUBuffer => this.#pinned[unit] ?? this.#slot!;

  /** Whether the weights of all operations are on the GPU and stay there. */
  get resident(): boolean {
    const end = this.#plan.firstUnit.at(-1)!; // units behind it are the embedding's
    return this.#there.every((there, unit) => there || unit >= end);
  }

  /** Visits the units of operation `index`. */
  each(index: number, visit: (unit: Unit, buffer: GPUBuffer) => void): void {
    const { units, firstUnit } = this.#plan;
    for (let u = firstUnit[index]!; u < firstUnit[index + 1]!; u++) visit(units[u]!, this.place(u));
  }

  /**
   * Like each(), and loads each unit before its visit. Returns the units' bytes; -1: the pass was
   * cancelled.
   */
  async record(
    index: number,
    recording: Recording,
    given: () => boolean,
    visit: (unit: Unit, buffer: GPUBuffer) => void,
  ): Promise<number> {
    const { units, firstUnit } = this.#plan;
    let total = 0;
    for (let u = firstUnit[index]!; u < firstUnit[index + 1]!; u++) {
      if (!(await this.load(u, recording, given))) return -1;
      visit(units[u]!, this.place(u));
      total += units[u]!.bytes;
    }
    return total;
  }

  /** Uploads a unit. Submits recorded work before it waits. False: the pass was cancelled. */
  async load(unit: number, recording: Recording, given: () => boolean): Promise<boolean> {
    const { bytes, pinned } = this.#plan.units[unit]!;
    for (let at = 0; !this.#there[unit] && at < bytes;) {
      recording.submit();
      const { staging, to } = await this.#feed.chunk(unit, at);
      if (given()) {
        this.#feed.give(staging);
        return false;
      }
      const target = this.place(unit);
      recording.encoder.copyBufferToBuffer(staging, 0, target, at, align(to - at));
      recording.returns(staging, (buffer) => this.#feed.give(buffer));
      this.#counts.uploaded += to - at;
      at = to;
    }
    this.#there[unit] = pinned;
    return true;
  }
}

/** Submits a long pass in pieces. At most two are under way, so that it can be cancelled. */
export class Pieces {
  #work = 0;
  #piece: Promise<unknown> = Promise.resolve();
  readonly #queue: GPUQueue;
  readonly #recording: Recording;
  readonly #given: () => boolean;

  constructor(queue: GPUQueue, recording: Recording, given: () => boolean) {
    this.#queue = queue;
    this.#recording = recording;
    this.#given = given;
  }

  /** Counts `work`, in weight bytes × rows, that is recorded. False: the pass was cancelled. */
  async add(work: number): Promise<boolean> {
    this.#work += work;
    if (this.#work < kPieceWork) return true;
    this.#recording.submit();
    this.#work = 0;
    await this.#piece;
    this.#piece = this.#queue.onSubmittedWorkDone();
    return !this.#given();
  }
}
