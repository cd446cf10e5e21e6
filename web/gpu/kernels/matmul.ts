// Matrix multiplications and row lookups. Divides parts that exceed a binding, chooses GEMV for few
// tokens or GEMM for many, and f32 or int8 activations.

import type { Matmul, Part, Rows } from './calls.js';
import { none, type Dispatcher } from './dispatcher.js';
import { activations } from './expressions.js';
import { activate, norm } from './groups.js';
import { kBinding, pasted, type Variant } from './shaders.js';
import { codebookOf, decoderOf, nativeHalves, rowBytes, typeOf } from './types.js';
import actsText from '../../../kernels/wgsl/acts.wgsl';
import quantizeText from '../../../kernels/wgsl/quantize.wgsl';
import rowsText from '../../../kernels/wgsl/rows.wgsl';
import tiledText from '../../../kernels/wgsl/gemm.wgsl';
import tiledCodes from '../../../kernels/wgsl/gemm_codes.wgsl';
import tiledValues from '../../../kernels/wgsl/gemm_values.wgsl';
import vectorText from '../../../kernels/wgsl/gemv.wgsl';
import vectorCodes from '../../../kernels/wgsl/gemv_codes.wgsl';
import vectorValues from '../../../kernels/wgsl/gemv_values.wgsl';
import weightsText from '../../../kernels/wgsl/weights.wgsl';

/** Maximum number of tokens for GEMV. */
export const kFewTokens = 8;
const kRows = 4; // per workgroup of GEMV
const kTileRows = 64,
  kTileTokens = 32;
const kGroupsOfOneDimension = 65535;

/** Rows of a part that fit in one binding. */
interface Chunk extends Part {
  range: { buffer: GPUBuffer; offset: number; size: number };
  base: number;
}

/** Divides a part into chunks that fit in a binding. */
function piecesOf(to: Dispatcher, part: Part, bytes: number, matrices = 1): Chunk[] {
  const align = to.limits.minStorageBufferOffsetAlignment;
  const most = Math.floor((to.limits.maxStorageBufferBindingSize - align - 4) / bytes);
  const pieces: Chunk[] = [];
  if (matrices > 1 && matrices * part.rows > most) throw new Error('experts larger than a binding');
  for (let row = 0; row < part.rows; row += most) {
    const rows = Math.min(most, part.rows - row);
    const begin = part.weights.offset + row * bytes;
    const offset = Math.floor(begin / align) * align;
    const size = Math.ceil((begin + matrices * rows * bytes - offset) / 4) * 4;
    pieces.push({
      ...part,
      rows,
      column: part.column + row,
      bias: part.bias === undefined ? undefined : part.bias + row,
      range: { buffer: part.weights.buffer, offset, size },
      base: begin - offset,
    });
  }
  return pieces;
}

/**
 * Common part of variants that decode rows of a type, and buffers to bind after the weights. `base`:
 * offset of rows in each binding.
 */
function rowsOfType(to: Dispatcher, type: number, cols: number, base: number[]) {
  const found = typeOf(type);
  const { values, bytes } = found;
  const codebook = codebookOf(found);
  const width = rowBytes(type, cols);
  const multiples = (of: number) => [...base, width].every((byte) => byte % of === 0);
  const native = to.features.f16 && type === nativeHalves.type && multiples(8);
  return {
    texts: native
      ? [pasted(nativeHalves.decode, base.length)]
      : [pasted(weightsText, base.length), pasted(decoderOf(found), base.length)],
    constants: {
      ALIGNED: multiples(4) && bytes % (values > 1 ? 4 : 1) === 0,
      TAIL: cols % 8 !== 0,
      NATIVE: native,
    },
    words: { CODEBOOK_BINDING: String(kBinding + base.length) },
    bound: (base.length + (codebook ? 1 : 0)) as 1 | 2 | 3 | 4,
    buffers: codebook ? [{ buffer: to.codebooks.get(codebook) }] : [],
    ...(native && { f16: true }),
  };
}

const kActBlock = 32,
  kActBytes = 36;
/** Bytes of int8 activations. */
export const actBytes = (rows: number, cols: number): number =>
  rows * Math.ceil(cols / kActBlock) * kActBytes;
/** Number of rows of x, which experts share. */
const rowsOf = ({ tokens, experts }: Matmul): number => Math.ceil(tokens / (experts?.share ?? 1));

