// Matrix multiplications and row lookups. Divides parts that exceed a binding, chooses GEMV for few
// tokens or GEMM for many, and f32 or int8 activations. A GEMV has parts of several quantization
// types, such as values that have more bits than queries and keys.

import type { Matmul, Part, Rows } from './calls.js';
import { none, type Dispatcher } from './dispatcher.js';
import { activations } from './expressions.js';
import { activate, norm } from './groups.js';
import { kBinding, pasted, renamed, type Bound, type Variant } from './shaders.js';
import { codebookOf, decoderOf, nativeHalves, rowBytes, typeOf } from './types.js';
import actsText from '../../../kernels/wgsl/acts.wgsl';
import ownActsText from '../../../kernels/wgsl/own_acts.wgsl';
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
const kParts = 3; // of a dispatch, at most
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
 * What decodes rows of a type: a text for each binding, constants, and the type's codebook. `base`:
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
    text: () => (native ? nativeHalves.decode : weightsText + decoderOf(found)),
    aligned: multiples(4) && bytes % (values > 1 ? 4 : 1) === 0,
    native,
    codebook: codebook && [{ buffer: to.codebooks.get(codebook) }],
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

/** Words of the codes that a workgroup of GEMV makes for itself, at most. */
const kMaxOwnCols = 12288;

/**
 * Words of workgroup memory for the codes of one token's x; 0: a dispatch before makes them, for
 * several tokens or a row that is too long. A power of two, so that models need few pipelines.
 */
function ownWords({ tokens, experts, cols }: Matmul, few: boolean): number {
  if (!few || cols > kMaxOwnCols || (tokens > 1 && !experts)) return 0;
  return (Math.min(2 ** Math.ceil(Math.log2(cols)), kMaxOwnCols) / kActBlock) * (kActBytes / 4);
}

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
  if (codes.includes(true) && !ownWords(op, few)) quantize(to, op);
  const chunks = parts.flatMap((part) =>
    piecesOf(to, part, rowBytes(part.weights.type, op.cols), op.experts?.count),
  );
  const byType = new Map<number, Chunk[]>();
  for (const chunk of chunks) {
    const { type } = chunk.weights;
    byType.set(type, [...(byType.get(type) ?? []), chunk]);
  }
  const mixed =
    few &&
    !gated &&
    chunks.length <= kParts &&
    new Set(codes).size === 1 &&
    [...byType.keys()].every((type) => !codebookOf(typeOf(type)));
  for (const pieces of mixed ? [chunks] : byType.values()) {
    const half = pieces.length / 2; // chunks of gate, then as many of up
    const lists = gated
      ? pieces.slice(0, half).map((piece, i) => [piece, pieces[half + i]!])
      : Array.from({ length: Math.ceil(pieces.length / kParts) }, (_, i) =>
          pieces.slice(kParts * i, kParts * (i + 1)),
        );
    for (const list of lists) product(to, op, list, few, gated);
  }
}

function product(to: Dispatcher, op: Matmul, pieces: Chunk[], few: boolean, gated: boolean): void {
  const rows = few ? kRows : kTileRows;
  const tokens = op.experts ? 1 : few ? (op.tokens > 2 ? 4 : op.tokens) : kTileTokens;
  const first: number[] = [];
  let groups = 0;
  for (const piece of gated ? pieces.slice(0, 1) : pieces) {
    first.push(groups);
    groups += Math.ceil(piece.rows / rows);
  }
  const types = pieces.map(({ weights }) => weights.type);
  const kinds = [...new Set(types)];
  const coded = takesCodes(to, op, kinds[0]!, few);
  const base = pieces.map((piece) => piece.base);
  const decoders = kinds.map((type) =>
    rowsOfType(
      to,
      type,
      op.cols,
      base.filter((_, i) => types[i] === type),
    ),
  );
  const { native, codebook } = decoders[0]!;
  const own = coded ? ownWords(op, few) : 0;
  const variant = few
    ? vectorOf(op, pieces.length, tokens, gated, coded, own)
    : tiledOf(pieces.length, native, coded);
  const textOf = ({ text }: (typeof decoders)[0], kind: number): string => {
    const own = text() + variant.inner;
    return pasted(
      kind ? renamed(own, kind, ['ALIGNED', 'NATIVE']) : own,
      types.flatMap((type, i) => (type === kinds[kind] ? [i] : [])),
    );
  };
  const constants = Object.fromEntries(
    decoders.flatMap(({ aligned, native }, kind) => {
      const suffix = kind ? `_${kind}` : '';
      return [
        [`ALIGNED${suffix}`, aligned],
        [`NATIVE${suffix}`, native],
      ];
    }),
  );
  const tiles = Math.ceil(op.tokens / tokens);
  for (const { weights, rows: count } of pieces)
    to.weightBytes += tiles * Math.ceil(count / rows) * rows * rowBytes(weights.type, op.cols);
  const acts = coded && !own ? [{ buffer: to.acts! }] : [];
  const xielu = op.activation?.xielu;
  const bound = pieces.length + (codebook ? 1 : 0);
  to.run(
    {
      name: `${few ? 'gemv' : 'gemm'} ${kinds.length > 1 ? types.join() : kinds[0]}${coded ? ' codes' : ''}`,
      texts: () => [
        ...(own ? [ownActsText] : coded ? [actsText] : []),
        variant.text(),
        ...decoders.map(textOf),
      ],
      constants: { ...constants, TAIL: op.cols % 8 !== 0, ...variant.constants },
      words: {
        CODEBOOK_BINDING: String(kBinding + pieces.length),
        ACTS_BINDING: String(kBinding + bound),
        ...variant.words,
      },
      bound: (bound + acts.length) as Bound,
      sums: few,
      dots: coded,
      f16: decoders.some(({ native }) => native),
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
      row_bytes: types.map((type) => rowBytes(type, op.cols)),
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
      stride: pieces.map((piece, i) => piece.rows * rowBytes(types[i]!, op.cols)),
      ids: op.experts?.ids ?? op.activation?.up?.at ?? 0,
      expert: op.experts?.first ?? op.activation?.up?.ld ?? 0,
      experts: op.experts?.count ?? 1,
      share: op.experts?.share ?? 1,
      weights: none(op.experts?.weights),
    },
    [...spread(groups), tiles],
    [...pieces.map((piece) => piece.range), ...(codebook ?? []), ...acts],
  );
}

