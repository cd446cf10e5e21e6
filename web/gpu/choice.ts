// Which of the two computes what: numbers that were measured go in, a choice and its reason come out. Nothing
// is measured here, and the same numbers always give the same choice.
//
// A pass is the smallest thing that is moved: its keys and values come back with its logits, so that a prompt
// can be the card's and the tokens after it the CPU's. What is too small for the card is therefore told by the
// tokens of a pass, not by the size of a product.

import type { DeviceAdvice } from '../wire/types.js';

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
export function cardPass({ bytes, macs, layers, streamed }: Work, card: CardTimes, n: number): number {
  const compute = Math.max(bytes * card.byte, n * macs * card.mac);
  return card.pass + layers * kDispatches * card.dispatch + Math.max(compute, streamed * card.upload);
}

/** The same of the CPU: a pass of a few tokens takes no less than one of one. */
const cpuPass = ({ decode, prefill }: Measured['cpu'], n: number): number => Math.max(decode, n * prefill);

const rate = (perSecond: number): string => (perSecond >= 10 ? perSecond.toFixed(0) : perSecond.toFixed(1));

export function choose(work: Work, { cpu, card }: Measured): DeviceAdvice {
  const { batch } = work;
  const gain = (n: number): number => cpuPass(cpu, n) / cardPass(work, card, n);
  const sizes: number[] = [];
  for (let n = 1; n < batch; n *= 2) sizes.push(n);
  sizes.push(batch);
  // From the longest pass down, as far as the card is the faster one.
  let cardFrom = Infinity;
  for (const n of sizes.reverse()) {
    if (gain(n) < kMargin) break;
    cardFrom = n;
  }
  const tokens = gain(1) >= kMargin;
  if (tokens && cardFrom > 1) {
    // It is faster for one token and not for many: all or nothing.
    const prompts = kPrompt / batch;
    const onCard = prompts * cardPass(work, card, batch) + kAnswer * cardPass(work, card, 1);
    cardFrom = prompts * cpuPass(cpu, batch) + kAnswer * cpuPass(cpu, 1) > kMargin * onCard ? 1 : Infinity;
  }
  const rates = {
    wasm: { prefill: (batch * 1000) / cpuPass(cpu, batch), decode: 1000 / cpuPass(cpu, 1) },
    webgpu: { prefill: (batch * 1000) / cardPass(work, card, batch), decode: 1000 / cardPass(work, card, 1) },
  };
  const prefill = cardFrom <= batch ? 'webgpu' : 'wasm';
  const decode = cardFrom === 1 ? 'webgpu' : 'wasm';
  const figures = `prompts ${rate(rates.webgpu.prefill)} tokens/s on the card and ${rate(rates.wasm.prefill)} on the CPU, answers ${rate(rates.webgpu.decode)} and ${rate(rates.wasm.decode)}`;
  const what = prefill === decode
    ? `${prefill === 'webgpu' ? 'The card' : 'The CPU'} computes`
    : `The card computes passes of ${cardFrom} tokens and more, the CPU the others`;
  return { prefill, decode, cardFrom, reason: `${what}: measured, ${figures}.`, rates };
}

/** The CPU, because there is no choice. */
export const onlyCpu = (reason: string): DeviceAdvice => ({ prefill: 'wasm', decode: 'wasm', cardFrom: Infinity, reason });
