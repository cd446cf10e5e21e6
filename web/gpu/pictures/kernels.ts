// Kernel calls that only vision encoders need: attention over f32 keys of one input, rows of a grid,
// interpolated positions, a transposed matrix, and elementwise functions of two buffers.

import { tilesOf } from '../kernels/attention-tiles.js';
import type { Place } from '../kernels/calls.js';
import type { Dispatcher } from '../kernels/dispatcher.js';
import type { Values, Variant } from '../kernels/shaders.js';
import attentionText from '../../../kernels/wgsl/attention.wgsl';
import cellsText from '../../../kernels/wgsl/cells.wgsl';
import heldText from '../../../kernels/wgsl/attention_f32.wgsl';
import interpolateText from '../../../kernels/wgsl/interpolate.wgsl';
import mapText from '../../../kernels/wgsl/elementwise.wgsl';
import runsText from '../../../kernels/wgsl/attention_runs.wgsl';
import transposedText from '../../../kernels/wgsl/transposed.wgsl';

/** Largest extent of a dispatch in each dimension. */
export const kMaxGroups = 65535;

const groupsOf = (values: number): number => Math.ceil(values / 64);

/** `heads` heads of n values: queries [queries], keys and values [keys], f32. */
export interface Attention {
  q: Place;
  k: Place;
  v: Place;
  out: Place;
  queries: number;
  keys: number;
  heads: number;
  n: number;
  scale: number;
  /** Vector of [queries] pairs: the first key that a query sees, the one behind the last; -1: all. */
  runs: number;
}

/** The executor's kernel for an encoder, where queries and keys may be of different inputs. */
export function attention(to: Dispatcher, op: Attention): void {
  const tiles = tilesOf(Infinity, op.n);
  const inRuns = op.runs >= 0;
  const text = inRuns
    ? attentionText.replace(/\/\/@ bounds[^]*?\/\/@ end/, () => runsText)
    : attentionText;
  to.run(
    {
      name: `attention f32${inRuns ? ' in runs' : ''}`,
      texts: [heldText, text],
      words: { HELD: 'f32' },
      constants: { ...tiles, SPLIT: false },
    },
    {
      q: op.q.at,
      q_ld: op.q.ld,
      out: op.out.at,
      out_ld: op.out.ld,
      dk: op.n,
      dv: op.n,
      group: 1,
      tokens: op.queries,
      first: 0,
      window: 0,
      chunked: 0,
      causal: 0,
      length: op.keys,
      capacity: op.keys,
      heads: op.heads,
      split: 0x7fffffff,
      key_at: op.k.at,
      key_head: op.n,
      key_row: op.k.ld,
      value_at: op.v.at,
      value_head: op.n,
      value_row: op.v.ld,
      sinks: -1,
      partials: Math.max(op.runs, 0),
      scale: op.scale,
      softcap: 0,
      slope: 0,
      slope_heads: 1,
      part: 0,
    },
    [Math.ceil(op.queries / tiles.ROWS), op.heads],
  );
}

/** `cells` rows of `in` for each of `tokens` rows of `out`; `ids`: their place in the arena. */
export interface Cells {
  in: Place;
  out: Place;
  tokens: number;
  cols: number;
  cells: number;
  ids: number;
  mean?: boolean;
  channelsFirst?: boolean;
}

export function cells(to: Dispatcher, op: Cells): void {
  const { mean = false, channelsFirst = false, cols } = op;
  to.run(
    {
      name: 'cells',
      texts: [cellsText],
      constants: { MEAN: mean, CHANNELS_FIRST: channelsFirst },
    },
    {
      in: op.in.at,
      in_ld: op.in.ld,
      out: op.out.at,
      out_ld: op.out.ld,
      cols,
      cells: op.cells,
      ids: op.ids,
    },
    [groupsOf(mean ? cols : cols * op.cells), op.tokens],
  );
}

/** out += `taps` weighted rows of a table; all places are in the arena. */
export function interpolate(
  to: Dispatcher,
  op: { table: number; list: number; taps: number; out: Place; tokens: number; cols: number },
): void {
  to.run(
    { name: 'interpolate', texts: [interpolateText] },
    {
      table: op.table,
      out: op.out.at,
      out_ld: op.out.ld,
      cols: op.cols,
      list: op.list,
      taps: op.taps,
    },
    [groupsOf(op.cols), op.tokens],
  );
}

/** out = in W; W [rows][cols] is in the arena. */
export function transposed(
  to: Dispatcher,
  op: { in: Place; out: Place; tokens: number; matrix: number; rows: number; cols: number },
): void {
  to.run(
    { name: 'transposed', texts: [transposedText] },
    {
      in: op.in.at,
      in_ld: op.in.ld,
      out: op.out.at,
      out_ld: op.out.ld,
      matrix: op.matrix,
      rows: op.rows,
      cols: op.cols,
    },
    [groupsOf(op.cols), op.tokens],
  );
}

/** out = `expression` of x (in), y (out) and v: a vector, or its only value. */
export function map(
  to: Dispatcher,
  expression: string,
  op: { in: Place; out: Place; tokens: number; n: number; vec?: number; one?: boolean },
): void {
  const variant: Variant = { name: 'map', texts: [mapText], words: { EXPRESSION: expression } };
  const values: Values = {
    in: op.in.at,
    in_ld: op.in.ld,
    in_step: op.n,
    in_every: 1,
    out: op.out.at,
    out_ld: op.out.ld,
    out_step: op.n,
    n: op.n,
    other: op.out.at,
    other_ld: 0,
    other_step: 0,
    vector: op.vec ?? 0,
    vector_step: op.vec === undefined || op.one ? 0 : 1,
    heads: 1,
    a: 0,
    b: 0,
    c: 0,
    d: 0,
  };
  to.run(variant, values, [groupsOf(op.n), op.tokens]);
}
