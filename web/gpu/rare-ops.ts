// Entry of gpu-ops.js: records the operations that few families have. Latent attention and AltUp have a
// matrix for each head or stream (DeepSeek 2 and 3, MiniCPM 3, Mistral 4, Kimi Linear, Gemma 3n); Gemma 3n
// alone has the streams and sparse FFN gates.

import type { Part, Place, Recorder } from './kernels.js';
import { kFewTokens } from './kernels/matmul.js';
import * as kernels from './kernels/rare-ops.js';
import type { Unit } from './plan.js';
import { Buf, OpKind, type Op, type Program } from './program.js';
import type { Layout, RecordOp, Rows, Writer } from './record.js';

/** Rows of a buffer as groups, or of one group from its first value on. */
const from = ({ at, ld }: Place, floats: number): Place => ({ at: at + floats, ld });

/**
 * The heads of a unit. A token's heads are like pairs of a token and an expert, so few tokens take a
 * dispatch each. Many take one for each head, which reads its matrix once.
 */
function headMatmul(
  to: Recorder,
  { mats }: Program,
  numbers: number,
  op: Op,
  rows: Rows,
  writer: Writer,
  { experts }: Unit,
  buffer: GPUBuffer,
): void {
  const { n: cols, inStep, outStep } = op;
  const { first, count } = experts!;
  const { type, rows: height, rowBytes } = mats[op.mat!]!;
  const x = from(writer.place(op.in, op.inCol, rows), first * inStep);
  const out = from(writer.place(op.out, op.outCol, rows), first * outStep);
  const part = (head: number): Part => ({
    weights: { type, buffer, offset: head * height * rowBytes },
    rows: height,
    column: 0,
  });
  if (rows.tokens <= kFewTokens)
    for (let t = 0; t < rows.tokens; t++)
      to.matmul({
        parts: [part(0)],
        cols,
        x: { at: x.at + t * x.ld, ld: inStep },
        out: { at: out.at + t * out.ld, ld: outStep },
        tokens: count,
        experts: { ids: numbers, first: 0, count, share: 1 },
      });
  else
    for (let h = 0; h < count; h++)
      to.matmul({
        parts: [part(h)],
        cols,
        x: from(x, h * inStep),
        out: from(out, h * outStep),
        tokens: rows.tokens,
      });
}

/** Returns a function that records these operations. */
export function rareOps(program: Program, { numbers }: Pick<Layout, 'numbers'>): RecordOp {
  return (to, op, rows, writer, unit, buffer) => {
    const { n, heads } = op;
    const { tokens } = rows;
    const [x, y] = [
      writer.place(op.in, op.inCol, rows),
      writer.place(op.out, op.outCol, rows),
    ] as const;
    switch (op.kind) {
      case OpKind.HeadMatmul:
        if (unit) headMatmul(to, program, numbers, op, rows, writer, unit, buffer!);
        return;
      case OpKind.MatchNorm:
        return kernels.matchNorm(to, { in: x, out: y, tokens, n, heads });
      case OpKind.Sparsify:
        return kernels.sparsify(to, { at: y, tokens, n, deviations: op.scale });
      case OpKind.MixStreams:
      case OpKind.CorrectStreams:
        return kernels.streams(to, {
          weights: writer.place(Buf.Router, op.inCol, rows),
          out: writer.place(op.out, 0, rows),
          tokens,
          n,
          streams: heads,
          ...(op.kind === OpKind.CorrectStreams && {
            correct: { in: writer.place(op.in, 0, rows), active: op.outCol / n },
          }),
        });
      default:
    }
  };
}