/** Whether a multiplication with weights of this type uses int8 activations. */
const takesCodes = (
  { features, acts, coded }: Dispatcher,
  op: Matmul,
  type: number,
  few: boolean,
): boolean =>
  features.dots &&
  (few ? coded.gemv : coded.gemm) &&
  typeOf(type).coded &&
  actBytes(rowsOf(op), op.cols) <= (acts?.size ?? 0);

function quantize(to: Dispatcher, op: Matmul): void {
  const { x, cols, norm } = op;
  to.run(
    {
      name: 'quantize',
      texts: [quantizeText],
      sums: true,
      constants: { WG: 64, SUMS: 1, NORM: norm !== undefined },
      bound: 'written',
    },
    {
      x: x.at,
      x_ld: x.ld,
      cols,
      gain: none(norm?.weight),
      eps: norm?.eps ?? 0,
    },
    [Math.ceil(cols / 256), rowsOf(op)],
    [{ buffer: to.acts! }],
  );
}

export function matmul(to: Dispatcher, op: Matmul): void {
  const { activation, parts } = op;
  const gated = activation !== undefined && parts.length === 2;
  const few = op.tokens <= kFewTokens || op.experts !== undefined;
  const together = !gated || parts[0]!.weights.type === parts[1]!.weights.type;
  if (activation && (!few || !together)) {
    matmul(to, { ...op, activation: undefined });
    const at = { at: op.out.at + parts[0]!.column, ld: op.out.ld };
    return activate(to, { ...activation, at, tokens: op.tokens, n: parts[0]!.rows });
  }
  const codes = parts.map(({ weights }) => takesCodes(to, op, weights.type, few));
  if (op.norm && !few && codes.includes(false)) {
    const { weight, eps, scratch } = op.norm;
    norm(to, { in: op.x, out: scratch, tokens: op.tokens, n: op.cols, kind: 0, weight, eps });
    return matmul(to, { ...op, x: scratch, norm: undefined });
  }
  if (codes.includes(true)) quantize(to, op);
  const byType = new Map<number, Chunk[]>();
  for (const part of parts) {
    const { type } = part.weights;
    byType.set(type, [
      ...(byType.get(type) ?? []),
      ...piecesOf(to, part, rowBytes(type, op.cols), op.experts?.count),
    ]);
  }
  for (const [type, pieces] of byType) {
    const half = pieces.length / 2; // chunks of gate, then as many of up
    const lists = gated
      ? pieces.slice(0, half).map((piece, i) => [piece, pieces[half + i]!])
      : Array.from({ length: Math.ceil(pieces.length / 3) }, (_, i) =>
          pieces.slice(3 * i, 3 * i + 3),
        );
    for (const list of lists) product(to, op, type, list, few, gated);
  }
}

function product(
  to: Dispatcher,
  op: Matmul,
  type: number,
  pieces: Chunk[],
  few: boolean,
  gated: boolean,
): void {
  const rows = few ? kRows : kTileRows;
  const tokens = op.experts ? 1 : few ? (op.tokens > 2 ? 4 : op.tokens) : kTileTokens;
  const first: number[] = [];
  let groups = 0;
  for (const piece of gated ? pieces.slice(0, 1) : pieces) {
    first.push(groups);
    groups += Math.ceil(piece.rows / rows);
  }
  const coded = takesCodes(to, op, type, few);
  const base = pieces.map((piece) => piece.base);
  const { buffers, ...decoder } = rowsOfType(to, type, op.cols, base);
  const variant = few
    ? vectorOf(op, pieces.length, tokens, gated, coded)
    : tiledOf(pieces.length, decoder.constants.NATIVE, coded);
  const acts = coded ? [{ buffer: to.acts! }] : [];
  const xielu = op.activation?.xielu;
  to.run(
    {
      ...decoder,
      ...(coded && { dots: true, bound: (decoder.bound + 1) as 2 | 3 | 4 | 5 }),
      sums: few,
      name: `${few ? 'gemv' : 'gemm'} ${type}${coded ? ' codes' : ''}`,
      texts: [...decoder.texts, ...(coded ? [actsText] : []), ...variant.texts],
      constants: { ...decoder.constants, ...variant.constants },
      words: {
        ...decoder.words,
        ACTS_BINDING: String(kBinding + decoder.bound),
        ...variant.words,
      },
    },
    {
      base,
      rows: pieces.map((piece) => piece.rows),
      first,
      column: pieces.map((piece) => piece.column),
      bias: pieces.map((piece) => none(piece.bias)),
      factor: pieces.map((piece) => none(piece.factor)),
      x: op.x.at,
      x_ld: op.x.ld,
      y: op.out.at,
      y_ld: op.out.ld,
      cols: op.cols,
      units: Math.ceil(op.cols / 8),
      row_bytes: rowBytes(type, op.cols),
      tokens: op.tokens,
      groups,
      gain: none(op.norm?.weight),
      eps: op.norm?.eps ?? 0,
      scale: op.scale ?? 1,
      add: Number(op.add ?? false),
      positive: xielu?.positive ?? 0,
      negative: xielu?.negative ?? 0,
      linear: xielu?.linear ?? 0,
      below: xielu?.below ?? 0,
      stride: pieces.map((piece) => piece.rows * rowBytes(type, op.cols)),
      ids: op.experts?.ids ?? 0,
      expert: op.experts?.first ?? 0,
      experts: op.experts?.count ?? 1,
      share: op.experts?.share ?? 1,
    },
    [...spread(groups), Math.ceil(op.tokens / tokens)],
    [...pieces.map((piece) => piece.range), ...buffers, ...acts],
  );
}

