// How fast a GPU is: products of one token and of many, made-up weights of one type, an empty
// pass, small dispatches, an upload, and for comparison a copy; and whether products are faster
// with activations as codes, which helps on some GPUs and hurts on others. Work grows until it
// takes long enough to be told from the clock's own steps, so that a slow GPU is timed in moments
// as well.

import { Usage } from './buffers.js';
import type { GpuTimes } from './device-selection.js';
import { actBytes, type Coded, type Kernels, type Memory, type Recorder } from './kernels.js';
import { rowBytes, typeOf } from './kernels/types.js';
import { align } from './plan.js';

export interface Timed {
  /** Of the weights: ggml's type id. */
  type: number;
  cols: number;
  /** The most that weights may take. */
  bytes: number;
}

const kTokens = 64;
const kFewRows = 64;
const kLongMs = 10;
const kTimes = 3;
const kMaxTimes = 64;
const kDispatches = 64;
/** Clocks of pages go in steps of up to this. */
const kClockMs = 0.1;
/**
 * How much faster codes must be, since every token's results differ a little with them: no toss of
 * a coin decides.
 */
const kCodedMargin = 1.1;
const kNone: Coded = { gemv: false, gemm: false };
const kAll: Coded = { gemv: true, gemm: true };
const kCodedCols = 2048;
/** Of the weights that codes are tried with, and the most that this takes in all. */
const kCodedBytes = 4 << 20;
const kMaxCoded = 3 * kCodedBytes;
/** No block of any type holds infinities when all of its bytes are this one. */
const kWeightByte = 0x3c;

/** The GPU's times, with these kernels as they are. */
export async function timeGpu(
  device: GPUDevice,
  kernels: Kernels,
  timed: Timed,
): Promise<GpuTimes & { bandwidth: number }> {
  const bench = await Bench.open(device, kernels, timed);
  try {
    return await bench.gpu();
  } finally {
    bench.close();
  }
}

/**
 * Which products these kernels compute faster with activations as codes. Every budget gets the same
 * answer, since the same is measured; one with no room for that, `bytes`, gets no codes.
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

/** A matrix and room for what it is multiplied with. */
class Bench {
  readonly #device: GPUDevice;
  readonly #kernels: Kernels;
  readonly #timed: Timed;
  readonly #made: GPUBuffer[] = [];
  readonly #width: number;
  readonly #rows: number;
  readonly #weights: GPUBuffer;
  readonly #memory: Memory;
  readonly #back: GPUBuffer;
  /** Milliseconds of an empty pass. */
  #pass = 0;

