// Runs forward passes of one model on the GPU. Owns the buffers, within a budget. A pass is
// recorded up to the next missing weight unit; what is recorded is then submitted while the unit is
// read. The engine (src/gpu/gpu_executor.h) requests a pass through words in its memory. If the GPU
// is lost, it continues on the CPU at the same position.

import { SluiceError } from '../protocol/errors.js';
import type { GpuKernels } from '../protocol/types.js';
import { kernelsOf } from './adapter.js';
import { keepDevice, type OpenDevice } from './open-device.js';
import { Buffers, Usage, writeFrom } from './buffers.js';
import { cacheBytes, GpuKvCache } from './kv-cache.js';
import type { KvState } from './kv-state.js';
import type { ReadWeights } from './weight-upload.js';
import { Pieces, WeightUnits } from './weight-units.js';
import { Kernels, kSplit, type Memory, type Recorder } from './kernels.js';
import { align, kMaxBytes, planWeights, type GpuPlan } from './plan.js';
import { Buf, kWords, OpKind, PassState, Word, type Program } from './program.js';
import { Recording, type GpuCounts } from './recording.js';
import { loadAdapters, loadParts, loadTypes, type Parts } from './load-types.js';
import type { Adapters } from './lora.js';
import {
  inputsOf,
  numbersOf,
  tableBytes,
  tablesOf,
  Writer,
  type GpuSequence,
  type Layout,
  type Rows,
} from './record.js';
import { layersOf, partFor, roomOf } from './layer-split.js';
import type { GpuRecurrentStates } from './recurrent-states.js';
import { kStateless } from './state-plan.js';
import { hiddenSteps, stepsOf, type Step } from './fusion.js';
import { kQueueFloats } from './queue-plan.js';
import { queueBytes, queues, StepQueue } from './step-queue.js';
import { StepReplays } from './step-replays.js';
import { timeCoded } from './timing.js';

export type { GpuCounts };

export interface GpuHost {
  memory: WebAssembly.Memory;
  program: Program;
  read: ReadWeights;
  /** Bytes; 0: what the model needs, at most kMaxBytes. */
  gpuBudget: number;
  /** Number of first layers. Infinity: as many as fit. undefined: all, and weights may stream. */
  layers: number | undefined;
  /** Overrides the measured choice of optional kernels. */
  kernels?: GpuKernels | undefined;
  /** Called with the reason when the GPU is lost. */
  onLost(why: string): void;
}

const kLongPass = 8; // tokens, for which it is submitted in pieces
const kLookMs = 20;

