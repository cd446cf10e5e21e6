// Records passes, and waits for missing weight units. Owns what depends on the plan of the weights:
// units, queued steps and replays. LoRA adapters may change the plan.

import { Pieces, WeightUnits } from './weight-units.js';
import { kSplit, type Recorder } from './kernels.js';
import { kMaxBytes, type GpuPlan } from './plan.js';
import { OpKind, PassState, Word } from './program.js';
import type { Recording } from './recording.js';
import { loadAdapters } from './load-types.js';
import type { Adapters } from './lora.js';
import type { GpuSequence, Rows, Step } from './record.js';
import { wordsOf, type Resources } from './resources.js';
import type { Sequences } from './sequences.js';
import { kStateless } from './state-plan.js';
import { hiddenSteps, stepsOf } from './fusion.js';
import { StepQueue } from './step-queue.js';
import { StepReplays } from './step-replays.js';

const kLongPass = 8; // tokens, for which it is submitted in pieces

export class PassRecorder {
  queue!: StepQueue;
  /** What the words of a pass name, and what that was last. */
  sequence: GpuSequence;
  #units!: WeightUnits;
  #replays!: StepReplays;
  #plan!: GpuPlan;
  #adapters: Adapters | undefined;
  /** Of passes that compute rows of all tokens, by the operation behind them. */
  readonly #hidden: Step[][] = [];
  readonly #steps: Step[];
  /** Kinds of passes whose pipelines are compiled. */
  readonly #ready = new Set<string>();
  readonly #resources: Resources;
  readonly #sequences: Sequences;
  /** Plans the weights, with so many bytes for adapters. */
  readonly #planFor: (adapters: number) => GpuPlan;
  /** Bytes of GPU memory in use. */
  readonly #bytes: () => number;

  constructor(
    resources: Resources,
    sequences: Sequences,
    plan: GpuPlan,
    planFor: (adapters: number) => GpuPlan,
    bytes: () => number,
  ) {
    this.#resources = resources;
    this.#sequences = sequences;
    this.#planFor = planFor;
    this.#bytes = bytes;
    this.#steps = stepsOf(resources.host.program);
    this.sequence = sequences.of(wordsOf(resources.host));
    this.#arrange(plan);
  }

