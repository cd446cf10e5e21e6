// Kernels that carry state from token to token, in gpu-recurrent.js: convolutions over time, linear
// recurrences over a matrix per head, Mamba's selective scan, and what RWKV has around its
// recurrence. One dispatch takes all tokens of a batch through its channels.

import type { Place } from './calls.js';
import { none, type Dispatcher } from './dispatcher.js';
import type { Values } from './shaders.js';
import convolveText from '../../../kernels/wgsl/convolve.wgsl';
import decayText from '../../../kernels/wgsl/decay.wgsl';
import lerpText from '../../../kernels/wgsl/lerp.wgsl';
import recurrenceText from '../../../kernels/wgsl/recurrence.wgsl';
import bonusText from '../../../kernels/wgsl/rwkv7_bonus.wgsl';
import keysText from '../../../kernels/wgsl/rwkv7_keys.wgsl';
import scanText from '../../../kernels/wgsl/scan.wgsl';
import shiftText from '../../../kernels/wgsl/shift.wgsl';

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

/** out = in of the previous token - in, for n channels. */
export interface Shift extends Carries {
  x: Place;
  out: Place;
  tokens: number;
  n: number;
} // state: [n], the last row

export function shift(to: Dispatcher, op: Shift): void {
  const { x, out, n, tokens } = op;
  to.run(
    { name: 'shift', texts: [shiftText] },
    { x: x.at, x_ld: x.ld, out: out.at, out_ld: out.ld, n, tokens, ...carried(op) },
    [Math.ceil(n / 64)],
  );
}

/** out = in + step * (weights + (add ? out : 0)), for `rows` rows of n values of out. */
export interface Lerp {
  in: Place;
  step: Place; // [n]
  out: Place; // [rows][n]
  tokens: number;
  n: number;
  rows: number;
  weights: number; // vector [rows][n]
  add: boolean;
}

export function lerp(to: Dispatcher, op: Lerp): void {
  mix(to, op, op.add ? 'x + z * (w + y)' : 'x + z * w');
}

/** out += gate * (in - out) */
export function mixInto(to: Dispatcher, op: Omit<Lerp, 'rows' | 'weights' | 'add'>): void {
  mix(to, { ...op, rows: 1, weights: 0 }, 'y + z * (x - y)');
}

function mix(to: Dispatcher, op: Omit<Lerp, 'add'>, expression: string): void {
  const { step, out, n, rows, weights } = op;
  to.run(
    { name: 'lerp', texts: [lerpText], words: { EXPRESSION: expression } },
    {
      in: op.in.at,
      in_ld: op.in.ld,
      step: step.at,
      step_ld: step.ld,
      out: out.at,
      out_ld: out.ld,
      n,
      rows,
      weights,
    },
    [Math.ceil((n * rows) / 64), op.tokens],
  );
}

const kSums = { WG: 64, SUMS: 1 };

/** RWKV 7's removal and replacement keys: session/rwkv.cpp. `heads` groups of n values. */
export interface Keys {
  k: Place;
  negative: Place;
  both: Place;
  rates: Place;
  tokens: number;
  n: number;
  heads: number;
  removal: number;
  replacement: number; // vectors [heads][n]
  eps: number;
}

export function rwkv7Keys(to: Dispatcher, op: Keys): void {
  const { k, negative, both, rates } = op;
  to.run(
    { name: 'RWKV 7 keys', texts: [keysText], sums: true, constants: kSums },
    {
      k: k.at,
      k_ld: k.ld,
      negative: negative.at,
      negative_ld: negative.ld,
      both: both.at,
      both_ld: both.ld,
      rates: rates.at,
      rates_ld: rates.ld,
      n: op.n,
      removal: op.removal,
      replacement: op.replacement,
      eps: op.eps,
    },
    [op.heads, op.tokens],
  );
}

/** out += v * sum(r * k * weights), for each head. */
export interface Bonus {
  r: Place;
  k: Place;
  v: Place;
  out: Place;
  tokens: number;
  heads: number;
  keys: number;
  values: number;
  weights: number; // vector [heads][keys]
}

export function rwkv7Bonus(to: Dispatcher, op: Bonus): void {
  const { r, k, v, out, keys, values, weights } = op;
  to.run(
    { name: 'RWKV 7 bonus', texts: [bonusText], sums: true, constants: kSums },
    {
      r: r.at,
      r_ld: r.ld,
      k: k.at,
      k_ld: k.ld,
      v: v.at,
      v_ld: v.ld,
      out: out.at,
      out_ld: out.ld,
      keys,
      values,
      weights,
    },
    [op.heads, op.tokens],
  );
}
