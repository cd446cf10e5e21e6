// Kernels that carry state from token to token, in gpu-recurrent.js: convolutions over time, linear
// recurrences over a matrix per head, and Mamba's selective scan. One dispatch takes all tokens of a
// batch through its channels.

import type { Place } from './calls.js';
import { none, type Dispatcher } from './dispatcher.js';
import type { Values } from './shaders.js';
import convolveText from '../../../kernels/wgsl/convolve.wgsl';
import decayText from '../../../kernels/wgsl/decay.wgsl';
import recurrenceText from '../../../kernels/wgsl/recurrence.wgsl';
import scanText from '../../../kernels/wgsl/scan.wgsl';

/** Where the state is in the arena. */
export interface Carries {
  before: number;
  after: number; // may be `before`
  ended?: number | undefined; // if the float there is not 0, states stay as they are
  /** Checkpoints of the state: after `first` tokens, then after each `every` more; 0: none. */
  copies: { at: number; step: number; first: number; every: number };
}

const carried = ({ before, after, ended, copies }: Carries): Values => ({
  before,
  after,
  copies: copies.at,
  step: copies.step,
  due: copies.first,
  every: copies.every,
  ended: none(ended),
});

const kSilu = 1; // model::Unary

/** A causal convolution over time of each of n channels, in place. */
export interface Convolve extends Carries {
  x: Place;
  tokens: number;
  n: number;
  unary: number; // none or SiLU
  taps: number;
  weights: number;
  bias?: number | undefined; // vectors [taps][n], [n]
} // state: [taps - 1][n], the last inputs, the oldest first

export function convolve(to: Dispatcher, op: Convolve): void {
  to.run(
    {
      name: 'convolve',
      texts: [convolveText],
      constants: { TAPS: op.taps },
      words: { RESULT: op.unary === kSilu ? 'silu(sum)' : 'sum' },
    },
    {
      x: op.x.at,
      x_ld: op.x.ld,
      n: op.n,
      tokens: op.tokens,
      weights: op.weights,
      bias: none(op.bias),
      ...carried(op),
    },
    [Math.ceil(op.n / 64)],
  );
}

/** in = softplus(in + bias), out = exp(rates of the head * in), for `heads` groups of n values. */
export interface Decay {
  in: Place;
  out: Place;
  tokens: number;
  n: number; // of all heads
  heads: number;
  bias: number;
  rates: number; // vectors [n], [heads]
}

export function decay(to: Dispatcher, op: Decay): void {
  to.run(
    { name: 'decay', texts: [decayText] },
    {
      in: op.in.at,
      in_ld: op.in.ld,
      out: op.out.at,
      out_ld: op.out.ld,
      n: op.n,
      per_head: op.n / op.heads,
      bias: op.bias,
      rates: op.rates,
    },
    [Math.ceil(op.n / 64), op.tokens],
  );
}

/** kernels::StateKind. */
export const enum StateKind {
  Plain,
  Delta,
  General,
  Bonus,
}

/** model::Recurrence. r, k, a and b: [groups][keys]; v and out: [heads][values]. */
export interface Recurrence extends Carries {
  kind: StateKind;
  heads: number;
  groups: number;
  interleaved: boolean;
  keys: number;
  values: number;
  decayPerKey: boolean;
  r: Place;
  k: Place;
  v: Place;
  decay: Place; // [heads], or [heads][keys]
  beta?: Place | undefined; // [heads]
  a?: Place | undefined; // of StateKind.General
  b?: Place | undefined;
  out: Place;
  tokens: number;
  /** Vector: the skip [heads], of StateKind.Bonus the bonus [heads][keys]. */
  given?: number | undefined;
} // state: [heads][keys][values]

const kLanes = 64;
/** Keys of a column that an invocation keeps in registers, at most; more if a workgroup is too small. */
const kShare = 32;

/** Invocations that share a column. */
function partsOf(keys: number): number {
  let parts = 1;
  while (parts * kShare < keys && parts < kLanes) parts *= 2;
  return parts;
}

export function recurrence(to: Dispatcher, op: Recurrence): void {
  const parts = partsOf(op.keys);
  const { r, k, v, a = v, b = v, beta, out } = op;
  to.run(
    {
      name: 'recurrence',
      texts: [recurrenceText],
      constants: {
        WG: kLanes,
        PARTS: parts,
        KEYS: op.keys,
        DELTA: op.kind === StateKind.Delta,
        GENERAL: op.kind === StateKind.General,
        BONUS: op.kind === StateKind.Bonus,
        PER_KEY: op.decayPerKey,
      },
    },
    {
      r: r.at,
      r_ld: r.ld,
      k: k.at,
      k_ld: k.ld,
      v: v.at,
      v_ld: v.ld,
      decay: op.decay.at,
      decay_ld: op.decay.ld,
      beta: none(beta?.at),
      beta_ld: beta?.ld ?? 0,
      out: out.at,
      out_ld: out.ld,
      a: a.at,
      a_ld: a.ld,
      b: b.at,
      b_ld: b.ld,
      given: none(op.given),
      heads: op.heads,
      groups: op.groups,
      interleaved: Number(op.interleaved),
      values: op.values,
      tokens: op.tokens,
      ...carried(op),
    },
    [Math.ceil((op.values * parts) / kLanes), op.heads],
  );
}

/** Mamba's selective scan over n channels with `keys` states each. */
export interface Scan extends Carries {
  x: Place;
  dt: Place;
  out: Place; // [n]
  b: Place;
  c: Place; // [keys]
  n: number;
  keys: number;
  tokens: number;
  rates: number;
  skip: number; // vectors [keys][n], [n]
} // state: [keys][n]

export function scan(to: Dispatcher, op: Scan): void {
  const { x, dt, b, c, out } = op;
  to.run(
    { name: 'scan', texts: [scanText], constants: { KEYS: op.keys } },
    {
      x: x.at,
      x_ld: x.ld,
      dt: dt.at,
      dt_ld: dt.ld,
      b: b.at,
      b_ld: b.ld,
      c: c.at,
      c_ld: c.ld,
      out: out.at,
      out_ld: out.ld,
      n: op.n,
      tokens: op.tokens,
      rates: op.rates,
      skip: op.skip,
      ...carried(op),
    },
    [Math.ceil(op.n / 64)],
  );
}
