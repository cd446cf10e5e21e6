// Kernel calls that only Gemma 3n needs, in gpu-ops.js: AltUp's streams, and sparse FFN gates.

import type { Groups, Place } from './calls.js';
import type { Dispatcher } from './dispatcher.js';
import { byGroup } from './groups.js';
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

/** In place: max(0, x - (mean + deviations * standard deviation)), both over a token's n values. */
export interface Sparsify {
  at: Place;
  tokens: number;
  n: number;
  deviations: number;
}

export function sparsify(to: Dispatcher, op: Sparsify): void {
  const { at, n, deviations } = op;
  to.run(byGroup('sparsify', sparsifyText, n, 1), { x: at.at, x_ld: at.ld, n, deviations }, [
    1,
    op.tokens,
  ]);
}

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
  correct?: { in: Place; active: number };
}

export function streams(to: Dispatcher, op: Streams): void {
  const { weights, out, n, correct } = op;
  const given = correct?.in ?? out;
  to.run(
    {
      name: 'streams',
      texts: [streamsText],
      constants: { STREAMS: op.streams, CORRECT: correct !== undefined },
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
    },
    [Math.ceil(n / 64), op.tokens],
  );
}
