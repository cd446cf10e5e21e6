// Which of the two computes what: numbers that were measured go in, a choice and its reason come
// out. Nothing is measured here, and the same numbers always give the same choice.
//
// A pass is the smallest thing that is moved: its keys and values come back with its logits, so
// that a prompt can be the GPU's and the tokens after it the CPU's. What is too small for the GPU
// is therefore told by the tokens of a pass, not by the size of a product.

//
// Where the GPU cannot hold a model, its first layers can be the GPU's and the others the CPU's:
// what streams to the GPU is then read by the CPU, out of its own memory. A pass costs what the
// GPU takes for its layers, the empty pass that brings their result back among it, and the CPU's
// own time for its share of the weights. That must beat both of them alone, and is for all passes
// alike, since the CPU does not keep the GPU's layers.

import type { DeviceSelection } from '../protocol/types.js';

/** What a model takes, and where its weights are. */
export interface Work {
  /** Bytes of weights that a pass of one token reads, and multiplications of a token. */
  bytes: number;
  macs: number;
  layers: number;
  /** Tokens of a long pass. */
  batch: number;
  /** Bytes of weights that every pass of the GPU has to be given. */
  streamed: number;
  /**
   * The first layers that the GPU could hold, and their share of the weights; undefined: it is not
   * to be split.
   */
  split?: { layers: number; share: number } | undefined;
  /** Split it must be. */
  only?: boolean;
}

export interface Measured {
  /** Milliseconds of one token, and of each token of a long prompt. */
  cpu: { decode: number; prefill: number };
  gpu: GpuTimes;
}

/** Milliseconds of the GPU. */
export interface GpuTimes {
  /** Of a pass that has nothing to do, from its submit until its result is there. */
  pass: number;
  /** Of each dispatch. */
  dispatch: number;
  /** Of each byte of weights that one token is multiplied with. */
  byte: number;
  /** Of each multiplication where there are many tokens. */
  mac: number;
  /** Of each byte that is given to it. */
  upload: number;
}

const kDispatches = 8; // of a layer
/** How much faster the GPU must be, since what it takes is measured before the model is there. */
const kMargin = 1.15;
/**
 * What is weighed where one of the two is faster for prompts, the other for tokens, and passes
 * cannot be parted so.
 */
const kPrompt = 256;
const kAnswer = 128;

/**
 * Milliseconds of a pass of n tokens on the GPU: weights are uploaded while earlier ones compute.
 */
export function gpuPass({ bytes, macs, layers, streamed }: Work, gpu: GpuTimes, n: number): number {
  const compute = Math.max(bytes * gpu.byte, n * macs * gpu.mac);
  return gpu.pass + layers * kDispatches * gpu.dispatch + Math.max(compute, streamed * gpu.upload);
}

/** Of a pass whose first layers are the GPU's. */
export function splitPass(work: Work, { cpu, gpu }: Measured, n: number): number {
  const { layers, share } = work.split!;
  const part = { ...work, bytes: work.bytes * share, macs: work.macs * share, layers, streamed: 0 };
  return gpuPass(part, gpu, n) + (1 - share) * cpuPass(cpu, n);
}

/** The same of the CPU: a pass of a few tokens takes no less than one of one. */
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
  // From the longest pass down, as far as the GPU is the faster one.
  let gpuMinBatch = Infinity;
  for (const n of sizes.reverse()) {
    if (gain(n) < kMargin) break;
    gpuMinBatch = n;
  }
  // It is faster for one token and not for many: all or nothing.
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
    `prompts ${rate(rates.webgpu.prefill)} tokens/s ${parted ? 'so' : 'on the GPU'} and ` +
    `${rate(rates.wasm.prefill)} on the CPU, answers ${rate(rates.webgpu.decode)} and ` +
    `${rate(rates.wasm.decode)}`;
  const what = parted
    ? `The GPU computes the first ${split.layers} of ${work.layers} layers, the CPU the others`
    : prefill === decode
      ? `${prefill === 'webgpu' ? 'The GPU' : 'The CPU'} computes`
      : `The GPU computes passes of ${gpuMinBatch} tokens and more, the CPU the others`;
  return {
    prefill,
    decode,
    gpuMinBatch: gpuMinBatch,
    ...(parted && { gpuLayers: split.layers }),
    reason: `${what}: measured, ${figures}.`,
    rates,
  };
}

/** The CPU, because there is no choice. */
export const onlyCpu = (reason: string): DeviceSelection => ({
  prefill: 'wasm',
  decode: 'wasm',
  gpuMinBatch: Infinity,
  reason,
});
