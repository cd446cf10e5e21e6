// Which of the two computes what: numbers that were measured go in, a choice and its reason come out. Nothing
// is measured here, and the same numbers always give the same choice.
//
// A pass is the smallest thing that is moved: its keys and values come back with its logits, so that a prompt
// can be the card's and the tokens after it the CPU's. What is too small for the card is therefore told by the
// tokens of a pass, not by the size of a product.

//
// Where the card cannot hold a model, its first layers can be the card's and the others the CPU's: what streams
// to the card is then read by the CPU, out of its own memory. A pass costs what the card takes for its layers, the
// empty pass that brings their result back among it, and the CPU's own time for its share of the weights. That must
// beat both of them alone, and is for all passes alike, since the CPU does not keep the card's layers.

import type { DeviceAdvice } from '../protocol/types.js';

/** What a model takes, and where its weights are. */
export interface Work {
  /** Bytes of weights that a pass of one token reads, and multiplications of a token. */
  bytes: number;
  macs: number;
  layers: number;
  /** Tokens of a long pass. */
  batch: number;
  /** Bytes of weights that every pass of the card has to be given. */
  streamed: number;
  /** The first layers that the card could hold, and their share of the weights; undefined: it is not to be split. */
  split?: { layers: number; share: number } | undefined;
  /** Split it must be. */
  only?: boolean;
}

export interface Measured {
  /** Milliseconds of one token, and of each token of a long prompt. */
  cpu: { decode: number; prefill: number };
  card: CardTimes;
}

/** Milliseconds of the card. */
export interface CardTimes {
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
/** How much faster the card must be, since what it takes is measured before the model is there. */
const kMargin = 1.15;
/** What is weighed where one of the two is faster for prompts, the other for tokens, and passes cannot be parted so. */
const kPrompt = 256;
const kAnswer = 128;

/** Milliseconds of a pass of n tokens on the card: weights are uploaded while earlier ones compute. */
export function cardPass(
  { bytes, macs, layers, streamed }: Work,
  card: CardTimes,
  n: number,
): number {
  const compute = Math.max(bytes * card.byte, n * macs * card.mac);
  return (
    card.pass + layers * kDispatches * card.dispatch + Math.max(compute, streamed * card.upload)
  );
}

/** Of a pass whose first layers are the card's. */
export function splitPass(work: Work, { cpu, card }: Measured, n: number): number {
  const { layers, share } = work.split!;
  const part = { ...work, bytes: work.bytes * share, macs: work.macs * share, layers, streamed: 0 };
  return cardPass(part, card, n) + (1 - share) * cpuPass(cpu, n);
}

/** The same of the CPU: a pass of a few tokens takes no less than one of one. */
const cpuPass = ({ decode, prefill }: Measured['cpu'], n: number): number =>
  Math.max(decode, n * prefill);

const rate = (perSecond: number): string =>
  perSecond >= 10 ? perSecond.toFixed(0) : perSecond.toFixed(1);

export function choose(work: Work, measured: Measured): DeviceAdvice {
  const { batch, split } = work;
  const { cpu, card } = measured;
  const onCpu = (n: number): number => cpuPass(cpu, n);
  const onCard = (n: number): number => cardPass(work, card, n);
  const both = (n: number): number => splitPass(work, measured, n);
  const cost = (prompt: number, answer: number): number =>
    (kPrompt / batch) * prompt + kAnswer * answer;
  const whole = (pass: (n: number) => number): number => cost(pass(batch), pass(1));
  const gain = (n: number): number => onCpu(n) / onCard(n);
  const sizes: number[] = [];
  for (let n = 1; n < batch; n *= 2) sizes.push(n);
  sizes.push(batch);
  // From the longest pass down, as far as the card is the faster one.
  let cardFrom = Infinity;
  for (const n of sizes.reverse()) {
    if (gain(n) < kMargin) break;
    cardFrom = n;
  }
  // It is faster for one token and not for many: all or nothing.
  if (gain(1) >= kMargin && cardFrom > 1)
    cardFrom = whole(onCpu) > kMargin * whole(onCard) ? 1 : Infinity;
  if (work.only) cardFrom = Infinity;
  const alone = (n: number): number => (cardFrom <= n ? onCard(n) : onCpu(n));
  const parted = split !== undefined && whole(alone) > kMargin * whole(both);
  if (parted) cardFrom = 1;
  const withCard = parted ? both : onCard;
  const ratesOf = (pass: (n: number) => number): { prefill: number; decode: number } => ({
    prefill: (batch * 1000) / pass(batch),
    decode: 1000 / pass(1),
  });
  const rates = { wasm: ratesOf(onCpu), webgpu: ratesOf(withCard) };
  const prefill = cardFrom <= batch ? 'webgpu' : 'wasm';
  const decode = cardFrom === 1 ? 'webgpu' : 'wasm';
  const figures = `prompts ${rate(rates.webgpu.prefill)} tokens/s ${parted ? 'so' : 'on the card'} and ${rate(rates.wasm.prefill)} on the CPU, answers ${rate(rates.webgpu.decode)} and ${rate(rates.wasm.decode)}`;
  const what = parted
    ? `The card computes the first ${split.layers} of ${work.layers} layers, the CPU the others`
    : prefill === decode
      ? `${prefill === 'webgpu' ? 'The card' : 'The CPU'} computes`
      : `The card computes passes of ${cardFrom} tokens and more, the CPU the others`;
  return {
    prefill,
    decode,
    cardFrom,
    ...(parted && { gpuLayers: split.layers }),
    reason: `${what}: measured, ${figures}.`,
    rates,
  };
}

/** The CPU, because there is no choice. */
export const onlyCpu = (reason: string): DeviceAdvice => ({
  prefill: 'wasm',
  decode: 'wasm',
  cardFrom: Infinity,
  reason,
});
