// Entry of gpu-ops.js: records a matrix multiplication with a matrix for each head, which latent attention
// has (DeepSeek 2 and 3, MiniCPM 3, Mistral 4, Kimi Linear). gemma-ops.ts uses it for Gemma 3n's streams.

import type { Part, Place, Recorder } from './kernels.js';
import { kFewTokens } from './kernels/matmul.js';
import type { Unit } from './plan.js';
import { OpKind, type Op, type Program } from './program.js';
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
export const rareOps =
  (program: Program, { numbers }: Pick<Layout, 'numbers'>): RecordOp =>
  (to, op, rows, writer, unit, buffer) => {
    if (op.kind === OpKind.HeadMatmul && unit)
      headMatmul(to, program, numbers, op, rows, writer, unit, buffer!);
  };
