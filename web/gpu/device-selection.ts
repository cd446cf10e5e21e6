// Selects CPU or GPU from measured times, and gives the reason. Nothing is measured here: the same
// numbers always give the same choice.
//
// The unit of selection is a forward pass. New KV cache rows are read back with each pass, so the
// GPU can process prompts while the CPU generates tokens. Whether a pass is large enough for the
// GPU depends on its number of tokens (gpuMinBatch).
//
// If a model does not fit on the GPU, its first layers can run there and the others on the CPU,
// which reads their weights from its own memory instead of uploading them. Such a pass costs the
// GPU's time for its layers, an empty pass to read the result back, and the CPU's time for its
// share of the weights. A split must be faster than both devices alone. It applies to all passes,
// because the CPU does not keep the weights of the GPU's layers.

import type { DeviceSelection } from '../protocol/types.js';

/** Work of a model's forward pass. */
export interface Work {
  /** Bytes of weights that a pass of one token reads, and multiply-accumulates per token. */
  bytes: number;
  macs: number;
  layers: number;
  /** Tokens of a prefill batch. */
  batch: number;
  /** Bytes of weights that every pass uploads to the GPU. */
  streamed: number;
  /** First layers that fit on the GPU, and their share of the weights; undefined: do not split. */
  split?: { layers: number; share: number } | undefined;
  /** The caller requires the split. */
  only?: boolean;
}

export interface Measured {
  /** Milliseconds per token, for decoding and for prefill. */
  cpu: { decode: number; prefill: number };
  gpu: GpuTimes;
}

/** Measured times of the GPU, in milliseconds. */
export interface GpuTimes {
  /** An empty pass, from submit until its result is read back. */
  pass: number;
  /** Per dispatch. */
  dispatch: number;
  /** Per byte of weights, with one token. */
  byte: number;
  /** Per multiply-accumulate, with many tokens. */
  mac: number;
  /** Per byte uploaded. */
  upload: number;
}

const kDispatches = 8; // per layer
/** How much faster the GPU must be. The margin is for errors of the estimate. */
const kMargin = 1.15;
/**
 * Typical request, in tokens. It decides if one device is faster for prompts and the other for
 * decoding, but passes cannot be divided between them.
 */
const kPrompt = 256;
const kAnswer = 128;

/**
 * Milliseconds of a pass of n tokens on the GPU. Uploads overlap with computing earlier weights.
 */
export function gpuPass({ bytes, macs, layers, streamed }: Work, gpu: GpuTimes, n: number): number {
  const compute = Math.max(bytes * gpu.byte, n * macs * gpu.mac);
  return gpu.pass + layers * kDispatches * gpu.dispatch + Math.max(compute, streamed * gpu.upload);
}

/** Milliseconds of a pass of n tokens whose first layers run on the GPU. */
export function splitPass(work: Work, { cpu, gpu }: Measured, n: number): number {
  const { layers, share } = work.split!;
  const part = { ...work, bytes: work.bytes * share, macs: work.macs * share, layers, streamed: 0 };
  return gpuPass(part, gpu, n) + (1 - share) * cpuPass(cpu, n);
}

/** Milliseconds of a pass of n tokens on the CPU; at least as long as one token takes. */
const cpuPass = ({ decode, prefill }: Measured['cpu'], n: number): number =>
  Math.max(decode, n * prefill);

const rate = (perSecond: number): string =>
  perSecond >= 10 ? perSecond.toFixed(0) : perSecond.toFixed(1);

export function choose(work: Work, measured: Measured): DeviceSelection {
  const { batch, split } = work;
  const { cpu, gpu } = measured;
  const onCpu = (n: number): number => cpuPass(cpu, n);
  const onGpu = (n: number): number => gpuPass(work, gpu, n);
  const both = (n: number): number => splitPass(work, measured, n);
  const cost = (prompt: number, answer: number): number =>
    (kPrompt / batch) * prompt + kAnswer * answer;
  const whole = (pass: (n: number) => number): number => cost(pass(batch), pass(1));
  const gain = (n: number): number => onCpu(n) / onGpu(n);
  const sizes: number[] = [];
  for (let n = 1; n < batch; n *= 2) sizes.push(n);
  sizes.push(batch);
  // From the largest batch down, as long as the GPU is faster.
  let gpuMinBatch = Infinity;
  for (const n of sizes.reverse()) {
    if (gain(n) < kMargin) break;
    gpuMinBatch = n;
  }
  // The GPU is faster for one token but not for many, which gpuMinBatch cannot express.
  if (gain(1) >= kMargin && gpuMinBatch > 1)
    gpuMinBatch = whole(onCpu) > kMargin * whole(onGpu) ? 1 : Infinity;
  if (work.only) gpuMinBatch = Infinity;
  const alone = (n: number): number => (gpuMinBatch <= n ? onGpu(n) : onCpu(n));
  const parted = split !== undefined && whole(alone) > kMargin * whole(both);
  if (parted) gpuMinBatch = 1;
  const withGpu = parted ? both : onGpu;
  const ratesOf = (pass: (n: number) => number): { prefill: number; decode: number } => ({
    prefill: (batch * 1000) / pass(batch),
    decode: 1000 / pass(1),
  });
  const rates = { wasm: ratesOf(onCpu), webgpu: ratesOf(withGpu) };
  const prefill = gpuMinBatch <= batch ? 'webgpu' : 'wasm';
  const decode = gpuMinBatch === 1 ? 'webgpu' : 'wasm';
  const figures =
    `prefill ${rate(rates.webgpu.prefill)} tokens/s ${parted ? 'this way' : 'on the GPU'} and ` +
    `${rate(rates.wasm.prefill)} on the CPU, decode ${rate(rates.webgpu.decode)} and ` +
    `${rate(rates.wasm.decode)}`;
  const what = parted
    ? `The GPU computes the first ${split.layers} of ${work.layers} layers, the CPU the others`
    : prefill === decode
      ? `${prefill === 'webgpu' ? 'The GPU' : 'The CPU'} computes`
      : `The GPU computes batches of ${gpuMinBatch} tokens and more, the CPU smaller ones`;
  return {
    prefill,
    decode,
    gpuMinBatch: gpuMinBatch,
    ...(parted && { gpuLayers: split.layers }),
    reason: `${what}: measured, ${figures}.`,
    rates,
  };
}

/** A selection of the CPU, with the reason why the GPU is not possible. */
export const onlyCpu = (reason: string): DeviceSelection => ({
  prefill: 'wasm',
  decode: 'wasm',
  gpuMinBatch: Infinity,
  reason,
});
