// Products of weights with rows of activations, and rows of a table: parts cut where a binding ends, the kernel
// for few tokens or for many.

import type { Matmul, Part, Rows } from './calls.js';
import { none, type Dispatcher } from './dispatcher.js';
import { activations } from './expressions.js';
import { activate, norm } from './groups.js';
import { pasted, type Variant } from './shaders.js';
import { rowBytes, typeOf } from './types.js';
import rowsText from '../../../kernels/wgsl/rows.wgsl';
import tiledText from '../../../kernels/wgsl/tiled.wgsl';
import vectorText from '../../../kernels/wgsl/vector.wgsl';
import weightsText from '../../../kernels/wgsl/weights.wgsl';

/** The most tokens that products take as vectors. */
export const kFewTokens = 8;
const kRows = 4;  // of a workgroup there
const kTileRows = 64, kTileTokens = 32;
const kGroupsOfOneDimension = 65535;

/** Rows of a part that one binding reaches. */
interface Piece extends Part { range: { buffer: GPUBuffer; offset: number; size: number }; base: number }

/** Cut where one binding ends. */
function piecesOf(to: Dispatcher, part: Part, bytes: number, matrices = 1): Piece[] {
  const align = to.limits.minStorageBufferOffsetAlignment;
  const most = Math.floor((to.limits.maxStorageBufferBindingSize - align - 4) / bytes);
  const pieces: Piece[] = [];
  if (matrices > 1 && matrices * part.rows > most) throw new Error('experts larger than a binding');
  for (let row = 0; row < part.rows; row += most) {
    const rows = Math.min(most, part.rows - row);
    const begin = part.weights.offset + row * bytes;
    const offset = Math.floor(begin / align) * align;
    const size = Math.ceil((begin + matrices * rows * bytes - offset) / 4) * 4;
    pieces.push({
      ...part, rows, column: part.column + row, bias: part.bias === undefined ? undefined : part.bias + row,
      range: { buffer: part.weights.buffer, offset, size }, base: begin - offset,
    });
  }
  return pieces;
}

/** What all variants that read rows of a type have in common. */
function decoderOf(type: number, cols: number, bindings: number, text: string, aligned: boolean) {
  return {
    texts: [pasted(weightsText, bindings), pasted(typeOf(type).decode, bindings), text],
    constants: { ALIGNED: aligned && rowBytes(type, cols) % 4 === 0 && typeOf(type).bytes % (typeOf(type).values > 1 ? 4 : 1) === 0, TAIL: cols % 8 !== 0 },
    bound: bindings as 1 | 2 | 3,
  };
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
  if (op.norm && !few) {
    const { weight, eps, scratch } = op.norm;
    norm(to, { in: op.x, out: scratch, tokens: op.tokens, n: op.cols, kind: 0, weight, eps });
    return matmul(to, { ...op, x: scratch, norm: undefined });
  }
  const byType = new Map<number, Piece[]>();
  for (const part of parts) {
    const { type } = part.weights;
    byType.set(type, [...byType.get(type) ?? [], ...piecesOf(to, part, rowBytes(type, op.cols), op.experts?.count)]);
  }
  for (const [type, pieces] of byType) {
    const half = pieces.length / 2; // of gate; as many of up
    const lists = gated ? pieces.slice(0, half).map((piece, i) => [piece, pieces[half + i]!])
      : Array.from({ length: Math.ceil(pieces.length / 3) }, (_, i) => pieces.slice(3 * i, 3 * i + 3));
    for (const list of lists) product(to, op, type, list, few, gated);
  }
}

