// Entry of gpu-gemma.js: merges operations of Gemma 3n and Gemma 4, and records those that Gemma 3n alone
// has: AltUp's streams, LAuReL, and sparse FFN gates.

import * as kernels from './kernels/gemma-ops.js';
import type { Place, Recorder } from './kernels.js';
import { mergeOps } from './merged-ops.js';
import type { Unit } from './plan.js';
import { Buf, kLaurelSum, OpKind, type Op, type Program } from './program.js';
import { rareOps } from './rare-ops.js';
import type { Layout, RecordOp, Rows, Writer } from './record.js';

type Normed = Place & kernels.Gain;

/** What an RMS norm reads, with its vector. */
const normOf = (op: Op, rows: Rows, writer: Writer): Normed => ({
  ...writer.place(op.in, op.inCol, rows),
  weight: writer.vec(op.vec0),
});

function streams(
  to: Recorder,
  { mats, normEps }: Program,
  op: Op,
  rows: Rows,
  writer: Writer,
  unit?: Unit,
  buffer?: GPUBuffer,
): void {
  const { n, heads, merged: [other] = [] } = op;
  const correct = op.kind === OpKind.CorrectStreams;
  kernels.streams(to, {
    weights: writer.place(Buf.Router, op.inCol, rows),
    out: writer.place(op.out, 0, rows),
    tokens: rows.tokens,
    n,
    streams: heads,
    correct: correct ? { in: writer.place(op.in, 0, rows), active: op.outCol / n } : undefined,
    matrix: unit && {
      type: mats[unit.pieces[0]!.mat]!.type,
      buffer: buffer!,
      offset: unit.pieces[0]!.at,
    },
    ...(other &&
      (correct
        ? {
            scaled: {
              out: writer.place(other.out, other.outCol, rows),
              vec: writer.vec(other.vec0)!,
            },
          }
        : { behind: { ...normOf(other, rows, writer), eps: other.eps || normEps } })),
  });
}

function laurelSum(to: Recorder, { normEps }: Program, op: Op, rows: Rows, writer: Writer): void {
  const norms = op.merged!.map((norm) => normOf(norm, rows, writer));
  const [out, low, x] = norms as [Normed, Normed, Normed];
  const eps = op.merged![0]!.eps || normEps;
  kernels.laurelSum(to, { out, low, x, tokens: rows.tokens, n: op.n, eps, scale: op.scale });
}

/** Merges a program's operations. Returns what makes a function that records those. */
export function gemmaOps(program: Program): typeof rareOps {
  mergeOps(program);
  return recorded;
}

function recorded(program: Program, layout: Pick<Layout, 'numbers'>): RecordOp {
  const others = rareOps(program, layout);
  return (to, op, rows, writer, unit, buffer) => {
    const { n, heads, merged } = op;
    const { tokens } = rows;
    const out = writer.place(op.out, op.outCol, rows);
    switch (op.kind) {
      case OpKind.MatchNorm:
        return kernels.matchNorm(to, {
          in: writer.place(op.in, op.inCol, rows),
          out,
          tokens,
          n,
          heads,
        });
      case OpKind.Sparsify:
        return kernels.sparsify(to, {
          at: out,
          tokens,
          n,
          deviations: op.scale,
          activation: merged?.[0]!.act,
        });
      case OpKind.MixStreams:
      case OpKind.CorrectStreams:
        if (!op.whole === !unit) streams(to, program, op, rows, writer, unit, buffer);
        return;
      case kLaurelSum:
        return laurelSum(to, program, op, rows, writer);
      default:
        others(to, op, rows, writer, unit, buffer);
    }
  };
}
