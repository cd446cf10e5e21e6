// Measures the speed of a GPU for device 'auto': matrix multiplications (timing.ts), an empty pass,
// small dispatches, an upload and a copy.

import { Usage } from './buffers.js';
import type { GpuTimes } from './device-selection.js';
import type { Kernels, Recorder } from './kernels.js';
import { kClockMs, kTokens, type Bench, type Timed } from './timing.js';

const kDispatches = 64;
/** Blocks whose bytes all have this value contain no infinities, in every quantization type. */
const kWeightByte = 0x3c;

/** Times of the GPU, with the kernels' current settings. Bandwidth is in bytes per second. */
export async function timeGpu(
  { open }: { open: typeof Bench.open },
  device: GPUDevice,
  kernels: Kernels,
  timed: Timed,
): Promise<GpuTimes & { bandwidth: number }> {
  const bench = await open(device, kernels, timed);
  try {
    return await measured(bench, device, kernels, timed);
  } finally {
    bench.close();
  }
}

async function measured(
  bench: Bench,
  { queue }: GPUDevice,
  kernels: Kernels,
  { cols }: Timed,
): Promise<GpuTimes & { bandwidth: number }> {
  const { memory, weights } = bench;
  const copied = bench.make(weights.size, Usage.CopyTarget);
  const small = (recorder: Recorder): void => {
    for (let i = 0; i < kDispatches; i++)
      recorder.scale({ in: { at: 0, ld: 0 }, out: { at: 0, ld: 0 }, tokens: 1, n: 64, scale: 2 });
  };
  await kernels.prepare(memory, small);
  const upload = (await uploadMs(queue, weights)) / weights.size;
  const { gemv, gemm } = await bench.products(kernels.coded);
  const { pass } = bench;
  const dispatch = Math.max((await bench.time(small)) - pass, 0) / kDispatches;
  const copy = await bench.time(
    () => {},
    (encoder) => encoder.copyBufferToBuffer(weights, 0, copied, 0, copied.size),
  );
  // A copy both reads and writes.
  const bandwidth = (2 * 1000 * copied.size) / Math.max(copy - pass, kClockMs);
  return {
    pass,
    dispatch,
    byte: gemv / bench.width,
    mac: gemm / (kTokens * cols),
    upload,
    bandwidth,
  };
}

/** Uploads the weights and returns the milliseconds that it took. */
async function uploadMs(queue: GPUQueue, weights: GPUBuffer): Promise<number> {
  const piece = new Uint8Array(Math.min(weights.size, 1 << 20)).fill(kWeightByte);
  const began = performance.now();
  for (let at = 0; at < weights.size; at += piece.length)
    queue.writeBuffer(weights, at, piece, 0, Math.min(piece.length, weights.size - at));
  await queue.onSubmittedWorkDone();
  return Math.max(performance.now() - began, kClockMs);
}