type Kind = Required<Pick<Variant, 'texts' | 'constants' | 'words'>>;

/** WGSL that runs `f` for the part of the workgroup. */
const byPart = (parts: number, f: (part: number) => string, i = 0): string =>
  i + 1 === parts ? f(i) : `if (part == ${i}u) { ${f(i)} } else { ${byPart(parts, f, i + 1)} }`;

function vectorOf(
  { activation, norm, experts }: Matmul,
  parts: number,
  tokens: number,
  gated: boolean,
  coded: boolean,
): Kind {
  const results = kRows * tokens * (gated ? 2 : 1);
  const normed = norm !== undefined && !coded;
  const text = vectorText.replace(
    '//@ accumulate',
    gated
      ? 'accumulate0(0u, row, token, at.lane, &sums); ' +
          'accumulate1(RESULTS, row, token, at.lane, &sums);'
      : byPart(parts, (i) => `accumulate${i}(0u, row, token, at.lane, &sums);`),
  );
  return {
    texts: [text, pasted(coded ? vectorCodes : vectorValues, parts)],
    constants: {
      WG: 64,
      ROWS: kRows,
      TOKENS: tokens,
      PARTS: parts,
      GATED: gated,
      NORM: normed,
      SUMS: results + (normed ? tokens : 0),
      EXPERTS: experts !== undefined,
    },
    words: {
      ACTIVATION: activation
        ? activations(activation.kind, [
            'gate',
            'up',
            'p.positive',
            'p.negative',
            'p.linear',
            'p.below',
          ])
        : 'gate',
    },
  };
}

function tiledOf(parts: number, native: boolean, coded: boolean): Kind {
  return {
    texts: [
      tiledText.replace(
        '//@ load',
        byPart(parts, (i) => `load_weights${i}(row, unit, lane);`),
      ),
      pasted(coded ? tiledCodes : tiledValues, parts),
    ],
    constants: { PARTS: parts },
    words: { HELD: native ? 'f16' : 'f32' },
  };
}

/** Distributes workgroups over two dimensions. The last row may be incomplete. */
function spread(groups: number): [number, number] {
  const high = Math.ceil(groups / kGroupsOfOneDimension);
  return [Math.ceil(groups / Math.max(high, 1)), high];
}

export function rows(to: Dispatcher, op: Rows): void {
  const bytes = rowBytes(op.weights.type, op.cols);
  const [piece] = piecesOf(to, { weights: op.weights, rows: op.count, column: 0 }, bytes);
  if (piece!.rows < op.count) throw new Error('a table larger than a binding');
  const units = Math.ceil(op.cols / 8);
  const { buffers, ...decoder } = rowsOfType(to, op.weights.type, op.cols, [piece!.base]);
  to.run(
    { ...decoder, texts: [...decoder.texts, rowsText], name: `rows ${op.weights.type}` },
    {
      base: [piece!.base],
      ids: op.ids,
      y: op.out.at,
      y_ld: op.out.ld,
      cols: op.cols,
      units,
      row_bytes: bytes,
      first: op.column ?? 0,
      n: op.n,
      scale: op.scale ?? 1,
      add: Number(op.add ?? false),
    },
    [Math.ceil(units / 64), op.tokens],
    [piece!.range, ...buffers],
  );
}
