// What the page does: our products and the plain ones on the same weights, in turns.
import { Kernels, type Memory, type Recorder } from '../../../web/gpu/kernels.js';
import { pasted, type Variant } from '../../../web/gpu/kernels/shaders.js';
import { rowBytes, typeIds, typeOf } from '../../../web/gpu/kernels/types.js';
import weightsText from '../../../kernels/wgsl/weights.wgsl';
import plainText from './plain.wgsl';

export interface Shape { type: string; rows: number; cols: number; tokens: number; times: number }
/** Milliseconds of one, and how far the two results are apart. */
export interface Times { ours: number; plain: number; nmse: number }

const kStorage = 0x80, kCopySource = 0x4, kCopyTarget = 0x8, kMapRead = 0x1;
const kLongMs = 50; // what can be told from a pass that has nothing to do
const kMost = 256;  // products of a pass
const kWeightByte = 0x3c; // no block of any type holds infinities when all of its bytes are this one

let device: Promise<GPUDevice> | undefined;

async function open(): Promise<GPUDevice> {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new Error('no adapter');
  const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
  return adapter.requestDevice({
    requiredFeatures: adapter.features.has('subgroups') ? ['subgroups'] : [],
    requiredLimits: { maxBufferSize, maxStorageBufferBindingSize },
  });
}

export async function time({ type: name, rows, cols, tokens, times }: Shape): Promise<Times> {
  const on = await (device ??= open());
  const kernels = await Kernels.create(on);
  const type = typeIds[name]!;
  const width = rowBytes(type, cols);
  const make = (size: number, usage: number): GPUBuffer => on.createBuffer({ size: Math.ceil(size / 16) * 16, usage });
  const bytes = new Uint8Array(Math.ceil(rows * width / 16) * 16).fill(kWeightByte);
  const weights = make(bytes.length, kStorage | kCopyTarget);
  on.queue.writeBuffer(weights, 0, bytes);
  const [x, first, second] = [0, cols * tokens, (cols + rows) * tokens];
  const arena = make(4 * tokens * (cols + 2 * rows), kStorage | kCopySource | kCopyTarget);
  on.queue.writeBuffer(arena, 0, Float32Array.from({ length: cols * tokens }, (_, i) => Math.sin(i)));
  const memory: Memory = { arena, vectors: make(16, kStorage) };
  const back = make(8 * tokens * rows, kMapRead | kCopyTarget);

  const ours = (to: Recorder): void => to.matmul({
    parts: [{ weights: { type, buffer: weights, offset: 0 }, rows, column: 0 }], cols, tokens, x: { at: x, ld: cols }, out: { at: first, ld: rows },
  });
  const variant: Variant = {
    name: `plain ${name}`, texts: [pasted(weightsText, 1), pasted(typeOf(type).decode, 1), plainText],
    constants: { ALIGNED: width % 4 === 0 && typeOf(type).bytes % (typeOf(type).values > 1 ? 4 : 1) === 0 }, bound: 1,
  };
  const plain = (to: Recorder): void =>
    to.run(variant, { x, x_ld: cols, y: second, y_ld: rows, units: cols / 8, row_bytes: width, rows }, [Math.ceil(rows / 64), tokens], [{ buffer: weights }]);
  await kernels.prepare(memory, (to) => (ours(to), plain(to)));
  const run = async (record: (to: Recorder) => void): Promise<number> => {
    const began = performance.now();
    const encoder = on.createCommandEncoder();
    const recorder = kernels.begin(encoder, memory);
    record(recorder);
    recorder.end();
    encoder.copyBufferToBuffer(arena, 4 * first, back, 0, 8 * tokens * rows);
    on.queue.submit([encoder.finish()]);
    await back.mapAsync(kMapRead);
    back.unmap();
    return performance.now() - began;
  };
  /** How many products of it last long enough. */
  const enough = async (record: (to: Recorder) => void): Promise<number> => {
    for (let n = 1; ; n *= 2) if (n === kMost || (await run((to) => repeat(to, record, n))) > kLongMs + empty) return n;
  };
  const repeat = (to: Recorder, record: (to: Recorder) => void, n: number): void => {
    for (let i = 0; i < n; i++) record(to);
  };
  let empty = await run(() => {});
  const counts = [await enough(ours), await enough(plain)] as const;
  const best: [number, number] = [Infinity, Infinity];
  for (let i = 0; i < times; i++) {
    empty = Math.min(empty, await run(() => {}));
    best[0] = Math.min(best[0], await run((to) => repeat(to, ours, counts[0])));
    best[1] = Math.min(best[1], await run((to) => repeat(to, plain, counts[1])));
  }
  await back.mapAsync(kMapRead);
  const values = new Float32Array(back.getMappedRange().slice(0));
  const n = tokens * rows;
  let [apart, size] = [0, 0];
  for (let i = 0; i < n; i++) {
    apart += (values[i]! - values[n + i]!) ** 2;
    size += values[n + i]! ** 2;
  }
  kernels.destroy();
  for (const buffer of [weights, arena, memory.vectors, back]) buffer.destroy();
  return { ours: (best[0] - empty) / counts[0], plain: (best[1] - empty) / counts[1], nmse: apart / size };
}
