// The page of bench:gpu. Runs our matrix multiplication with f32 activations and with int8 codes,
// and a naive shader, on the same weights, in turns.
import { actBytes, Kernels, type Memory, type Recorder } from '../../../web/gpu/kernels.js';
import { pasted, type Variant } from '../../../web/gpu/kernels/shaders.js';
import { decoderOf, rowBytes, typeIds, typeOf } from '../../../web/gpu/kernels/types.js';
import weightsText from '../../../kernels/wgsl/weights.wgsl';
import plainText from './plain.wgsl';

export interface Shape {
  type: string;
  rows: number;
  cols: number;
  tokens: number;
  times: number;
}
/** Milliseconds of each variant, and the NMSE of ours and of codes against the naive shader. */
export interface Times {
  ours: number;
  codes: number | null;
  plain: number;
  nmse: [ours: number, codes: number];
}

const kStorage = 0x80,
  kCopySource = 0x4,
  kCopyTarget = 0x8,
  kMapRead = 0x1;
const kLongMs = 30; // long enough to be distinguished from an empty pass
const kMax = 256; // multiplications in one pass
// A block of any type that is filled with this byte decodes to finite values.
const kWeightByte = 0x3c;

let opened: Promise<[device: GPUDevice, ours: Kernels, codes: Kernels]> | undefined;

async function open(): Promise<[GPUDevice, Kernels, Kernels]> {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new Error('no adapter');
  const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
  const wanted: GPUFeatureName[] = ['subgroups', 'shader-f16'];
  const device = await adapter.requestDevice({
    requiredFeatures: wanted.filter((feature) => adapter.features.has(feature)),
    requiredLimits: { maxBufferSize, maxStorageBufferBindingSize },
  });
  return [
    device,
    await Kernels.create(device),
    await Kernels.create(device, { coded: { gemv: true, gemm: true } }),
  ];
}

/** Bytes of the weights of a shape. */
export const weightBytes = ({ type, rows, cols }: Shape): number =>
  rows * rowBytes(typeIds[type]!, cols);

type Record = (to: Recorder) => void;

/** Weights, activations, and an output area for each variant. */
class Bench {
  readonly #device: GPUDevice;
  readonly #shape: Shape;
  readonly #type: number;
  readonly #width: number;
  readonly #weights: GPUBuffer;
  readonly #memory: Memory;
  readonly #back: GPUBuffer;
  /** Milliseconds of an empty pass. */
  #empty = Infinity;

