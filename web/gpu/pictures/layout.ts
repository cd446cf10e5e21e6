// The operations of a vision encoder as steps with their places in the arena: the buffers of
// src/vision/program.h, then the tables of the input, a matrix whose rows are decoded, and the output.
// Matrix multiplications of the same rows are one step.

import type { Place } from '../kernels.js';
import { align } from '../plan.js';
import { kMaxGroups } from './kernels.js';
import { kBuffers, OpKind, type Input, type Op } from './input.js';

/** A matrix of a step. Its results begin at this column; -1: no bias. */
export interface StepPart {
  mat: number;
  bias: number;
  column: number;
}

export interface Step {
  op: Op;
  parts: StepPart[];
  in: Place;
  in2: Place;
  out: Place;
}

/** Offsets in the arena, and its size, in floats. */
export interface Layout {
  buffers: number[];
  tables: number;
  /** 0, 1, 2 …: the rows of a matrix that is decoded as a whole. */
  numbers: number;
  nNumbers: number;
  decoded: number;
  /** The output, [nRows][width]. */
  out: number;
  floats: number;
  /** Offset of each vector, then of the runs of keys in these tables, and size of all. */
  vecs: number[];
  runs: { table: number; at: number; floats: number }[];
  vecFloats: number;
}

/** Whether all rows of an operation's matrix are decoded before it uses them. */
export const decodes = ({ kind, weighted }: Op): boolean =>
  kind === OpKind.MatmulT || (kind === OpKind.AddTable && weighted === 1);

/** Whether the GPU has kernels for all operations of an encoder, at this size. */
export function supported({ ops, mats, nRows }: Input): boolean {
  return (
    nRows <= kMaxGroups &&
    ops.every(
      (op) =>
        op.kind <= OpKind.Emit &&
        op.kind !== OpKind.AddSinCos &&
        Math.max(op.rows, op.inRows) <= kMaxGroups &&
        (op.kind !== OpKind.Rows || op.in === op.out) &&
        (!decodes(op) || mats[op.mat]!.rows <= kMaxGroups),
    )
  );
}

export function layOut({ ops, mats, vecs, tables, buffers, nRows, width }: Input): Layout {
  let floats = 0;
  const take = (n: number): number => {
    const at = floats;
    floats += align(n, 64);
    return at;
  };
  // Rows that are dropped in front stay where they are.
  const skipped = Array.from({ length: kBuffers }, (_, buf) =>
    ops
      .filter(({ kind, out }) => kind === OpKind.Rows && out === buf)
      .reduce((sum, { skip, inCols }) => sum + skip * inCols, 0),
  );
  const whole = ops.filter(decodes).map(({ mat }) => mats[mat]!);
  const nNumbers = Math.max(0, ...whole.map(({ rows }) => rows));
  let vecFloats = 0;
  const vector = (n: number): number => (vecFloats += align(n)) - align(n);
  const places = vecs.map(({ cols }) => vector(cols));
  const runs: Layout['runs'] = [];
  for (const { kind, table, inRows } of ops)
    if (kind === OpKind.Attention && table >= 0 && !runs.some((run) => run.table === table))
      runs.push({ table, at: vector(2 * inRows), floats: 2 * inRows });
  return {
    buffers: buffers.map((n, buf) => take(n + skipped[buf]!)),
    tables: take(tables[1]),
    numbers: take(nNumbers),
    nNumbers,
    decoded: take(Math.max(0, ...whole.map(({ rows, cols }) => rows * cols))),
    out: take(nRows * width),
    floats,
    vecs: places,
    runs,
    vecFloats,
  };
}

const joins = (one: Op, next: Op): boolean =>
  next.kind === OpKind.Matmul &&
  one.kind === OpKind.Matmul &&
  !one.add &&
  !next.add &&
  one.in === next.in &&
  one.inCol === next.inCol &&
  one.inCols === next.inCols &&
  one.out === next.out &&
  one.cols === next.cols &&
  one.outCol !== next.outCol;

export function stepsOf({ ops, mats }: Input, layout: Layout): Step[] {
  const at = [...layout.buffers];
  const steps: Step[] = [];
  for (const op of ops) {
    const part = { mat: op.mat, bias: op.vec, column: op.outCol };
    const last = steps.at(-1);
    if (last && joins(last.op, op) && mats[last.op.mat]!.cols === mats[op.mat]!.cols) {
      last.parts.push(part);
      continue;
    }
    const place = (buf: number, ld: number, column = 0): Place => ({
      at: (at[buf] ?? 0) + column,
      ld,
    });
    if (op.kind === OpKind.Rows) at[op.out]! += op.skip * op.inCols;
    steps.push({
      op,
      parts: op.mat < 0 ? [] : [part],
      in: place(op.in, op.inCols, op.inCol),
      in2: place(op.in2, op.in2Cols, op.in2Col),
      out: place(op.out, op.cols),
    });
  }
  return steps;
}
