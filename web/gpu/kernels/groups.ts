// Kernel calls on rows of activations: norms, elementwise functions, and routing to experts and
// combining their outputs.

import type { Activate, Combine, Groups, Norm, Place, Route } from './calls.js';
import { none, type Dispatcher } from './dispatcher.js';
import { activations, unaries } from './expressions.js';
import type { Growth } from './replay.js';
import type { Values, Variant } from './shaders.js';
import combineText from '../../../kernels/wgsl/combine.wgsl';
import mapText from '../../../kernels/wgsl/elementwise.wgsl';
import normText from '../../../kernels/wgsl/norm.wgsl';
import routeText from '../../../kernels/wgsl/moe_router.wgsl';

/** A shader with one workgroup per group of n values. */
export function byGroup(
  name: string,
  text: string,
  n: number,
  sums: number,
  constants: Record<string, number> = {},
): Variant {
  return {
    name,
    texts: [text],
    sums: true,
    constants: { ...constants, WG: n > 512 ? 256 : 64, SUMS: sums },
  };
}

export function norm(to: Dispatcher, op: Norm): void {
  const heads = op.heads ?? 1;
  to.run(
    byGroup('norm', normText, op.n, 1, { LAYER: 1, L2: 2, KIND: op.kind }),
    {
      in: op.in.at,
      in_ld: op.in.ld,
      out: op.out.at,
      out_ld: op.out.ld,
      n: op.n,
      heads,
      weight: none(op.weight),
      bias: none(op.bias),
      per_head: Number(op.perHead ?? false),
      eps: op.eps,
      scale: op.scale ?? 1,
      add: op.add ?? 0,
    },
    [heads, op.tokens],
  );
}

export function route(to: Dispatcher, op: Route): void {
  to.run(
    { name: 'route', texts: [routeText] },
    {
      logits: op.logits.at,
      ld: op.logits.ld,
      n: op.n,
      used: op.used,
      ids: op.ids,
      weights: op.weights,
      gating: op.gating,
      groups: op.groups,
      groups_used: op.groupsUsed,
      shared_by: op.sharedBy,
      normalize: Number(op.normalize),
      scale: op.scale,
      bias: none(op.bias),
    },
    [op.tokens],
  );
}

export function combine(to: Dispatcher, op: Combine): void {
  to.run(
    { name: 'combine', texts: [combineText] },
    {
      ids: op.ids,
      weights: none(op.weights),
      used: op.used,
      n: op.n,
      in: op.in,
      out: op.out.at,
      out_ld: op.out.ld,
      add: Number(op.add),
      scale: op.scale,
    },
    [Math.ceil(op.n / 64), op.tokens],
  );
}

/** Elementwise `expression` of x (in), y (out), z (other), v (vector) and p.a to p.d. */
function map(
  to: Dispatcher,
  op: Groups,
  expression: string,
  more: Values = {},
  growth?: Growth,
): void {
  const heads = op.heads ?? 1;
  to.run(
    { name: 'map', texts: [mapText], words: { EXPRESSION: expression } },
    {
      in: op.in.at,
      in_ld: op.in.ld,
      in_step: op.inStep ?? op.n,
      in_every: 1,
      out: op.out.at,
      out_ld: op.out.ld,
      out_step: op.outStep ?? op.n,
      n: op.n,
      other: op.out.at,
      other_ld: 0,
      other_step: 0,
      vector: 0,
      vector_step: 0,
      heads,
      a: 0,
      b: 0,
      c: 0,
      d: 0,
      ...more,
    },
    [Math.ceil((op.n * heads) / 64), op.tokens],
    [],
    growth,
  );
}

/** In place on [gate n][up n] at op.at, if up is not elsewhere: gate = act(gate, up). */
export function activate(to: Dispatcher, op: Activate): void {
  const { positive: a = 0, negative: b = 0, linear: c = 0, below: d = 0 } = op.xielu ?? {};
  map(
    to,
    {
      in: op.up ?? { at: op.at.at + op.n, ld: op.at.ld },
      out: op.at,
      tokens: op.tokens,
      n: op.n,
    },
    activations(op.kind, ['y', 'x', 'p.a', 'p.b', 'p.c', 'p.d']),
    { a, b, c, d },
  );
}

/** out += scale * in */
export function add(to: Dispatcher, op: Groups & { scale?: number }): void {
  map(to, op, 'y + p.a * x', { a: op.scale ?? 1 });
}

/** out = scale * in. If scale is 0, out is 0 even for NaN and infinities. */
export function scale(to: Dispatcher, op: Groups & { scale: number }): void {
  map(to, op, op.scale === 0 ? '0.0' : 'p.a * x', { a: op.scale });
}

export function copy(to: Dispatcher, op: Groups): void {
  map(to, op, 'x');
}

export function softcap(to: Dispatcher, op: Groups & { softcap: number }): void {
  map(to, op, 'p.a * bounded_tanh(x / p.a)', { a: op.softcap });
}

export function clamp(to: Dispatcher, op: Groups & { softcap: number }): void {
  map(to, op, 'clamp(x, -p.a, p.a)', { a: op.softcap });
}

export function unary(to: Dispatcher, op: Groups & { unary: number }): void {
  map(to, op, unaries(op.unary, 'x'));
}

/** kGate: out *= sigmoid(in): `heads` values of in, each for n / heads values of out. */
export function gate(to: Dispatcher, op: Groups): void {
  map(to, { ...op, heads: 1 }, 'y * sigmoid(x)', { in_every: op.n / (op.heads ?? 1) });
}

/** out = in * unary(gate). `stride` is the distance between the gates of heads. */
export function gated(
  to: Dispatcher,
  op: Groups & { unary: number; gate: Place; stride: number },
): void {
  map(to, op, `x * ${unaries(op.unary, 'z')}`, {
    other: op.gate.at,
    other_ld: op.gate.ld,
    other_step: op.stride,
  });
}

/** out = in * vec, of n values or one. */
export function mulVec(to: Dispatcher, op: Groups & { vec: number; one?: boolean }): void {
  map(to, op, 'x * v', { vector: op.vec, vector_step: op.one ? 0 : 1 });
}

/** out = in + vec: a token type embedding, or that of `position`, whose row is as long. */
export function addVec(
  to: Dispatcher,
  { position, ...op }: Groups & { vec: number; position?: number | undefined },
): void {
  const vector = op.vec + (position ?? 0) * op.n;
  const growth: Growth | undefined = position === undefined ? position : { vector: [op.n, 0] };
  map(to, op, 'x + v', { vector, vector_step: 1 }, growth);
}