export class GpuExecutor {
  lost = false;
  /** Saves and restores sequences, if the engine has no memory for the KV cache. */
  readonly kvState: KvState | undefined;
  readonly #counts = {
    gpuPasses: 0,
    submits: 0,
    dispatches: 0,
    weightBytes: 0,
    uploaded: 0,
    layers: 0,
  };
  readonly #open: OpenDevice;
  readonly #device: GPUDevice;
  readonly #host: GpuHost;
  readonly #kernels: Kernels;
  readonly #buffers: Buffers;
  /** Plans the weights, with so many bytes for adapters. */
  readonly #planFor: (adapters: number) => GpuPlan;
  #plan!: GpuPlan;
  readonly #layout: Layout;
  readonly #steps: Step[];
  /** Of a pass for embeddings. */
  #hidden: Step[] | undefined;
  /** What the words of a pass name, and what that was last. */
  readonly #sequenceOf: (words: Uint32Array) => GpuSequence;
  #sequence: GpuSequence;
  readonly #states: GpuRecurrentStates | undefined;
  /** Rows of a batch, by table. */
  readonly #tables: ReadonlyMap<number, GPUBuffer>;
  #queue!: StepQueue;
  #replays!: StepReplays;
  #units!: WeightUnits;
  #adapters: Adapters | undefined;
  readonly #memory: Memory;
  readonly #readback: GPUBuffer;
  /** Kinds of passes whose pipelines are compiled. */
  readonly #ready = new Set<string>();
  #vectorsThere = false;
  #running: Promise<void> | null = null;
  #closed = false;

  private constructor(
    open: OpenDevice,
    host: GpuHost,
    kernels: Kernels,
    planFor: (adapters: number) => GpuPlan,
    layout: Layout,
    buffers: Buffers,
    parts: Parts,
  ) {
    this.#open = open;
    this.#device = open.device;
    this.#host = host;
    this.#kernels = kernels;
    this.#planFor = planFor;
    this.#layout = layout;
    this.#buffers = buffers;
    const { program, memory } = host;
    const { readback } = roomOf(program, false);
    const storage = Usage.Storage | Usage.CopySource | Usage.CopyTarget;
    const arena = buffers.make(4 * layout.floats, storage);
    this.#memory = {
      arena,
      vectors: buffers.make(align(4 * layout.vecFloats, 16) || 16, storage),
      ...(layout.actBytes &&
        kernels.features.dots && { acts: buffers.make(layout.actBytes, Usage.Storage) }),
    };
    this.#readback = buffers.make(readback, Usage.MapRead | Usage.CopyTarget);
    this.#steps = stepsOf(program);
    this.#tables = new Map(
      tablesOf(program).map((table) => [table, buffers.make(tableBytes(program, table), storage)]),
    );
    const { parallel, recurrent, rareOps, rows, KvEviction, KvState } = parts;
    const caches: GpuKvCache[] = [];
    if (recurrent)
      this.#states = new recurrent.GpuRecurrentStates(program, layout.states, memory, arena);
    const ops = [recurrent?.recurrentOps(program, layout.states), rareOps?.(program, layout)];
    const { Writer: Own, each } = parallel?.(Writer, program, memory) ?? { Writer, each: alone };
    this.#sequenceOf = each(() => {
      const cache = new GpuKvCache(program, memory, buffers, rows);
      caches.push(cache);
      const eviction =
        KvEviction && new KvEviction(program, layout.eviction, memory, buffers, arena);
      const writer = new Own(program, layout, cache.caches, this.#tables, eviction, ops);
      return { cache, eviction, writer };
    });
    this.#sequence = this.#sequenceOf(this.#words());
    this.#arrange(planFor(0));
    this.kvState =
      KvState && new KvState(program, open.device, buffers, caches, cacheBytes(program).stateChunk);
    this.#counts.layers = new Set(
      program.ops.map(({ layer }) => layer).filter((layer) => layer >= 0),
    ).size;
  }

  /** Makes what depends on the plan of the weights. */
  #arrange(plan: GpuPlan): void {
    const { program, read, gpuBudget } = this.#host;
    const [layout, buffers] = [this.#layout, this.#buffers];
    this.#plan = plan;
    this.#queue = new StepQueue(program, plan, layout, this.#sequence.writer);
    this.#units = new WeightUnits(program, plan, buffers, read, this.#counts);
    this.#replays = new StepReplays(
      this.#kernels,
      this.#memory,
      buffers,
      this.#queue,
      () => (gpuBudget || kMaxBytes) - this.bytes,
      (to, rows, queued) => this.#recordAll(to, rows, 1, queued),
    );
  }

  /** Takes up the adapters of a pass. One that the GPU cannot compute is given back. */
  async #takeUp(words: Uint32Array, given: () => boolean): Promise<void> {
    if (words[Word.Adapters] !== (this.#adapters?.id ?? 0)) {
      const { adaptersOf } = await loadAdapters();
      const before = this.#adapters;
      this.#adapters = undefined;
      this.#replays.drop();
      this.#adapters = await adaptersOf(
        {
          ...this.#host,
          layout: this.#layout,
          buffers: this.#buffers,
          device: this.#device,
          plan: this.#plan,
          planFor: this.#planFor,
          arrange: async (plan) => {
            await this.#units.drop(this.#buffers);
            this.#arrange(plan);
            words[Word.MaxQueue] = this.maxQueue;
          },
        },
        words,
        given,
        before,
      );
    }
    // Its weights stream from now on: a step at a time.
    if (!given() && words[Word.Steps] && !this.maxQueue) words[Word.State] = PassState.Done;
  }

  #begun(): this {
    this.#open.use((why) => this.lose(why));
    // At once, since Dawn fails in Node if it is called while the process ends.
    if (!this.#host.program.bidirectional)
      this.#prepare(1, 0, 1, this.maxQueue > 0).catch(() => {}); // reported by the pass that needs them
    return this;
  }

  /**
   * Compiles the pipelines of a pass of `tokens` from position `first` on, `nRows` of which get
   * logits. A pass waits for these alone: a software adapter takes seconds for each. What a pass
   * needs changes with the number of tokens, and as the context grows.
   */
  async #prepare(
    tokens: number,
    first: number,
    nRows: number,
    queued = false,
    { ...more }: Pick<Rows, 'hidden' | 'inputs'> = {},
  ): Promise<void> {
    const { eviction, kind: lanes } = this.#sequence;
    const evicted = eviction?.kindOf(first, tokens);
    // Inputs whose kernels differ: those of attention depend on the tokens, up to 16.
    const inputs = new Map(more.inputs?.map((input) => [Math.min(input.tokens, 16), input]));
    more.inputs &&= [...inputs.values()];
    const kind = [
      tokens,
      nRows,
      Math.floor((first + tokens - 1) / kSplit),
      queued,
      evicted,
      lanes,
      more.hidden,
      [...inputs.keys()].sort(),
      this.#adapters?.id,
    ].join();
    if (this.#ready.has(kind)) return;
    const rows: Rows = { tokens, first, skipped: 0, states: kStateless, step: 0, ...more };
    await this.#kernels.prepare(this.#memory, (to) => this.#recordAll(to, rows, nRows, queued));
    this.#ready.add(kind);
  }

  #stepsFor({ hidden }: Rows): Step[] {
    const steps = hidden ? (this.#hidden ??= hiddenSteps(this.#host.program, hidden)) : this.#steps;
    return this.#adapters?.steps(steps) ?? steps;
  }

  /** Records a pass whose weights are on the GPU. */
  #recordAll(to: Recorder, rows: Rows, nRows: number, queued: boolean): void {
    const { writer } = this.#sequence;
    if (queued) this.#queue.embed(to, rows, this.#units.place);
    for (const step of this.#stepsFor(rows)) {
      if (step.op.kind === OpKind.Select) writer.select(to, rows, 0, nRows);
      else if (step.op.kind !== OpKind.Matmul) writer.simple(to, step, rows);
      if (rows.tokens === 0) break;
      this.#units.each(step.index, (unit, buffer) => writer.products(to, step, unit, buffer, rows));
      writer.finish(to, step, rows);
      this.#adapters?.add(to, step, rows, writer);
    }
    if (queued) this.#queue.choose(to, rows);
  }

  /** Errors: NOT_SUPPORTED (names what the GPU does not support), BUDGET_TOO_SMALL. */
  static async open(open: OpenDevice, host: GpuHost): Promise<GpuExecutor> {
    const { gpuBudget, layers } = host;
    const { device } = open;
    const { limits } = device;
    const most = Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize);
    // Throws before anything is compiled if the model is not supported.
    partFor(host.program, layers, Infinity, false, most);
    await loadTypes(host.program.mats.map(({ type }) => type));
    const parts = await loadParts(host.program);
    const kernels = await kernelsFor(open, host);
    const { dots } = kernels.features;
    // If the GPU has less memory than the budget, retries with more weights streaming, or with
    // fewer layers.
    for (let bytes = gpuBudget || kMaxBytes; ;) {
      const program = partFor(host.program, layers, bytes, dots, most);
      const { layout, cache, acts, fixed } = roomOf(program, dots);
      if (Math.max(4 * layout.floats, acts, cache.largest) > most) {
        throw new SluiceError(
          'NOT_SUPPORTED',
          `The GPU's buffers have at most ${most} bytes, and this context needs more: load with ` +
            'a smaller contextLength.',
        );
      }
      const limits = {
        unitBytes: most,
        queueBytes: queues(program) ? queueBytes(program) : undefined,
      };
      const room = bytes - fixed;
      const planFor = (adapters: number) => planWeights(program, room - adapters, limits, fixed);
      const plan = planFor(0); // or an error
      const buffers = new Buffers(device);
      device.pushErrorScope('out-of-memory');
      const executor = new GpuExecutor(
        open,
        { ...host, program },
        kernels,
        planFor,
        layout,
        buffers,
        parts,
      );
      if (!(await device.popErrorScope())) return executor.#begun();
      buffers.dropAll();
      bytes = fixed + Math.floor(plan.bytes / 2);
    }
  }

  /** Bytes of GPU memory in use. */
  get bytes(): number {
    return this.lost ? 0 : this.#buffers.bytes + this.#kernels.bytes;
  }
  /** Bytes of these that are a KV cache of which memory has no copy. */
  get kvBytes(): number {
    return this.kvState && !this.lost ? cacheBytes(this.#host.program).total : 0;
  }
  /** Number of layers on the GPU, and the CPU's first operation after them; 0: there is none. */
  get layers(): number {
    return layersOf(this.#host.program);
  }
  get cut(): number {
    return this.#host.program.cut ?? 0;
  }
  /** How many steps the engine may queue at first; 0: none. */
  get maxQueue(): number {
    return this.#queue.steps;
  }
  get counts(): GpuCounts {
    return { ...this.#counts, pipelines: this.#kernels.compiled };
  }
  get kernels(): GpuKernels {
    return kernelsOf(this.#kernels.features, this.#kernels.coded);
  }

  /** What pictures/pictures.ts shares with passes. `running`: a pass, which may be cancelled. */
  get shared() {
    return {
      device: this.#device,
      kernels: this.#kernels,
      buffers: this.#buffers,
      counts: this.#counts,
      host: this.#host,
      running: this.#running,
      loadTypes,
    };
  }

  /** Marks the GPU as lost and frees it. The engine requests no more passes. */
  lose(why: string): void {
    if (this.lost) return;
    this.lost = true;
    this.#words()[Word.Lost] = 1;
    if (!this.#closed) this.#host.onLost(why);
    this.#kernels.free();
    this.#device.destroy();
  }

  /** Frees the memory. Returns whether the device is kept for another engine. */
  close(): boolean {
    this.#closed = true;
    // A pass that is still running may wait for a read that never ends, and uses the buffers.
    if (this.#running) this.lose('closed');
    if (this.lost) return false;
    this.lost = true;
    this.#words()[Word.Lost] = 1;
    this.#buffers.dropAll();
    this.#kernels.free();
    keepDevice(this.#open);
    return true;
  }

  /**
   * Computes the pass that the engine requests; false: there is no request. Returns early when
   * `stopped`; the result of the running pass is then discarded.
   */
  async serve(stopped: () => boolean): Promise<boolean> {
    if (this.lost || this.#words()[Word.State] !== PassState.Wanted) return false;
    while (this.#running && !stopped()) await this.#unless(stopped, this.#running);
    if (stopped()) return true;
    const running = this.#pass();
    const over = running.catch(() => {}).finally(() => (this.#running = null));
    this.#running = over;
    await this.#unless(stopped, running);
    return true;
  }

  /** Waits for `running`, or until `stopped`. */
  async #unless(stopped: () => boolean, running: Promise<void>): Promise<void> {
    let timer: ReturnType<typeof setInterval> | undefined;
    const over = new Promise<void>(
      (done) => (timer = setInterval(() => stopped() && done(), kLookMs)),
    );
    await Promise.race([running, over]).finally(() => clearInterval(timer));
  }

  #words(): Uint32Array {
    return new Uint32Array(this.#host.memory.buffer, this.#host.program.pass, kWords);
  }

  async #pass(): Promise<void> {
    try {
      await this.#compute();
    } catch (error) {
      // A failed read does not lose the GPU: the next attempt starts the pass again.
      if (error instanceof SluiceError || this.#closed) throw error;
      this.lose((error as Error).message);
    }
  }

  async #compute(): Promise<void> {
    const words = this.#words();
    const { program, memory } = this.#host;
    const queue = this.#device.queue;
    const [serial, n, first, steps] = [Word.Serial, Word.N, Word.First, Word.Steps].map(
      (word) => words[word]!,
    ) as [number, number, number, number];
    const { cache, eviction } = (this.#sequence = this.#sequenceOf(words));
    const more = { hidden: words[Word.Hidden]!, inputs: inputsOf(words) };
    // The KV cache of several inputs, or of layers that share one, is not continued.
    const kept = more.inputs.length || program.bidirectional ? 0 : n;
    const given = (): boolean =>
      this.lost || words[Word.Serial] !== serial || words[Word.State] !== PassState.Wanted;
    const began = performance.now();
    await this.#takeUp(words, given);
    if (given()) return;
    this.#units.ahead();
    if (steps)
      for (let step = 0; step < steps; step++) await this.#prepare(1, first + step, 1, true);
    else await this.#prepare(n, first, words[Word.NRows]!, false, more);
    if (given()) return;
    this.#uploadVectors(words);
    cache.upload(queue, words);
    eviction?.begin(queue, words);
    const states = this.#states?.begin(queue, words) ?? kStateless;
    const copy = (address: number, floats: number, at: number): void =>
      writeFrom(memory, address, 4 * floats, { queue, target: this.#memory.arena, at: 4 * at });
    const width = words[Word.Media] ? words[Word.MediaWidth]! : 0;
    if (width && program.deepstack) copy(words[Word.Media]!, n * width, this.#layout.media);
    this.#uploadRows(words, n);
    if (steps) this.#queue.begin(queue, words, this.#memory.arena);
    else copy(words[Word.X]!, n * program.widths[Buf.X]!, this.#layout.buffers[Buf.X]!);
    const ropes = new Uint32Array(memory.buffer, words[Word.Ropes], program.ropes.length);
    program.ropes.forEach(({ nRot }, i) => copy(ropes[i]!, n * nRot, this.#layout.ropes[i]!));

    const recording = new Recording(this.#device, this.#kernels, this.#memory, this.#counts);
    let back: Back | null;
    try {
      const rows: Rows = { tokens: n, first, skipped: 0, states, step: 0, ...more };
      if (width) rows.media = { width, nonCausal: words[Word.NonCausal]! };
      const recorded = await (steps
        ? this.#recordQueue(recording, rows, given)
        : (n === 1 && words[Word.NRows] === 1 && this.#replay(recording, rows, false)) ||
          this.#record(recording, rows, words[Word.FirstRow]!, words[Word.NRows]!, given));
      back = recorded ? this.#download(recording, words, first, n, kept) : null;
    } finally {
      recording.submit(); // uploaded units are already marked as loaded
    }
    if (!back) return;
    const { result, rows, states: observed, size } = back;
    await this.#readback.mapAsync(Usage.MapRead, 0, size);
    try {
      if (given()) return;
      const made = new Uint8Array(this.#readback.getMappedRange(0, size));
      if (steps)
        this.#queue.settle(
          memory,
          words,
          new Float32Array(made.buffer, made.byteOffset, kQueueFloats),
          performance.now() - began,
        );
      else
        new Uint8Array(memory.buffer, words[program.cut ? Word.X : Word.Logits], result).set(
          made.subarray(0, result),
        );
      cache.settle(words, made.subarray(result, rows), first, kept);
      this.#states?.settle(words, made.subarray(rows));
      eviction?.settle(words, made.subarray(observed), first, n);
      if (this.#counts.gpuPasses === 0 && !more.inputs.length)
        this.#prepare(program.nBatch, 0, 1).catch(() => {}); // for the next prompt
      this.#counts.gpuPasses += steps || 1;
      words[Word.State] = PassState.Done;
    } finally {
      this.#readback.unmap();
    }
  }

  /** Records the steps of a queue, and submits some early; false if it was cancelled. */
  async #recordQueue(recording: Recording, pass: Rows, given: () => boolean): Promise<boolean> {
    for (const unit of this.#plan.table)
      if (!(await this.#units.load(unit, recording, given))) return false;
    for (let step = 0; step < pass.tokens; step++) {
      const { due } = pass.states;
      const states = {
        live: this.#states?.liveAt(step) ?? 0,
        due: Number(due === step + 1),
        ended: this.#layout.queue.ended,
      };
      const rows = { ...pass, tokens: 1, first: pass.first + step, states, step };
      if (!this.#replay(recording, rows, true)) {
        this.#queue.embed(recording.to(), rows, this.#units.place);
        if (!(await this.#record(recording, rows, 0, 1, given))) return false;
        this.#queue.choose(recording.to(), rows);
      }
      if (this.#queue.submits(step)) recording.submit();
    }
    return true;
  }

  /** Replays a step of one token; false: it has to be recorded. */
  #replay(recording: Recording, rows: Rows, queued: boolean): boolean {
    const { media, states, inputs } = rows;
    const once = media || states.due || inputs?.length;
    if (this.#sequence.eviction?.observes || once || !this.#units.resident) return false;
    const words = this.#words();
    words[Word.Layer] = this.#steps.at(-1)!.op.layer;
    return this.#replays.play(recording, rows, queued, words[Word.Slot]!);
  }

  /** Records the whole pass and waits for missing units; false if it was cancelled. */
  async #record(
    recording: Recording,
    rows: Rows,
    firstRow: number,
    nRows: number,
    given: () => boolean,
  ): Promise<boolean> {
    const words = this.#words();
    const { writer } = this.#sequence;
    const pieces = new Pieces(this.#device.queue, recording, given);
    const steps = this.#stepsFor(rows);
    const { program } = this.#host;
    for (const [i, step] of steps.entries()) {
      const { op } = step;
      words[Word.Layer] = op.layer;
      if (op.kind === OpKind.Select) {
        writer.select(recording.to(), rows, firstRow, nRows);
        if (nRows === 0) break;
      } else if (op.kind !== OpKind.Matmul) {
        writer.simple(recording.to(), step, rows);
      }
      const bytes = await this.#units.record(step.index, recording, given, (unit, buffer) =>
        writer.products(recording.to(), step, unit, buffer, rows),
      );
      if (bytes < 0) return false;
      writer.finish(recording.to(), step, rows);
      this.#adapters?.add(recording.to(), step, rows, writer);
      if (rows.media && steps[i + 1]?.op.layer !== op.layer)
        writer.deepstack(recording.to(), op.layer, rows);
      // Parameters of more dispatches have no room.
      if (rows.inputs?.length && recording.to().dispatches > program.nBatch) recording.submit();
      if (rows.tokens >= kLongPass && !(await pieces.add(bytes * rows.tokens))) return false;
    }
    return true;
  }

  /**
   * Records the copies of the results: chosen tokens, logits or rows of all tokens, `kept` KV cache
   * rows, and states.
   */
  #download(
    recording: Recording,
    words: Uint32Array,
    first: number,
    n: number,
    kept: number,
  ): Back {
    const { program } = this.#host;
    const { cache, eviction } = this.#sequence;
    const { queue, buffers } = this.#layout;
    recording.finish();
    const [buf, count] = program.cut
      ? [Buf.X, n]
      : words[Word.Hidden]
        ? [Buf.H, n]
        : [Buf.Logits, words[Word.NRows]!];
    const [at, floats] = words[Word.Steps]
      ? [queue.tokens, kQueueFloats]
      : [buffers[buf]!, count * program.widths[buf]!];
    const result = 4 * floats;
    if (result)
      recording.encoder.copyBufferToBuffer(this.#memory.arena, 4 * at, this.#readback, 0, result);
    const rows = cache.download(recording.encoder, this.#readback, result, first, kept);
    const { encoder } = recording;
    const states = rows + (this.#states?.download(encoder, words, this.#readback, rows) ?? 0);
    const observed = eviction?.download(encoder, this.#readback, states, first, n) ?? 0;
    return { result, rows, states, size: align(states + observed, 8) };
  }

  /** Uploads the rows of tables that a batch of n tokens reads. */
  #uploadRows(words: Uint32Array, n: number): void {
    const { program, memory } = this.#host;
    const addresses = new Uint32Array(memory.buffer, words[Word.TableRows], program.tables.length);
    for (const [table, target] of this.#tables) {
      // Writes are of whole words. Behind the last row the engine has more memory.
      const bytes = align(n * program.mats[program.tables[table]!]!.rowBytes);
      const { queue } = this.#device;
      writeFrom(memory, addresses[table]!, bytes, { queue, target, at: 0 });
    }
  }

  /** Uploads norm weights and biases, which the engine has loaded before the first pass. */
  #uploadVectors(words: Uint32Array): void {
    if (this.#vectorsThere) return;
    const { program, memory } = this.#host;
    const addresses = new Uint32Array(memory.buffer, words[Word.Vectors], program.vecs.length);
    const { queue } = this.#device;
    const target = this.#memory.vectors;
    program.vecs.forEach((n, i) =>
      writeFrom(memory, addresses[i]!, 4 * n, { queue, target, at: 4 * this.#layout.vecs[i]! }),
    );
    const numbers = Float32Array.from({ length: numbersOf(program) }, (_, i) => i);
    queue.writeBuffer(this.#memory.arena, 4 * this.#layout.numbers, numbers);
    this.#vectorsThere = true;
  }
}

/** One sequence, which every pass computes. */
function alone(make: () => GpuSequence): () => GpuSequence {
  const one = make();
  return () => one;
}

/**
 * Kernels with the options of the host, or with those that are measured to be faster for the
 * model's main quantization type.
 */
async function kernelsFor(
  open: OpenDevice,
  { program, gpuBudget, kernels: wanted }: GpuHost,
): Promise<Kernels> {
  const kernels = await open.kernels(wanted && { ...wanted, coded: wanted.int8 });
  if (wanted) return kernels;
  const sizes = new Map<number, number>();
  for (const { type, rows, rowBytes } of program.mats)
    if (Kernels.supports(type)) sizes.set(type, (sizes.get(type) ?? 0) + rows * rowBytes);
  const [main] = [...sizes].sort((a, b) => b[1] - a[1]);
  if (main) kernels.coded = await timeCoded(open.device, kernels, main[0], gpuBudget || Infinity);
  return kernels;
}

/** End offsets in the readback buffer: of logits or residual stream, of KV rows, of states, of all. */
interface Back {
  result: number;
  rows: number;
  states: number;
  size: number;
}