  constructor(device: GPUDevice, shape: Shape) {
    this.#device = device;
    this.#shape = shape;
    const { rows, cols, tokens } = shape;
    this.#type = typeIds[shape.type]!;
    this.#width = rowBytes(this.#type, cols);
    const make = (size: number, usage: number): GPUBuffer =>
      device.createBuffer({ size: Math.ceil(size / 16) * 16, usage });
    const bytes = new Uint8Array(Math.ceil((rows * this.#width) / 16) * 16).fill(kWeightByte);
    this.#weights = make(bytes.length, kStorage | kCopyTarget);
    device.queue.writeBuffer(this.#weights, 0, bytes);
    const arena = make(4 * tokens * (cols + 3 * rows), kStorage | kCopySource | kCopyTarget);
    device.queue.writeBuffer(
      arena,
      0,
      Float32Array.from({ length: cols * tokens }, (_, i) => 1 + Math.sin(i)),
    ); // keeps the sums away from 0
    this.#memory = {
      arena,
      vectors: make(16, kStorage),
      acts: make(actBytes(tokens, cols), kStorage),
    };
    this.#back = make(12 * tokens * rows, kMapRead | kCopyTarget);
  }

  #place(way: number): number {
    return this.#shape.tokens * (this.#shape.cols + way * this.#shape.rows);
  }

  ours(way: number): Record {
    const { rows, cols, tokens } = this.#shape;
    const weights = { type: this.#type, buffer: this.#weights, offset: 0 };
    return (to) =>
      to.matmul({
        parts: [{ weights, rows, column: 0 }],
        cols,
        tokens,
        x: { at: 0, ld: cols },
        out: { at: this.#place(way), ld: rows },
      });
  }

  plain(way: number): Record {
    const { type, rows, cols, tokens } = this.#shape;
    const { bytes, values } = typeOf(this.#type);
    const decode = decoderOf(typeOf(this.#type));
    const variant: Variant = {
      name: `plain ${type}`,
      texts: [pasted(weightsText, [0]), pasted(decode, [0]), plainText],
      constants: { ALIGNED: this.#width % 4 === 0 && bytes % (values > 1 ? 4 : 1) === 0 },
      bound: 1,
    };
    const params = {
      x: 0,
      x_ld: cols,
      y: this.#place(way),
      y_ld: rows,
      units: cols / 8,
      row_bytes: this.#width,
      rows,
    };
    return (to) =>
      to.run(variant, params, [Math.ceil(rows / 64), tokens], [{ buffer: this.#weights }]);
  }

  prepare(kernels: Kernels, record: Record): Promise<void> {
    return kernels.prepare(this.#memory, record);
  }

  /** Milliseconds of one pass of `count` multiplications. */
  async #run(kernels: Kernels, record: Record, count: number): Promise<number> {
    const began = performance.now();
    const encoder = this.#device.createCommandEncoder();
    const recorder = kernels.begin(encoder, this.#memory);
    for (let i = 0; i < count; i++) record(recorder);
    recorder.end();
    encoder.copyBufferToBuffer(this.#memory.arena, 0, this.#back, 0, 16);
    this.#device.queue.submit([encoder.finish()]);
    await this.#back.mapAsync(kMapRead);
    this.#back.unmap();
    return performance.now() - began;
  }

  /**
   * Milliseconds of one multiplication of each variant. Variants run in turns, in passes of at
   * least kLongMs; the best of `times` rounds counts.
   */
  async time(ways: [Kernels, Record][]): Promise<number[]> {
    const { times } = this.#shape;
    const [kernels] = ways[0]!;
    this.#empty = await this.#run(kernels, () => {}, 0);
    const counts: number[] = [];
    for (const way of ways) {
      let n = 1;
      while (n < kMax && (await this.#run(...way, n)) < kLongMs + this.#empty) n *= 2;
      counts.push(n);
    }
    const best = ways.map(() => Infinity);
    for (let i = 0; i < times; i++) {
      this.#empty = Math.min(this.#empty, await this.#run(kernels, () => {}, 0));
      for (const [w, way] of ways.entries())
        best[w] = Math.min(best[w]!, await this.#run(...way, counts[w]!));
    }
    return best.map((ms, w) => (ms - this.#empty) / counts[w]!);
  }

  /** NMSE of each variant's results against those of the last. */
  async apart(ways: number): Promise<number[]> {
    const n = this.#shape.tokens * this.#shape.rows;
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.#memory.arena, 4 * this.#place(0), this.#back, 0, 4 * ways * n);
    this.#device.queue.submit([encoder.finish()]);
    await this.#back.mapAsync(kMapRead);
    const values = new Float32Array(this.#back.getMappedRange(0, 4 * ways * n).slice(0));
    const right = values.subarray((ways - 1) * n);
    const size = right.reduce((sum, value) => sum + value ** 2, 0);
    return Array.from(
      { length: ways - 1 },
      (_, w) => right.reduce((sum, value, i) => sum + (value - values[w * n + i]!) ** 2, 0) / size,
    );
  }

  close(): void {
    for (const buffer of [
      this.#weights,
      this.#memory.arena,
      this.#memory.vectors,
      this.#memory.acts!,
      this.#back,
    ])
      buffer.destroy();
  }
}

export async function time(shape: Shape): Promise<Times> {
  const [device, kernels, coded] = await (opened ??= open());
  const bench = new Bench(device, shape);
  const withCodes = coded.features.dots && typeOf(typeIds[shape.type]!).coded;
  const ways: [Kernels, Record][] = [[kernels, bench.ours(0)]];
  if (withCodes) ways.push([coded, bench.ours(1)]);
  ways.push([kernels, bench.plain(ways.length)]);
  await Promise.all(ways.map((way) => bench.prepare(...way)));
  const ms = await bench.time(ways);
  const apart = await bench.apart(ways.length);
  bench.close();
  return {
    ours: ms[0]!,
    codes: withCodes ? ms[1]! : null,
    plain: ms.at(-1)!,
    nmse: [apart[0]!, apart[1] ?? 0],
  };
}