  private constructor(device: GPUDevice, kernels: Kernels, timed: Timed) {
    this.#device = device;
    this.#kernels = kernels;
    this.#timed = timed;
    const { type, cols, bytes } = timed;
    const { maxStorageBufferBindingSize, maxBufferSize } = device.limits;
    const room = Math.min(bytes, maxStorageBufferBindingSize, maxBufferSize);
    this.#width = rowBytes(type, cols);
    this.#rows = Math.max(
      1,
      Math.min(Math.floor(room / this.#width), Math.floor(room / (4 * kTokens)) - cols),
    );
    this.#weights = this.#make(
      this.#rows * this.#width,
      Usage.Storage | Usage.CopyTarget | Usage.CopySource,
    );
    const arena = this.#make(4 * kTokens * (cols + this.#rows), Usage.Storage | Usage.CopySource);
    this.#memory = {
      arena,
      vectors: this.#make(16, Usage.Storage),
      acts: this.#make(actBytes(kTokens, cols), Usage.Storage),
    };
    this.#back = this.#make(16, Usage.MapRead | Usage.CopyTarget);
  }

  static async open(device: GPUDevice, kernels: Kernels, timed: Timed): Promise<Bench> {
    device.pushErrorScope('out-of-memory');
    const bench = new Bench(device, kernels, timed);
    if (!(await device.popErrorScope())) return bench;
    bench.close();
    throw new Error('it has no memory to be measured in');
  }

  close(): void {
    for (const buffer of this.#made) buffer.destroy();
  }

  #make(size: number, usage: number): GPUBuffer {
    this.#made.push(this.#device.createBuffer({ size: align(size, 16), usage }));
    return this.#made.at(-1)!;
  }

  async gpu(): Promise<GpuTimes & { bandwidth: number }> {
    const weights = this.#weights;
    const copied = this.#make(weights.size, Usage.CopyTarget);
    const small = (recorder: Recorder): void => {
      for (let i = 0; i < kDispatches; i++)
        recorder.scale({ in: { at: 0, ld: 0 }, out: { at: 0, ld: 0 }, tokens: 1, n: 64, scale: 2 });
    };
    await this.#kernels.prepare(this.#memory, small);
    const upload = (await this.#upload()) / weights.size;
    const { gemv, gemm } = await this.products(this.#kernels.coded);
    const pass = this.#pass;
    const dispatch = Math.max((await this.#time(small)) - pass, 0) / kDispatches;
    const copy = await this.#time(
      () => {},
      (encoder) => encoder.copyBufferToBuffer(weights, 0, copied, 0, copied.size),
    );
    // A copy reads and writes.
    const bandwidth = (2 * 1000 * copied.size) / Math.max(copy - pass, kClockMs);
    return {
      pass,
      dispatch,
      byte: gemv / this.#width,
      mac: gemm / (kTokens * this.#timed.cols),
      upload,
      bandwidth,
    };
  }

  /** Milliseconds of a row, of one token and of many. */
  async products(coded: Coded): Promise<{ gemv: number; gemm: number }> {
    this.#kernels.coded = coded;
    await this.#kernels.prepare(
      this.#memory,
      (recorder) => (
        this.#product(recorder, 1, this.#rows),
        this.#product(recorder, kTokens, this.#rows)
      ),
    );
    this.#pass ||= await this.#time(() => {});
    return { gemv: await this.#row(1), gemm: await this.#row(kTokens) };
  }

  #product(recorder: Recorder, tokens: number, count: number): void {
    const { type, cols } = this.#timed;
    recorder.matmul({
      parts: [{ weights: { type, buffer: this.#weights, offset: 0 }, rows: count, column: 0 }],
      cols,
      x: { at: 0, ld: cols },
      out: { at: kTokens * cols, ld: count },
      tokens,
    });
  }

  /** Milliseconds of a row, from as many rows, and then products, as it takes to see them. */
  async #row(tokens: number): Promise<number> {
    for (let count = Math.min(kFewRows, this.#rows), times = 1; ;) {
      const ms = await this.#time((recorder) => {
        for (let i = 0; i < times; i++) this.#product(recorder, tokens, count);
      });
      if (ms > this.#pass + kLongMs || times === kMaxTimes)
        return Math.max(ms - this.#pass, kClockMs) / (count * times);
      if (count < this.#rows) count = Math.min(2 * count, this.#rows);
      else times *= 2;
    }
  }

  /** Milliseconds until what is recorded is done and a value of it is here: the best of some. */
  async #time(
    record: (recorder: Recorder) => void,
    after: (encoder: GPUCommandEncoder) => void = () => {},
  ): Promise<number> {
    let best = Infinity;
    for (let i = 0; i < kTimes; i++) {
      const began = performance.now();
      const encoder = this.#device.createCommandEncoder();
      const recorder = this.#kernels.begin(encoder, this.#memory);
      record(recorder);
      recorder.end();
      after(encoder);
      encoder.copyBufferToBuffer(this.#memory.arena, 0, this.#back, 0, 16);
      this.#device.queue.submit([encoder.finish()]);
      await this.#back.mapAsync(Usage.MapRead);
      this.#back.unmap();
      best = Math.min(best, performance.now() - began);
      if (best > 10 * kLongMs) break;
    }
    return best;
  }

  /** Fills the weights, and says how long it took. */
  async #upload(): Promise<number> {
    const piece = new Uint8Array(Math.min(this.#weights.size, 1 << 20)).fill(kWeightByte);
    const began = performance.now();
    for (let at = 0; at < this.#weights.size; at += piece.length) {
      this.#device.queue.writeBuffer(
        this.#weights,
        at,
        piece,
        0,
        Math.min(piece.length, this.#weights.size - at),
      );
    }
    await this.#device.queue.onSubmittedWorkDone();
    return Math.max(performance.now() - began, kClockMs);
  }
}
