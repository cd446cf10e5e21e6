// Runs forward passes of one model on the GPU. Owns the buffers, within a budget. The engine
// (src/gpu/gpu_executor.h) requests a pass through words in its memory; passes.ts computes it, and
// pass-recorder.ts records it up to the next missing weight unit; what is recorded is then submitted
// while the unit is read. If the GPU is lost, the engine continues on the CPU at the same position.

import { SluiceError } from '../protocol/errors.js';
import type { GpuKernels } from '../protocol/types.js';
import { kernelsOf } from './adapter.js';
import { keepDevice, type OpenDevice } from './open-device.js';
import { Buffers, Usage } from './buffers.js';
import { cacheBytes } from './kv-cache.js';
import type { KvState } from './kv-state.js';
import { Kernels } from './kernels.js';
import { align, kMaxBytes, planWeights, type GpuPlan } from './plan.js';
import { PassState, Word } from './program.js';
import type { GpuCounts } from './recording.js';
import { loadParts, loadTypes, type Parts } from './load-types.js';
import { layersOf, partFor, roomOf, type Room } from './layer-split.js';
import { PassRecorder } from './pass-recorder.js';
import { Passes } from './passes.js';
import { wordsOf, type GpuHost, type Resources } from './resources.js';
import { makeSequences } from './sequences.js';
import type { GpuRecurrentStates } from './recurrent-states.js';
import { queueBytes, queues } from './step-queue.js';
import { timeCoded } from './timing.js';

export type { GpuCounts };

const kLookMs = 20;

export class GpuExecutor {
  lost = false;
  /** Saves and restores sequences, if the engine has no memory for the KV cache. */
  readonly kvState: KvState | undefined;
  /** Recurrent states, if the model has them. */
  readonly states: GpuRecurrentStates | undefined;
  readonly #open: OpenDevice;
  readonly #resources: Resources;
  readonly #recorder: PassRecorder;
  readonly #passes: Passes;
  #running: Promise<void> | null = null;
  #closed = false;

  private constructor(
    open: OpenDevice,
    resources: Omit<Resources, 'device' | 'layout' | 'memory' | 'counts'>,
    { layout, acts, cache, readback }: Room,
    parts: Parts,
    plan: GpuPlan,
    planFor: (adapters: number) => GpuPlan,
  ) {
    const { host, buffers } = resources;
    const { program } = host;
    const { device } = open;
    const storage = Usage.Storage | Usage.CopySource | Usage.CopyTarget;
    const own = (this.#resources = {
      ...resources,
      device,
      layout,
      memory: {
        arena: buffers.make(4 * layout.floats, storage),
        vectors: buffers.make(align(4 * layout.vecFloats, 16) || 16, storage),
        ...(acts && { acts: buffers.make(acts, Usage.Storage) }),
      },
      counts: {
        gpuPasses: 0,
        submits: 0,
        dispatches: 0,
        weightBytes: 0,
        uploaded: 0,
      },
    });
    this.#open = open;
    const sequences = makeSequences(own, parts);
    this.#recorder = new PassRecorder(own, sequences, plan, planFor, () => this.bytes);
    this.#passes = new Passes(own, sequences, this.#recorder, readback);
    this.states = sequences.states;
    this.kvState =
      parts.KvState &&
      new parts.KvState(program, device, buffers, sequences.caches, cache.stateChunk);
  }

  #begun(): this {
    this.#open.use((why) => this.lose(why));
    // At once, since Dawn fails in Node if it is called while the process ends.
    if (!this.#resources.host.program.bidirectional)
      this.#recorder.prepare(1, 0, 1, this.maxQueue > 0).catch(() => {}); // reported by the pass that needs them
    return this;
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
      const needed = roomOf(program, dots);
      const { layout, cache, acts, fixed } = needed;
      if (Math.max(4 * layout.floats, acts, cache.largest) > most) {
        throw new SluiceError(
          'NOT_SUPPORTED',
          `The GPU's buffers have at most ${most} bytes. This context needs more: load with a ` +
            'smaller contextLength.',
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
        { host: { ...host, program }, kernels, buffers },
        needed,
        parts,
        plan,
        planFor,
      );
      if (!(await device.popErrorScope())) return executor.#begun();
      buffers.dropAll();
      bytes = fixed + Math.floor(plan.bytes / 2);
    }
  }

  /** Bytes of GPU memory in use. */
  get bytes(): number {
    return this.lost ? 0 : this.#resources.buffers.bytes + this.#resources.kernels.bytes;
  }
  /** Bytes of these that are a KV cache of which memory has no copy. */
  get kvBytes(): number {
    return this.kvState && !this.lost ? cacheBytes(this.#resources.host.program).total : 0;
  }
  /** Number of layers on the GPU, and the CPU's first operation after them, if there is one. */
  get layers(): number {
    return layersOf(this.#resources.host.program);
  }
  get cut(): number | undefined {
    return this.#resources.host.program.cut;
  }
  /** How many steps the engine may queue at first; 0: none. */
  get maxQueue(): number {
    return this.#recorder.queue.steps;
  }
  get counts(): GpuCounts {
    return { ...this.#resources.counts, pipelines: this.#resources.kernels.compiled };
  }
  get kernels(): GpuKernels {
    return kernelsOf(this.#resources.kernels.features, this.#resources.kernels.coded);
  }

  /** What pictures/pictures.ts shares with passes. `running`: a pass, which may be cancelled. */
  get shared() {
    return { ...this.#resources, running: this.#running, loadTypes };
  }

  /** Marks the GPU as lost and frees it. The engine requests no more passes. */
  lose(why: string): void {
    if (this.lost) return;
    this.#end();
    if (!this.#closed) this.#resources.host.onLost(why);
    this.#resources.device.destroy();
  }

  #end(): void {
    this.lost = true;
    wordsOf(this.#resources.host)[Word.Lost] = 1;
    this.#resources.kernels.free();
  }

  /** Frees the memory. Returns whether the device is kept for another engine. */
  close(): boolean {
    this.#closed = true;
    // A pass that is still running may wait for a read that never ends, and uses the buffers.
    if (this.#running) this.lose('');
    if (this.lost) return false;
    this.#end();
    this.#resources.buffers.dropAll();
    keepDevice(this.#open);
    return true;
  }

  /**
   * Computes the pass that the engine requests; false: there is no request. Returns early when
   * `stopped`; the result of the running pass is then discarded.
   */
  async serve(stopped: () => boolean): Promise<boolean> {
    if (this.lost || wordsOf(this.#resources.host)[Word.State] !== PassState.Wanted) return false;
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

  async #pass(): Promise<void> {
    try {
      await this.#passes.compute(() => this.lost);
    } catch (error) {
      // A failed read does not lose the GPU: the next attempt starts the pass again.
      if (error instanceof SluiceError || this.#closed) throw error;
      this.lose((error as Error).message);
    }
  }
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
