// How fast a card is: products of one token and of many, made-up weights of one type, an empty pass, small
// dispatches, an upload, and for comparison a copy. Work grows until it takes long enough to be told from the clock's own steps, so
// that a slow card is timed in moments as well.

import { Usage } from './buffers.js';
import type { CardTimes } from './choice.js';
import { Kernels, type Memory, type Recorder } from './kernels.js';
import { rowBytes } from './kernels/types.js';
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
const kDispatches = 64;
/** No block of any type holds infinities when all of its bytes are this one. */
const kWeightByte = 0x3c;

export async function timeCard(device: GPUDevice, { type, cols, bytes }: Timed): Promise<CardTimes & { bandwidth: number }> {
  const kernels = await Kernels.create(device, { subgroups: device.features.has('subgroups' as GPUFeatureName) });
  const { maxStorageBufferBindingSize, maxBufferSize } = device.limits;
  const room = Math.min(bytes, maxStorageBufferBindingSize, maxBufferSize);
  const width = rowBytes(type, cols);
  const rows = Math.max(1, Math.min(Math.floor(room / width), Math.floor(room / (4 * kTokens)) - cols));
  const made: GPUBuffer[] = [];
  const make = (size: number, usage: number): GPUBuffer => {
    made.push(device.createBuffer({ size: align(size, 16), usage }));
    return made.at(-1)!;
  };
  device.pushErrorScope('out-of-memory');
  const weights = make(rows * width, Usage.Storage | Usage.CopyTarget | Usage.CopySource);
  const arena = make(4 * kTokens * (cols + rows), Usage.Storage | Usage.CopySource);
  const vectors = make(16, Usage.Storage);
  const back = make(16, Usage.MapRead | Usage.CopyTarget);
  const copied = make(weights.size, Usage.CopyTarget);
  if (await device.popErrorScope()) throw new Error('it has no memory to be measured in');
  const memory: Memory = { arena, vectors };

  const product = (recorder: Recorder, tokens: number, count: number): void => recorder.matmul({
    parts: [{ weights: { type, buffer: weights, offset: 0 }, rows: count, column: 0 }],
    cols, x: { at: 0, ld: cols }, out: { at: kTokens * cols, ld: count }, tokens,
  });
  const small = (recorder: Recorder): void => {
    for (let i = 0; i < kDispatches; i++) recorder.scale({ in: { at: 0, ld: 0 }, out: { at: 0, ld: 0 }, tokens: 1, n: 64, scale: 2 });
  };
  /** Milliseconds until what is recorded is done and a value of it is here: the best of some. */
  const time = async (record: (recorder: Recorder) => void, after: (encoder: GPUCommandEncoder) => void = () => {}): Promise<number> => {
    let best = Infinity;
    for (let i = 0; i < kTimes; i++) {
      const began = performance.now();
      const encoder = device.createCommandEncoder();
      const recorder = kernels.begin(encoder, memory);
      record(recorder);
      recorder.end();
      after(encoder);
      encoder.copyBufferToBuffer(arena, 0, back, 0, 16);
      device.queue.submit([encoder.finish()]);
      await back.mapAsync(Usage.MapRead);
      back.unmap();
      best = Math.min(best, performance.now() - began);
      if (best > 10 * kLongMs) break;
    }
    return best;
  };
  /** Milliseconds of a row, from as many rows as it takes to see them. */
  const ofRow = async (tokens: number): Promise<number> => {
    for (let count = Math.min(kFewRows, rows); ; count = Math.min(2 * count, rows)) {
      const ms = await time((recorder) => product(recorder, tokens, count));
      if (ms > pass + kLongMs || count === rows) return Math.max(ms - pass, kClockMs) / count;
    }
  };

  let pass = 0;
  try {
    await kernels.prepare(memory, (recorder) => (product(recorder, 1, rows), product(recorder, kTokens, rows), small(recorder)));
    const upload = (await timeUpload(device, weights)) / weights.size;
    pass = await time(() => {});
    const dispatch = Math.max((await time(small)) - pass, 0) / kDispatches;
    const byte = (await ofRow(1)) / width;
    const mac = (await ofRow(kTokens)) / (kTokens * cols);
    const copy = await time(() => {}, (encoder) => encoder.copyBufferToBuffer(weights, 0, copied, 0, copied.size));
    // A copy reads and writes.
    const bandwidth = (2 * 1000 * copied.size) / Math.max(copy - pass, kClockMs);
    return { pass, dispatch, byte, mac, upload, bandwidth };
  } finally {
    kernels.destroy();
    for (const buffer of made) buffer.destroy();
  }
}

/** Clocks of pages go in steps of up to this. */
const kClockMs = 0.1;

/** Fills the weights, and says how long it took. */
async function timeUpload(device: GPUDevice, weights: GPUBuffer): Promise<number> {
  const piece = new Uint8Array(Math.min(weights.size, 1 << 20)).fill(kWeightByte);
  const began = performance.now();
  for (let at = 0; at < weights.size; at += piece.length) {
    device.queue.writeBuffer(weights, at, piece, 0, Math.min(piece.length, weights.size - at));
  }
  await device.queue.onSubmittedWorkDone();
  return Math.max(performance.now() - began, kClockMs);
}
