// Measures matrix multiplications of one and of many tokens with synthetic weights, and whether int8
// activations are faster, which depends on the GPU. The amount of work grows until it exceeds the
// resolution of the clock, so a slow GPU is measured quickly too. gpu-benchmark.ts measures more.

import { Usage } from './buffers.js';
import { actBytes, type Coded, type Kernels, type Memory, type Recorder } from './kernels.js';
import { rowBytes, typeOf } from './kernels/types.js';
import { align } from './plan.js';

export interface Timed {
  /** Quantization type of the weights: ggml's type id. */
  type: number;
  cols: number;
  /** Maximum size of the weights. */
  bytes: number;
}

export const kTokens = 64;
const kFewRows = 64;
const kLongMs = 10;
const kTimes = 3;
const kMaxTimes = 64;
/** Resolution of performance.now() in pages. */
export const kClockMs = 0.1;
/**
 * How much faster int8 activations must be. They change results slightly, so noise must not decide
 * whether they are used.
 */
const kCodedMargin = 1.1;
const kNone: Coded = { gemv: false, gemm: false };
const kAll: Coded = { gemv: true, gemm: true };
const kCodedCols = 2048;
/** Bytes of the weights that int8 activations are measured with, and of everything together. */
const kCodedBytes = 4 << 20;
const kMaxCoded = 3 * kCodedBytes;

/**
 * Measures for which matrix multiplications int8 activations are faster. The measurement does not
 * depend on the budget `bytes`, except that a budget too small for it gets no int8 activations.
 */
export async function timeCoded(
  device: GPUDevice,
  kernels: Kernels,
  type: number,
  bytes: number,
): Promise<Coded> {
  const before = kernels.coded;
  if (!kernels.features.dots || !typeOf(type).coded || bytes < kMaxCoded) return before;
  const bench = await Bench.open(device, kernels, { type, cols: kCodedCols, bytes: kCodedBytes });
  try {
    const [plain, codes] = [await bench.products(kNone), await bench.products(kAll)];
    return {
      gemv: kCodedMargin * codes.gemv < plain.gemv,
      gemm: kCodedMargin * codes.gemm < plain.gemm,
    };
  } finally {
    kernels.coded = before;
    bench.close();
  }
}

/** A matrix, and buffers for what it is multiplied with. */
export class Bench {
  readonly #device: GPUDevice;
  readonly #kernels: Kernels;
  readonly #timed: Timed;
  readonly #made: GPUBuffer[] = [];
  readonly width: number;
  readonly #rows: number;
  readonly weights: GPUBuffer;
  readonly memory: Memory;
  readonly #back: GPUBuffer;
  /** Milliseconds of an empty pass; 0: products() has not measured it. */
  pass = 0;

  private constructor(device: GPUDevice, kernels: Kernels, timed: Timed) {
    this.#device = device;
    this.#kernels = kernels;
    this.#timed = timed;
    const { type, cols, bytes } = timed;
    const { maxStorageBufferBindingSize, maxBufferSize } = device.limits;
    const room = Math.min(bytes, maxStorageBufferBindingSize, maxBufferSize);
    this.width = rowBytes(type, cols);
    this.#rows = Math.max(
      1,
      Math.min(Math.floor(room / this.width), Math.floor(room / (4 * kTokens)) - cols),
    );
    this.weights = this.make(
      this.#rows * this.width,
      Usage.Storage | Usage.CopyTarget | Usage.CopySource,
    );
    const arena = this.make(4 * kTokens * (cols + this.#rows), Usage.Storage | Usage.CopySource);
    this.memory = {
      arena,
      vectors: this.make(16, Usage.Storage),
      acts: this.make(actBytes(kTokens, cols), Usage.Storage),
    };
    this.#back = this.make(16, Usage.MapRead | Usage.CopyTarget);
  }

  static async open(device: GPUDevice, kernels: Kernels, timed: Timed): Promise<Bench> {
    device.pushErrorScope('out-of-memory');
    const bench = new Bench(device, kernels, timed);
    if (!(await device.popErrorScope())) return bench;
    bench.close();
    throw new Error('it does not have enough memory for the measurement');
  }

  close(): void {
    for (const buffer of this.#made) buffer.destroy();
  }

  make(size: number, usage: number): GPUBuffer {
    this.#made.push(this.#device.createBuffer({ size: align(size, 16), usage }));
    return this.#made.at(-1)!;
  }

  /** Milliseconds per row, for one token and for many. */
  async products(coded: Coded): Promise<{ gemv: number; gemm: number }> {
    this.#kernels.coded = coded;
    await this.#kernels.prepare(
      this.memory,
      (recorder) => (
        this.#product(recorder, 1, this.#rows),
        this.#product(recorder, kTokens, this.#rows)
      ),
    );
    this.pass ||= await this.time(() => {});
    return { gemv: await this.#row(1), gemm: await this.#row(kTokens) };
  }

  #product(recorder: Recorder, tokens: number, count: number): void {
    const { type, cols } = this.#timed;
    recorder.matmul({
      parts: [{ weights: { type, buffer: this.weights, offset: 0 }, rows: count, column: 0 }],
      cols,
      x: { at: 0, ld: cols },
      out: { at: kTokens * cols, ld: count },
      tokens,
    });
  }

  /** Milliseconds per row. Increases rows, then repetitions, until the time is measurable. */
  async #row(tokens: number): Promise<number> {
    for (let count = Math.min(kFewRows, this.#rows), times = 1; ;) {
      const ms = await this.time((recorder) => {
        for (let i = 0; i < times; i++) this.#product(recorder, tokens, count);
      });
      if (ms > this.pass + kLongMs || times === kMaxTimes)
        return Math.max(ms - this.pass, kClockMs) / (count * times);
      if (count < this.#rows) count = Math.min(2 * count, this.#rows);
      else times *= 2;
    }
  }

  /** Milliseconds until recorded work is done and a value is read back; the best of a few runs. */
  async time(
    record: (recorder: Recorder) => void,
    after: (encoder: GPUCommandEncoder) => void = () => {},
  ): Promise<number> {
    let best = Infinity;
    for (let i = 0; i < kTimes; i++) {
      const began = performance.now();
      const encoder = this.#device.createCommandEncoder();
      const recorder = this.#kernels.begin(encoder, this.memory);
      record(recorder);
      recorder.end();
      after(encoder);
      encoder.copyBufferToBuffer(this.memory.arena, 0, this.#back, 0, 16);
      this.#device.queue.submit([encoder.finish()]);
      await this.#back.mapAsync(Usage.MapRead);
      this.#back.unmap();
      best = Math.min(best, performance.now() - began);
      if (best > 10 * kLongMs) break;
    }
    return best;
  }
}