function product(to: Dispatcher, op: Matmul, type: number, pieces: Piece[], few: boolean, gated: boolean): void {
  const rows = few ? kRows : kTileRows;
  const tokens = op.experts ? 1 : few ? (op.tokens > 2 ? 4 : op.tokens) : kTileTokens;
  const first: number[] = [];
  let groups = 0;
  for (const piece of gated ? pieces.slice(0, 1) : pieces) {
    first.push(groups);
    groups += Math.ceil(piece.rows / rows);
  }
  const call = (i: number, f: (i: number) => string): string => i + 1 === pieces.length ? f(i) : `if (part == ${i}u) { ${f(i)} } else { ${call(i + 1, f)} }`;
  const aligned = pieces.every((piece) => piece.base % 4 === 0);
  let text: string, variant: Variant;
  const xielu = op.activation?.xielu;
  if (few) {
    const results = rows * tokens * (gated ? 2 : 1);
    text = pasted(vectorText, pieces.length).replace('//@ accumulate', gated
      ? 'accumulate0(0u, row, token, at.lane, &sums); accumulate1(RESULTS, row, token, at.lane, &sums);'
      : call(0, (i) => `accumulate${i}(0u, row, token, at.lane, &sums);`));
    const decoder = decoderOf(type, op.cols, pieces.length, text, aligned);
    variant = {
      ...decoder, name: `vector ${type}`, sums: true,
      constants: {
        ...decoder.constants, WG: 64, ROWS: rows, TOKENS: tokens, PARTS: pieces.length, GATED: gated,
        NORM: op.norm !== undefined, SUMS: results + (op.norm ? tokens : 0), EXPERTS: op.experts !== undefined,
      },
      words: { ACTIVATION: op.activation ? activations(op.activation.kind, ['gate', 'up', 'p.positive', 'p.negative', 'p.linear', 'p.below']) : 'gate' },
    };
  } else {
    text = pasted(tiledText, pieces.length).replace('//@ load', call(0, (i) => `load_weights${i}(row, unit, lane);`));
    const decoder = decoderOf(type, op.cols, pieces.length, text, aligned);
    variant = { ...decoder, name: `tiled ${type}`, constants: { ...decoder.constants, PARTS: pieces.length } };
  }
  to.run(variant, {
    base: pieces.map((piece) => piece.base), rows: pieces.map((piece) => piece.rows), first,
    column: pieces.map((piece) => piece.column), bias: pieces.map((piece) => none(piece.bias)),
    factor: pieces.map((piece) => none(piece.factor)),
    x: op.x.at, x_ld: op.x.ld, y: op.out.at, y_ld: op.out.ld, cols: op.cols, units: Math.ceil(op.cols / 8),
    row_bytes: rowBytes(type, op.cols), tokens: op.tokens, groups, gain: none(op.norm?.weight), eps: op.norm?.eps ?? 0,
    scale: op.scale ?? 1, add: Number(op.add ?? false),
    positive: xielu?.positive ?? 0, negative: xielu?.negative ?? 0, linear: xielu?.linear ?? 0, below: xielu?.below ?? 0,
    stride: pieces.map((piece) => piece.rows * rowBytes(type, op.cols)), ids: op.experts?.ids ?? 0,
    expert: op.experts?.first ?? 0, experts: op.experts?.count ?? 1, share: op.experts?.share ?? 1,
  }, [...spread(groups), Math.ceil(op.tokens / tokens)], pieces.map((piece) => piece.range));
}

/** So many workgroups in two dimensions, the last row of which may not be full. */
function spread(groups: number): [number, number] {
  const high = Math.ceil(groups / kGroupsOfOneDimension);
  return [Math.ceil(groups / Math.max(high, 1)), high];
}

export function rows(to: Dispatcher, op: Rows): void {
  const bytes = rowBytes(op.weights.type, op.cols);
  const [piece] = piecesOf(to, { weights: op.weights, rows: op.count, column: 0 }, bytes);
  if (piece!.rows < op.count) throw new Error('a table larger than a binding');
  const units = Math.ceil(op.cols / 8);
  to.run({ ...decoderOf(op.weights.type, op.cols, 1, rowsText, piece!.base % 4 === 0), name: `rows ${op.weights.type}` }, {
    base: [piece!.base], ids: op.ids, y: op.out.at, y_ld: op.out.ld, cols: op.cols, units, row_bytes: bytes,
    first: op.column ?? 0, n: op.n, scale: op.scale ?? 1, add: Number(op.add ?? false),
  }, [Math.ceil(units / 64), op.tokens], [piece!.range]);
}
