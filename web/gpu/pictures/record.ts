// Records the steps of a vision encoder as kernel calls.

import type { Recorder } from '../kernels.js';
import type { Unit } from '../plan.js';
import { attention, cells, interpolate, map, transposed } from './kernels.js';
import { Activation, NormKind, OpKind, type Input } from './input.js';
import { decodes, type Layout, type Step } from './layout.js';

// Numbers of the executor's kernels for norms.
const kRms = 0;
const kLayer = 1;

/** A gate or an activation, of x. */
export const kActivations: Record<Activation, string> = {
  [Activation.GeluTanh]: 'gelu_tanh(x)',
  [Activation.GeluErf]: 'gelu_erf(x)',
  [Activation.GeluQuick]: 'x * sigmoid(1.702 * x)',
  [Activation.Silu]: 'silu(x)',
};

export class Writer {
  readonly #input: Input;
  readonly #layout: Layout;

  constructor(input: Input, layout: Layout) {
    this.#input = input;
    this.#layout = layout;
  }

  #vec(index: number): number | undefined {
    return index < 0 ? undefined : this.#layout.vecs[index]!;
  }

  /** Records what a step does with the rows of one unit of its matrices. */
  products(to: Recorder, step: Step, unit: Unit, buffer: GPUBuffer): void {
    const { op, parts, out } = step;
    const { mats } = this.#input;
    const { cols } = mats[parts[0]!.mat]!;
    const weights = (mat: number, offset: number) => ({ type: mats[mat]!.type, buffer, offset });
    if (op.kind === OpKind.Matmul)
      return to.matmul({
        parts: unit.pieces.map(({ part, mat, row0, rows, at }) => {
          const { bias, column } = parts[part]!;
          return {
            weights: weights(mat, at),
            rows,
            column: column + row0,
            ...(bias >= 0 && { bias: this.#vec(bias)! + row0 }),
          };
        }),
        cols,
        x: step.in,
        out,
        tokens: op.inRows,
        add: op.add === 1,
      });
    for (const { mat, row0: row, rows: count, at } of unit.pieces) {
      const table = { weights: weights(mat, at), row, count, cols, n: cols };
      if (decodes(op))
        to.rows({
          ...table,
          ids: this.#layout.numbers + row,
          tokens: count,
          out: { at: this.#layout.decoded + row * cols, ld: cols },
        });
      else
        for (let tap = 0; tap < op.taps; tap++)
          to.rows({
            ...table,
            ids: this.#table(step) + tap * op.rows,
            tokens: op.rows,
            out,
            add: true,
          });
    }
  }

  #table({ op }: Step): number {
    return op.table < 0 ? -1 : this.#layout.tables + op.table;
  }

  /** Records what follows the last unit of a step, or a step without matrices. */
  finish(to: Recorder, step: Step): void {
    const { op, in: from, out } = step;
    const { decoded } = this.#layout;
    const wide = { in: from, out, tokens: op.rows, n: op.cols };
    const same = { ...wide, in: out };
    const vec = this.#vec(op.vec)!;
    const vec2 = this.#vec(op.vec2)!;
    switch (op.kind) {
      case OpKind.MatmulT: {
        const { rows, cols } = this.#input.mats[op.mat]!;
        return transposed(to, { in: from, out, tokens: op.rows, matrix: decoded, rows, cols });
      }
      case OpKind.AddTable: {
        const list = this.#table(step);
        const { taps, rows: tokens, cols } = op;
        if (decodes(op)) interpolate(to, { table: decoded, list, taps, out, tokens, cols });
        return;
      }
      case OpKind.Norm:
        return to.norm({
          in: from,
          out: { at: out.at + op.inCol, ld: out.ld },
          tokens: op.rows,
          n: op.n,
          heads: op.groups,
          kind: op.norm === NormKind.Rms ? kRms : kLayer,
          weight: vec,
          bias: vec2,
          eps: op.eps,
        });
      case OpKind.Add:
        return to.add(wide);
      case OpKind.AppendRow: {
        const last = { at: out.at + (op.rows - 1) * out.ld, ld: out.ld };
        return map(to, 'v', { in: last, out: last, tokens: 1, n: op.cols, vec });
      }
      case OpKind.Rope:
        return this.#rope(to, step);
      case OpKind.Attention:
        return this.#attention(to, step);
      case OpKind.Activation:
        return map(to, kActivations[op.act as Activation] + (op.gated ? ' * y' : ''), wide);
      case OpKind.Merge:
      case OpKind.Pool:
        return cells(to, {
          in: from,
          out,
          tokens: op.rows,
          cols: op.inCols,
          cells: op.n * op.n,
          ids: this.#table(step),
          mean: op.kind === OpKind.Pool,
          channelsFirst: op.channelsFirst === 1,
        });
      case OpKind.Scale:
        return to.scale({ ...same, scale: op.value });
      case OpKind.Scalar:
        return map(to, 'x * v', { ...same, vec, one: true });
      case OpKind.Affine:
        if (op.vec2 >= 0) map(to, 'x - v', { ...same, vec: vec2 });
        if (op.vec >= 0) map(to, 'x * v', { ...same, vec });
        return;
      case OpKind.Clamp:
        return this.#clamp(to, step);
      case OpKind.Copy: {
        const target = { at: out.at + op.outCol, ld: out.ld };
        return to.copy({ in: from, out: target, tokens: op.rows, n: op.inCols });
      }
      case OpKind.Constant:
        return map(to, 'v', { in: out, out, tokens: 1, n: op.rows * op.cols, vec });
      case OpKind.AddMean:
        for (let i = 0; i < op.n; i++)
          to.add({ ...wide, in: { at: from.at + i * op.cols, ld: from.ld }, scale: 1 / op.n });
        return;
      case OpKind.Emit:
        return this.#emit(to, step);
      default: // patches are uploaded; dropped rows and rows side by side are other places of the same values
    }
  }

  #rope(to: Recorder, step: Step): void {
    const { op, out } = step;
    const { neighbours, halves } = this.#input;
    const rot = halves ? op.n / 2 : op.n;
    for (let half = 0; half < op.n / rot; half++)
      to.rope({
        heads: op.groups,
        kvHeads: 0,
        dk: op.n,
        dv: 0,
        qkv: { at: out.at + op.inCol, ld: out.ld },
        tokens: op.rows,
        owned: false,
        rot,
        neox: !neighbours,
        column: half * rot,
        table: this.#table(step) + half * op.rows * rot,
      });
  }

  #attention(to: Recorder, step: Step): void {
    const { op, in2 } = step;
    attention(to, {
      q: step.in,
      k: in2,
      v: { at: in2.at + op.n * op.groups, ld: in2.ld },
      out: step.out,
      queries: op.inRows,
      keys: op.in2Rows,
      heads: op.groups,
      n: op.n,
      scale: op.value,
      runs: this.#layout.runs.find(({ table }) => table === op.table)?.at ?? -1,
    });
  }

  #clamp(to: Recorder, { op, in: from, out }: Step): void {
    const target = { at: out.at + op.inCol, ld: out.ld };
    const all = { out: target, tokens: op.rows, n: op.n, one: true };
    const least = this.#vec(op.vec);
    const most = this.#vec(op.vec2);
    if (least !== undefined) map(to, 'max(x, v)', { ...all, in: from, vec: least });
    if (most !== undefined)
      map(to, 'min(x, v)', { ...all, in: least === undefined ? from : target, vec: most });
  }

  /** Rows to the output, with vectors before and behind them and between the rows of the grid. */
  #emit(to: Recorder, step: Step): void {
    const { op, in: from } = step;
    const { nRows, width } = this.#input;
    const { inCols: n, columns } = op;
    const at = this.#layout.out + op.outCol;
    const before = op.vec < 0 ? 0 : 1;
    const tokens = nRows - before - (op.vec2 < 0 ? 0 : 1);
    const rows = { in: from, out: { at: at + before * width, ld: width }, tokens };
    if (op.table < 0) to.copy({ ...rows, n });
    else cells(to, { ...rows, cols: n, cells: 1, ids: this.#table(step) });
    const put = (index: number, row: number, ld: number, count: number): void => {
      const out = { at: at + row * width, ld };
      if (index >= 0) map(to, 'v', { in: out, out, tokens: count, n, vec: this.#vec(index)! });
    };
    put(op.vec, 0, width, 1);
    put(op.vec2, nRows - 1, width, 1);
    put(op.vec3, before + columns, (columns + 1) * width, op.inRows / columns - 1);
  }
}