  /** Makes what depends on the plan of the weights. */
  #arrange(plan: GpuPlan): void {
    const { host, kernels, memory, layout, buffers, counts } = this.#resources;
    const { program, read, gpuBudget } = host;
    this.#plan = plan;
    this.queue = new StepQueue(program, plan, layout, this.sequence.writer);
    this.#units = new WeightUnits(program, plan, buffers, read, counts);
    this.#replays = new StepReplays(
      kernels,
      memory,
      buffers,
      this.queue,
      () => (gpuBudget || kMaxBytes) - this.#bytes(),
      (to, rows, queued) => this.#recordAll(to, rows, 1, queued),
    );
  }

  /**
   * Begins a pass: selects its sequence, and takes up its adapters. One that the GPU cannot compute is
   * given back.
   */
  async begin(words: Uint32Array, given: () => boolean): Promise<void> {
    if (words[Word.Adapters] !== (this.#adapters?.id ?? 0)) {
      const { adaptersOf } = await loadAdapters();
      const before = this.#adapters;
      this.#adapters = undefined;
      this.#replays.drop();
      this.#adapters = await adaptersOf(
        {
          ...this.#resources,
          ...this.#resources.host,
          ...this.sequence,
          plan: this.#plan,
          planFor: this.#planFor,
          arrange: async (plan) => {
            await this.#units.drop(this.#resources.buffers);
            this.#arrange(plan);
            words[Word.MaxQueue] = this.queue.steps;
          },
        },
        words,
        given,
        before,
      );
    }
    if (given()) return;
    // Its weights stream from now on: a step at a time.
    if (words[Word.Steps] && !this.queue.steps) words[Word.State] = PassState.Done;
    else this.#units.ahead();
  }

  /**
   * Compiles the pipelines of a pass of `tokens` from position `first` on, `nRows` of which get
   * logits. A pass waits for these alone: a software adapter takes seconds for each. What a pass
   * needs changes with the number of tokens, and as the context grows.
   */
  async prepare(
    tokens: number,
    first: number,
    nRows: number,
    queued = false,
    { ...more }: Pick<Rows, 'hidden' | 'inputs'> = {},
  ): Promise<void> {
    const { attention, kind: lanes } = this.sequence;
    const seen = attention?.kindOf(first, tokens);
    // Inputs whose kernels differ: those of attention depend on the tokens, up to 16.
    const inputs = new Map(more.inputs?.map((input) => [Math.min(input.tokens, 16), input]));
    more.inputs &&= [...inputs.values()];
    const kind = [
      tokens,
      nRows,
      Math.floor((first + tokens - 1) / kSplit),
      queued,
      seen,
      lanes,
      more.hidden,
      [...inputs.keys()].sort(),
      this.#adapters?.id,
    ].join();
    if (this.#ready.has(kind)) return;
    const rows: Rows = { tokens, first, skipped: 0, states: kStateless, step: 0, ...more };
    const { kernels, memory } = this.#resources;
    await kernels.prepare(memory, (to) => this.#recordAll(to, rows, nRows, queued));
    this.#ready.add(kind);
  }

  #stepsFor({ hidden }: Rows): Step[] {
    const { program } = this.#resources.host;
    const steps = hidden ? (this.#hidden[hidden] ??= hiddenSteps(program, hidden)) : this.#steps;
    return this.#adapters?.steps(steps) ?? steps;
  }

  /** Records a pass whose weights are on the GPU. */
  #recordAll(to: Recorder, rows: Rows, nRows: number, queued: boolean): void {
    const { writer } = this.sequence;
    if (queued) this.queue.embed(to, rows, this.#units.place);
    for (const step of this.#stepsFor(rows)) {
      if (!this.#beginStep(to, step, rows, 0, nRows)) break;
      const { by = writer } = step;
      this.#units.each(step.index, (unit, buffer) => by.products(to, step, unit, buffer, rows));
      by.finish(to, step, rows);
    }
    if (queued) this.queue.choose(to, rows);
  }

  /** Records a step up to its weights. False: no rows go on. */
  #beginStep(to: Recorder, step: Step, rows: Rows, firstRow: number, nRows: number): boolean {
    const { writer } = this.sequence;
    if (step.op.kind === OpKind.Select) writer.select(to, rows, firstRow, nRows);
    else if (step.op.kind !== OpKind.Matmul) writer.simple(to, step, rows);
    return rows.tokens > 0;
  }

  /** Records the steps of a queue, and submits some early; false if it was cancelled. */
  async recordQueue(recording: Recording, pass: Rows, given: () => boolean): Promise<boolean> {
    const { states: carried } = this.#sequences;
    for (const unit of this.#plan.table)
      if (!(await this.#units.load(unit, recording, given))) return false;
    for (let step = 0; step < pass.tokens; step++) {
      const { due } = pass.states;
      const states = {
        live: carried?.liveAt(step) ?? 0,
        due: Number(due === step + 1),
        ended: this.#resources.layout.queue.ended,
      };
      const rows = { ...pass, tokens: 1, first: pass.first + step, states, step };
      if (!this.#replay(recording, rows, true)) {
        this.queue.embed(recording.to(), rows, this.#units.place);
        if (!(await this.#recordSteps(recording, rows, 0, 1, given))) return false;
        this.queue.choose(recording.to(), rows);
      }
      if (this.queue.submits(step)) recording.submit();
    }
    return true;
  }

  /** Records the whole pass and waits for missing units; false if it was cancelled. */
  record(
    recording: Recording,
    rows: Rows,
    firstRow: number,
    nRows: number,
    given: () => boolean,
  ): boolean | Promise<boolean> {
    return (
      (rows.tokens === 1 && nRows === 1 && this.#replay(recording, rows, false)) ||
      this.#recordSteps(recording, rows, firstRow, nRows, given)
    );
  }

  /** Replays a step of one token; false: it has to be recorded. */
  #replay(recording: Recording, rows: Rows, queued: boolean): boolean {
    const { media, states, inputs } = rows;
    const once = media || states.due || inputs?.length;
    if (this.sequence.attention?.observes || once || !this.#units.resident) return false;
    const words = wordsOf(this.#resources.host);
    words[Word.Layer] = this.#steps.at(-1)!.op.layer;
    return this.#replays.play(recording, rows, queued, words[Word.Slot]!);
  }

  async #recordSteps(
    recording: Recording,
    rows: Rows,
    firstRow: number,
    nRows: number,
    given: () => boolean,
  ): Promise<boolean> {
    const { host, device } = this.#resources;
    const words = wordsOf(host);
    const { writer } = this.sequence;
    const pieces = new Pieces(device.queue, recording, given);
    const steps = this.#stepsFor(rows);
    for (const [i, step] of steps.entries()) {
      const { op, by = writer } = step;
      words[Word.Layer] = op.layer;
      if (!this.#beginStep(recording.to(), step, rows, firstRow, nRows)) break;
      const bytes = await this.#units.record(step.index, recording, given, (unit, buffer) =>
        by.products(recording.to(), step, unit, buffer, rows),
      );
      if (bytes < 0) return false;
      by.finish(recording.to(), step, rows);
      if (rows.media && steps[i + 1]?.op.layer !== op.layer)
        writer.deepstack(recording.to(), op.layer, rows);
      // Parameters of more dispatches have no room.
      if (rows.inputs?.length && recording.to().dispatches > host.program.nBatch)
        recording.submit();
      if (rows.tokens >= kLongPass && !(await pieces.add(bytes * rows.tokens))) return false;
    }
    return true;
  }
}