/** `inner`: the text that each quantization type has, behind its decoder. */
type Kind = Required<Pick<Variant, 'constants' | 'words'>> & { text(): string; inner: string };

/** WGSL that runs `f` for the part of the workgroup. */
const byPart = (parts: number, f: (part: number) => string, i = 0): string =>
  i + 1 === parts ? f(i) : `if (part == ${i}u) { ${f(i)} } else { ${byPart(parts, f, i + 1)} }`;

function vectorOf(
  { activation, norm, experts }: Matmul,
  parts: number,
  tokens: number,
  gated: boolean,
  coded: boolean,
  own: number,
): Kind {
  const results = kRows * tokens * (gated ? 2 : 1);
  const normed = norm !== undefined && (!coded || own > 0);
  const squares =
    'let squares = quantize(at.lane, token); if (NORM) { sums[SUMS - 1u] = squares; }';
  const text = (): string =>
    vectorText
      .replace('//@ quantize', own ? squares : '')
      .replace(
        '//@ accumulate',
        gated
          ? 'accumulate0(0u, row, token, at.lane, &sums); ' +
              'accumulate1(RESULTS, row, token, at.lane, &sums);'
          : byPart(parts, (i) => `accumulate${i}(0u, row, token, at.lane, &sums);`),
      );
  return {
    text,
    inner: coded ? vectorCodes : vectorValues,
    constants: {
      WG: 64,
      ROWS: kRows,
      TOKENS: tokens,
      PARTS: parts,
      GATED: gated,
      NORM: normed,
      ...(own && { OWN: own }),
      SUMS: results + (normed ? tokens : 0),
      EXPERTS: experts !== undefined,
    },
    words: {
      ACTIVATION: activation
        ? activations(activation.kind, [
            'gate',
            activation.up ? 'arena[p.ids + t * p.expert + p.column.x + r]' : 'up',
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
    text: () =>
      tiledText.replace(
        '//@ load',
        byPart(parts, (i) => `load_weights${i}(row, unit, lane);`),
      ),
    inner: coded ? tiledCodes : tiledValues,
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
  const units = Math.ceil(op.cols / 8);
  for (const piece of piecesOf(to, { weights: op.weights, rows: op.count, column: 0 }, bytes)) {
    const { text, aligned, native, codebook } = rowsOfType(to, op.weights.type, op.cols, [
      piece.base,
    ]);
    to.run(
      {
        name: `rows ${op.weights.type}`,
        texts: () => [pasted(text(), [0]), rowsText],
        constants: { ALIGNED: aligned, NATIVE: native, TAIL: op.cols % 8 !== 0 },
        words: { CODEBOOK_BINDING: String(kBinding + 1) },
        bound: codebook ? 2 : 1,
        f16: native,
      },
      {
        base: [piece.base],
        ids: op.ids + (op.step ?? 0),
        y: op.out.at,
        y_ld: op.out.ld,
        cols: op.cols,
        units,
        row_bytes: bytes,
        first: op.column ?? 0,
        n: op.n,
        scale: op.scale ?? 1,
        add: Number(op.add ?? false),
        row: (op.row ?? 0) + piece.column,
        count: piece.rows,
      },
      [Math.ceil(units / 64), op.tokens],
      [piece.range, ...(codebook ?? [])],
      op.step === undefined ? undefined : { ids: [0, 1] },
    );
  }
}
