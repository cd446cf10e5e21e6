// Records the operations of recurrent layers, in gpu-recurrent.js: record.ts leaves them to this
// module.

import type { Place, Recorder } from './kernels.js';
import * as kernels from './kernels/recurrent.js';
import { OpKind, type Buf, type Op, type Program } from './program.js';
import type { Rows, Writer } from './record.js';
import type { StatePlan } from './state-plan.js';

/** The recurrence of an operation, with its places. */
function recurrence({ recurrences }: Program, writer: Writer, op: Op, rows: Rows) {
  const [kind, heads, groups, interleaved, keys, values, decayPerKey, ...at] = recurrences[
    op.rec!
  ]! as [number, number, number, number, number, number, number, ...number[]];
  const place = (i: number): Place | undefined => {
    const [buf, column] = at.slice(2 * i) as [Buf, number];
    return column < 0 ? undefined : writer.place(buf, column, rows);
  };
  const [r, k, v, decay, beta, a, b, out] = [0, 1, 2, 3, 4, 5, 6, 7].map(place);
  return {
    kind,
    heads,
    groups,
    interleaved: interleaved === 1,
    keys,
    values,
    decayPerKey: decayPerKey === 1,
    r: r!,
    k: k!,
    v: v!,
    decay: decay!,
    beta,
    a,
    b,
    out: out!,
    tokens: rows.tokens,
  };
}

/** Offset in the arena of a layer's part of a copy, in floats. */
export const statePlace = ({ at, size, layers }: StatePlan, layer: number, copy: number): number =>
  at + copy * size + layers[layer]!;

/** Where an operation's state is, before and after the pass. */
function carries(program: Program, plan: StatePlan, op: Op, { states }: Rows): kernels.Carries {
  const copy = (i: number): number => statePlace(plan, op.layer, i) + op.carried[1];
  return {
    before: copy(states.live),
    after: copy(states.live ^ 1),
    ended: states.ended,
    copies: {
      at: copy(2 * program.parallel),
      step: plan.size,
      first: states.due,
      every: program.checkpointEvery,
    },
  };
}

/** Returns a function that records an operation of a recurrent layer. */
export function recurrentOps(program: Program, plan: StatePlan) {
  return (to: Recorder, op: Op, rows: Rows, writer: Writer): void => {
    const { tokens } = rows;
    const { n, heads, vec0, vec1 } = op;
    const state = () => carries(program, plan, op, rows);
    const rec = () => recurrence(program, writer, op, rows);
    const [x, y] = [
      writer.place(op.in, op.inCol, rows),
      writer.place(op.out, op.outCol, rows),
    ] as const;
    const [v0, v1] = [writer.vec(vec0), writer.vec(vec1)];
    switch (op.kind) {
      case OpKind.Conv:
        return kernels.convolve(to, {
          x,
          tokens,
          n,
          unary: op.unary,
          taps: op.carried[0] / n + 1,
          weights: v0!,
          bias: v1,
          ...state(),
        });
      case OpKind.Decay:
        return kernels.decay(to, { in: x, out: y, tokens, n, heads, bias: v0!, rates: v1! });
      case OpKind.State:
        return kernels.recurrence(to, {
          ...rec(),
          given: v0,
          ...state(),
        });
      case OpKind.Scan: {
        const { r, k, v, decay, out, keys, values } = rec();
        return kernels.scan(to, {
          ...{ x: v, dt: decay, b: k, c: r, out, n: values, keys, tokens },
          ...{ rates: v0!, skip: v1! },
          ...state(),
        });
      }
      case OpKind.Shift:
        return kernels.shift(to, { x, out: y, tokens, n, ...state() });
      case OpKind.Lerp:
        return kernels.lerp(to, {
          ...{ in: x, out: y, step: writer.place(...op.gate, rows), tokens, n, rows: heads },
          ...{ weights: v0!, add: op.add },
        });
      case OpKind.Rwkv7Mix:
        return kernels.mixInto(to, {
          ...{ in: x, out: y, step: writer.place(...op.gate, rows), tokens, n },
        });
      case OpKind.Rwkv7Keys: {
        const { k, a, b, keys, heads } = rec();
        return kernels.rwkv7Keys(to, {
          ...{ k, negative: a!, both: b!, rates: writer.place(...op.gate, rows) },
          ...{ tokens, n: keys, heads, removal: v0!, replacement: v1!, eps: op.eps },
        });
      }
      case OpKind.Rwkv7Bonus:
        return kernels.rwkv7Bonus(to, { ...rec(), weights: v0! });
      default:
    }
  };
}
