// Interface to the WGSL kernels (kernels/wgsl). A Recorder writes dispatches into one compute pass.
// The parameters of each call are passed in a uniform buffer.
//
// There are three kinds of buffers. They must be separate, because a dispatch writes some of them:
//   arena    f32 activations: everything that operations read and write, RoPE tables and recurrent
//            states
//   vectors  f32 norm weights, biases, factors and attention sinks: read only
//   weights  rows as they are in the GGUF file, at any multiple of 4 bytes; KV caches

import * as attention from './kernels/attention.js';
import type {
  Activate,
  Attention,
  Choose,
  Combine,
  Groups,
  Matmul,
  Norm,
  Place,
  Rope,
  Route,
  Rows,
  Store,
} from './kernels/calls.js';
import { Dispatcher, type Coded, type Memory } from './kernels/dispatcher.js';
import * as groups from './kernels/groups.js';
import { Pipelines } from './kernels/pipelines.js';
import { linearSubgroups } from './kernels/probe.js';
import * as products from './kernels/matmul.js';
import { Replay, replayBytes, type RecordedAt } from './kernels/replay.js';
import * as sampling from './kernels/sampling.js';
import type { Features } from './kernels/shaders.js';
import { types } from './kernels/types.js';

export { attentionScratch, kSplit } from './kernels/attention.js';
export type { Replay };
export { kChooseScratch, kMaxTopK } from './kernels/sampling.js';
export type * from './kernels/calls.js';
export type { Coded, Features, Memory };
export { actBytes, kFewTokens } from './kernels/matmul.js';

/** false: a feature is not used even if the device has it. `coded` defaults to none. */
export interface Options {
  subgroups?: boolean;
  f16?: boolean;
  coded?: Coded;
}

const kDots = 'packed_4x8_integer_dot_product';

export class Kernels {
  readonly #device: GPUDevice;
  readonly #pipelines: Pipelines;
  /** Which matrix multiplications use int8 activations. None do without the feature `dots`. */
  coded: Coded;
  #before = 0;

  private constructor(device: GPUDevice, pipelines: Pipelines, coded: Coded) {
    this.#device = device;
    this.#pipelines = pipelines;
    this.coded = coded;
  }

  /** Uses the optional features that the device has. None is required. */
  static async create(device: GPUDevice, options: Options = {}): Promise<Kernels> {
    const { subgroups = true, f16 = true, coded = { gemv: false, gemm: false } } = options;
    const features = {
      subgroups: subgroups && device.features.has('subgroups') && (await linearSubgroups(device)),
      f16: f16 && device.features.has('shader-f16'),
      dots: navigator.gpu.wgslLanguageFeatures?.has(kDots) ?? false,
    };
    return new Kernels(device, new Pipelines(device, features), coded);
  }

  get features(): Features {
    return this.#pipelines.features;
  }

  /** Whether the kernels support this quantization type. */
  static supports(type: number): boolean {
    return types.has(type);
  }

  /** Bytes of the buffers that the kernels own. */
  get bytes(): number {
    return this.#pipelines.bytes;
  }
  /** Starts to count the pipelines that are compiled for another engine. */
  recount(): void {
    this.#before = this.#pipelines.count;
  }
  /** Pipelines that were compiled since then. */
  get compiled(): number {
    return this.#pipelines.count - this.#before;
  }

  /** Starts a compute pass. Call end(), and submit the encoder before the next recording ends. */
  begin(encoder: GPUCommandEncoder, memory: Memory): Recorder {
    return new Recorder(
      this.#pipelines,
      this.#device.limits,
      encoder.beginComputePass(),
      memory,
      this.coded,
    );
  }

  /** What `work` would dispatch. `ahead`: and what later positions need. */
  #dry(memory: Memory, work: (recorder: Recorder) => void, ahead: boolean): Recorder {
    const { limits } = this.#device;
    const recorder = new Recorder(this.#pipelines, limits, null, memory, this.coded, ahead);
    work(recorder);
    return recorder;
  }

  /** Compiles all pipelines that `work` needs, in parallel. Nothing is recorded. */
  async prepare(memory: Memory, work: (recorder: Recorder) => void): Promise<void> {
    const { calls } = this.#dry(memory, work, true);
    await this.#pipelines.compile(calls.map(({ variant }) => variant));
  }

  /** Records `work` to be replayed. `make` gives a buffer for parameters, or undefined. */
  replay(
    memory: Memory,
    at: RecordedAt,
    work: (recorder: Recorder) => void,
    make: (bytes: number) => GPUBuffer | undefined,
  ): Replay | undefined {
    const sequence = this.#dry(memory, work, false);
    const buffer = make(replayBytes(sequence, at.replays));
    return buffer && new Replay(this.#pipelines, sequence, at, buffer);
  }

  /** Frees the buffers that the kernels own. */
  free(): void {
    this.#pipelines.free();
  }
}

/** Records dispatches. The modules of kernels/ implement the methods. */
export class Recorder extends Dispatcher {
  matmul(op: Matmul): void {
    products.matmul(this, op);
  }
  rows(op: Rows): void {
    products.rows(this, op);
  }

  rope(op: Rope): void {
    attention.rope(this, op);
  }
  store(op: Store): void {
    attention.store(this, op);
  }
  attention(op: Attention): void {
    attention.attention(this, op);
  }

  choose(op: Choose): void {
    sampling.choose(this, op);
  }

  route(op: Route): void {
    groups.route(this, op);
  }
  combine(op: Combine): void {
    groups.combine(this, op);
  }
  norm(op: Norm): void {
    groups.norm(this, op);
  }
  activate(op: Activate): void {
    groups.activate(this, op);
  }
  add(op: Groups & { scale?: number }): void {
    groups.add(this, op);
  }
  scale(op: Groups & { scale: number }): void {
    groups.scale(this, op);
  }
  copy(op: Groups): void {
    groups.copy(this, op);
  }
  softcap(op: Groups & { softcap: number }): void {
    groups.softcap(this, op);
  }
  clamp(op: Groups & { softcap: number }): void {
    groups.clamp(this, op);
  }
  unary(op: Groups & { unary: number }): void {
    groups.unary(this, op);
  }
  gate(op: Groups): void {
    groups.gate(this, op);
  }
  gated(op: Groups & { unary: number; gate: Place; stride: number }): void {
    groups.gated(this, op);
  }
  mulVec(op: Groups & { vec: number; one?: boolean }): void {
    groups.mulVec(this, op);
  }
  addVec(op: Groups & { vec: number; position?: number | undefined }): void {
    groups.addVec(this, op);
  }
}
