// Kernel calls that only Gemma 3n needs, in gpu-gemma.js: AltUp's streams, LAuReL, and sparse FFN gates.

import type { Groups, Place, Weights } from './calls.js';
import { none, type Dispatcher } from './dispatcher.js';
import { activations } from './expressions.js';
import { byGroup } from './groups.js';
import coefficientsText from '../../../kernels/wgsl/coefficients.wgsl';
import laurelText from '../../../kernels/wgsl/laurel.wgsl';
import matchNormText from '../../../kernels/wgsl/match_norm.wgsl';
import sparsifyText from '../../../kernels/wgsl/sparsify.wgsl';
import streamsText from '../../../kernels/wgsl/streams.wgsl';

/** Scales each of `heads` groups of n values of out to the Euclidean norm of in. */
export function matchNorm(to: Dispatcher, op: Omit<Groups, 'inStep' | 'outStep'>): void {
  to.run(
    byGroup('match norm', matchNormText, op.n, 2),
    {
      in: op.in.at,
      in_ld: op.in.ld,
      out: op.out.at,
      out_ld: op.out.ld,
      n: op.n,
    },
    [op.heads ?? 1, op.tokens],
  );
}

/**
 * In place: max(0, x - (mean + deviations * standard deviation)), both over a token's n values.
 * `activation`: then act(gate, up), where up is behind the gate.
 */
export interface Sparsify {
  at: Place;
  tokens: number;
  n: number;
  deviations: number;
  activation?: number | undefined;
}

export function sparsify(to: Dispatcher, op: Sparsify): void {
  const { at, n, deviations, activation } = op;
  const expression =
    activation === undefined
      ? 'gate'
      : activations(activation, ['gate', 'arena[x + p.n + i]', '0.0', '0.0', '0.0', '0.0']);
  to.run(
    { ...byGroup('sparsify', sparsifyText, n, 1), words: { EXPRESSION: expression } },
    { x: at.at, x_ld: at.ld, n, deviations },
    [1, op.tokens],
  );
}

/** RMS norm: its vector, if there is one. */
export interface Gain {
  weight?: number | undefined;
}

/** out = scale * (norm(out) + x + norm(low) + norm(x)), of n values each. */
export interface LaurelSum {
  out: Place & Gain;
  x: Place & Gain;
  low: Place & Gain;
  tokens: number;
  n: number;
  eps: number;
  scale: number;
}

export function laurelSum(to: Dispatcher, op: LaurelSum): void {
  const { out, x, low, n, eps, scale } = op;
  to.run(
    byGroup('laurel', laurelText, n, 3),
    {
      out: out.at,
      out_ld: out.ld,
      out_gain: none(out.weight),
      x: x.at,
      x_ld: x.ld,
      x_gain: none(x.weight),
      low: low.at,
      low_ld: low.ld,
      low_gain: none(low.weight),
      n,
      eps,
      scale,
    },
    [1, op.tokens],
  );
}

const kTypes: Record<number, string> = {
  0: 'bitcast<f32>(word(i))',
  1: 'unpack2x16float(word(i / 2u))[i & 1u]',
  30: 'bitcast<f32>((word(i / 2u) >> (16u * (i & 1u))) << 16u)',
};
/** Types of `matrix`, by ggml's ids: F32, F16 and BF16. */
export const streamTypes = Object.keys(kTypes).map(Number);

/**
 * AltUp. Each stream of n values in out += a mix of all; weights: [streams][streams]. `correct`: each
 * += (1 + its weight) * (in - stream `active`); weights: [streams].
 */
export interface Streams {
  weights: Place;
  out: Place; // [streams][n]
  tokens: number;
  n: number;
  streams: number;
  correct?: { in: Place; active: number } | undefined;
  /** The weights are this matrix [weights][streams] times `streams` values at `weights`. */
  matrix?: Weights | undefined;
  /** With `correct`: also out = vector * the corrected stream `active`. */
  scaled?: { out: Place; vec: number } | undefined;
  /** Without: streams behind the first += its RMS norm, before they are mixed. */
  behind?: (Place & Gain & { eps: number }) | undefined;
}

export function streams(to: Dispatcher, op: Streams): void {
  const { weights, out, n, correct, matrix, scaled, behind } = op;
  const given = correct?.in ?? out;
  const count = op.streams * (correct ? 1 : op.streams);
  if (matrix) to.weightBytes += count * op.streams * (matrix.type ? 2 : 4);
  to.run(
    {
      name: 'streams',
      texts: [
        matrix ? coefficientsText : 'fn coefficient(i: u32) -> f32 { return 0.0; }',
        streamsText,
      ],
      sums: true,
      constants: {
        ...{ WG: 64, SUMS: 1, STREAMS: op.streams, WEIGHTS: count },
        ...{ CORRECT: correct !== undefined, MATRIX: matrix !== undefined },
        ...{ SCALED: scaled !== undefined, BEHIND: behind !== undefined },
      },
      ...(matrix && { words: { COEFFICIENT: kTypes[matrix.type]! } }),
      bound: matrix ? 1 : 0,
    },
    {
      in: given.at,
      in_ld: given.ld,
      out: out.at,
      out_ld: out.ld,
      weights: weights.at,
      weights_ld: weights.ld,
      n,
      lead: correct?.active ?? 0,
      scaled: scaled?.out.at ?? 0,
      scaled_ld: scaled?.out.ld ?? 0,
      vec: scaled?.vec ?? 0,
      behind: behind?.at ?? 0,
      behind_ld: behind?.ld ?? 0,
      gain: none(behind?.weight),
      eps: behind?.eps ?? 0,
      base: (matrix?.offset ?? 0) / 4,
    },
    [Math.ceil(n / 64), op.tokens],
    matrix && [{ buffer: matrix.buffer }],
  );
}
