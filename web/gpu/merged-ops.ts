// Merges operations of Gemma 3n and Gemma 4 before the weights are planned. Some then take one dispatch
// together, and per-layer embeddings are computed for all layers at once. Operations keep their indices:
// what another one computes has no values left.

import { streamTypes } from './kernels/gemma-ops.js';
import { Buf, kLaurelSum, NormKind, OpKind, type Mat, type Op, type Program } from './program.js';

/** Numbers of model::Activation. */
const kGeluMul = 1;
const kTanh = 7;

/** Takes the place of an operation that another one computes. */
const nothing = (op: Op): Op => ({ ...op, kind: OpKind.Scale, in: Buf.X, n: 0, parts: [] });

/** The operations from index `i` on, if they are of these kinds. */
function kindsAt(ops: Op[], i: number, ...kinds: OpKind[]): Op[] {
  const all = i < 0 ? [] : ops.slice(i, i + kinds.length);
  return all.length === kinds.length && all.every(({ kind }, k) => kind === kinds[k]) ? all : [];
}

/** A matrix multiplication with one part, and nothing besides. */
const isPlain = ({ parts, add }: Op): boolean =>
  parts.length === 1 && !add && parts[0]!.bias < 0 && parts[0]!.factor < 0;

const isRms = ({ norm, heads, vec1 }: Op): boolean =>
  norm === NormKind.Rms && heads === 1 && vec1 < 0;

const isInPlace = (op: Op): boolean => op.in === op.out && op.inCol === op.outCol;

/** tanh of a matrix multiplication's results is its activation. */
function mergeTanh({ ops, mats }: Program, i: number): void {
  const [product, cap] = kindsAt(ops, i - 1, OpKind.Matmul, OpKind.SoftCap);
  if (
    product &&
    cap!.softcap === 1 &&
    isInPlace(cap!) &&
    isPlain(product) &&
    product.out === cap!.out &&
    product.parts[0]!.outCol === cap!.outCol &&
    mats[product.parts[0]!.mat]!.rows === cap!.n
  )
    ops[i] = { ...cap!, kind: OpKind.Activate, act: kTanh };
}

/** AltUp's weights are computed where they are used, from the router's output. */
function mergeWeights({ ops, mats }: Program, i: number): void {
  const op = ops[i]!;
  const [product] = kindsAt(ops, i - 1, OpKind.Matmul);
  if (!product || !isPlain(product) || product.scale !== 1) return;
  const { mat, outCol } = product.parts[0]!;
  const { type, rows, cols } = mats[mat]!;
  if (
    product.in !== Buf.Router ||
    product.out !== Buf.Router ||
    outCol !== op.inCol ||
    cols !== op.heads ||
    rows !== op.heads * (op.kind === OpKind.MixStreams ? op.heads : 1) ||
    !streamTypes.includes(type)
  )
    return;
  ops[i] = { ...op, whole: [mat], apart: product, inCol: product.inCol };
  ops[i - 1] = nothing(product);
}

/** The corrected stream times a vector, for the gate of the per-layer embeddings. */
function mergeScaled({ ops, vecs }: Program, i: number): void {
  const op = ops[i]!;
  const [scaled] = kindsAt(ops, i + 1, OpKind.MulVec);
  if (
    !scaled ||
    scaled.in !== op.out ||
    scaled.inCol !== op.outCol ||
    scaled.out === op.out ||
    scaled.n !== op.n ||
    vecs[scaled.vec0] !== op.n
  )
    return;
  ops[i] = { ...op, merged: [scaled] };
  ops[i + 1] = { ...scaled, n: 0 };
}

/**
 * What the layer before adds to the streams behind the first is added where they are mixed. The router
 * between reads only the first.
 */
function mergeBehind({ ops }: Program, i: number): void {
  const op = ops[i]!;
  const others = op.heads - 1;
  const from = i - 5 - others;
  const [norm, ...behind] = kindsAt(
    ops,
    from,
    OpKind.Norm,
    ...Array<OpKind>(others).fill(OpKind.Add),
    ...[OpKind.Norm, OpKind.Matmul, OpKind.Activate, OpKind.Scale],
  );
  if (!norm) return;
  const added = behind.slice(0, others);
  const router = behind[others]!;
  if (
    !op.whole ||
    !isRms(norm) ||
    !isInPlace(norm) ||
    norm.n !== op.n ||
    router.in !== op.out ||
    router.inCol !== 0 ||
    router.n !== op.n ||
    router.out === norm.out ||
    !added.every(
      (add, k) =>
        add.in === norm.out &&
        add.inCol === norm.outCol &&
        add.out === op.out &&
        add.outCol === (k + 1) * op.n &&
        add.n === op.n &&
        add.scale === 1,
    )
  )
    return;
  ops[i] = { ...op, merged: [norm] };
  for (const [k, other] of [norm, ...added].entries()) ops[from + k] = nothing(other);
}

/** Sparse gates are activated at once. */
function mergeSparse({ ops }: Program, i: number): void {
  const [sparse, act] = kindsAt(ops, i, OpKind.Sparsify, OpKind.Activate);
  if (
    !act ||
    act.act !== kGeluMul ||
    act.in !== sparse!.out ||
    act.inCol !== sparse!.outCol ||
    act.n !== sparse!.n
  )
    return;
  ops[i] = { ...sparse!, merged: [act] };
  ops[i + 1] = nothing(act);
}

/**
 * The norm of attention's output, the residual stream and LAuReL, which is added to its own input, become
 * one sum. The norm before both is computed by each matrix multiplication that reads it.
 */
function mergeLaurel({ ops }: Program, i: number): void {
  const sum = [OpKind.Norm, OpKind.Add, OpKind.Add, OpKind.Scale];
  const [out, stream, laurel, scale] = kindsAt(ops, i - 3, ...sum);
  if (!out) return;
  const makes = ({ kind, out, outCol }: Op): boolean =>
    kind === OpKind.Add && out === laurel!.in && outCol === laurel!.inCol;
  let at = i - 4;
  while (at > 0 && !makes(ops[at]!)) at--;
  const [x, down, up, low, input, next] = kindsAt(
    ops,
    at - 4,
    ...[OpKind.Norm, OpKind.Matmul, OpKind.Matmul, OpKind.Norm, OpKind.Add, OpKind.Matmul],
  );
  if (
    !x ||
    ![out, low!, x].every((op) => isRms(op) && op.n === scale!.n && op.eps === x.eps) ||
    ![out, low!, scale!].every(isInPlace) ||
    ![stream!.in, stream!.inCol, input!.in, input!.inCol].every(
      (place, k) => place === [x.in, x.inCol, x.out, x.outCol][k],
    ) ||
    ![stream!, laurel!, scale!].every((op) => op.out === out.out && op.outCol === out.outCol) ||
    ![stream!, laurel!, input!].every((op) => op.n === x.n && op.scale === 1) ||
    low!.out !== input!.out ||
    low!.outCol !== input!.outCol ||
    [down!, up!, next!].some((op) => op.out === x.out) ||
    down!.in !== x.out ||
    next!.in !== x.out ||
    ops.slice(at + 1, i - 3).some((op) => op.out === low!.out || op.out === x.in)
  )
    return;
  ops[i] = { ...scale!, kind: kLaurelSum, merged: [out, low!, x] };
  for (const k of [i - 3, i - 2, i - 1, at - 1]) ops[k] = nothing(ops[k]!);
  ops[at] = x;
}

/** A layer's part of the per-layer embeddings: its operations, from index `at` on, and its gate. */
interface Part {
  at: number;
  all: Op[];
}

/** The part at index `at`, if its results are the second input of the gate's activation. */
function partAt({ ops, mats }: Program, at: number): Part | undefined {
  const all = kindsAt(
    ops,
    at,
    ...[OpKind.Matmul, OpKind.Norm, OpKind.Rows, OpKind.Scale, OpKind.Matmul, OpKind.Activate],
  );
  const [product, norm, rows, scale, gate, act] = all;
  if (!product || !isPlain(product) || !isPlain(gate!) || !isRms(norm!)) return undefined;
  const n = norm!.n;
  return product.in === Buf.X &&
    mats[product.parts[0]!.mat]!.rows === n &&
    product.parts[0]!.outCol === norm!.inCol &&
    [norm!, scale!].every(isInPlace) &&
    [norm!, rows!, scale!].every(
      (op) => op.out === product.out && op.outCol === norm!.outCol && op.n === n,
    ) &&
    rows!.add &&
    act!.act === kGeluMul &&
    act!.in === product.out &&
    act!.n === n &&
    act!.inCol + n === norm!.inCol &&
    act!.inCol === 0 &&
    gate!.out === act!.out &&
    gate!.parts[0]!.outCol === 0 &&
    gate!.in !== product.out
    ? { at, all }
    : undefined;
}

/** Whether a part is that of the layer behind another one, in the same matrix and table. */
function follows({ mats }: Program, first: Part, before: Part, part: Part): boolean {
  const [product, norm, rows, scale] = part.all as [Op, Op, Op, Op];
  const [product0, norm0, rows0, scale0] = first.all as [Op, Op, Op, Op];
  const [mat, mat0] = [product, product0].map((op) => mats[op.parts[0]!.mat]!) as [Mat, Mat];
  return (
    rows.inCol === before.all[2]!.inCol + rows.n &&
    product.inCol === product0.inCol &&
    product.scale === product0.scale &&
    norm.n === norm0.n &&
    norm.eps === norm0.eps &&
    norm.vec0 === norm0.vec0 &&
    rows.table === rows0.table &&
    rows.scale === rows0.scale &&
    scale.scale === scale0.scale &&
    mat.type === mat0.type &&
    mat.cols === mat0.cols &&
    mat.file === mat0.file &&
    mat.offset === mat0.offset + (rows.inCol - rows0.inCol) * mat.rowBytes
  );
}

/** Computes the parts of these layers at the first one, in a buffer that has columns for all layers. */
function mergeParts({ ops, mats, widths }: Program, parts: Part[]): void {
  const [product, norm, rows, scale] = parts[0]!.all as [Op, Op, Op, Op];
  const { n, inCol: column } = rows;
  const all = n * parts.length;
  const place = { out: Buf.First, outCol: column };
  for (const { at, all } of parts) {
    const act = all[5]!;
    ops[at + 5] = { ...act, up: [Buf.First, all[2]!.inCol] };
    for (let k = 0; k < 4; k++) ops[at + k] = nothing(all[k]!);
  }
  const [part] = product.parts;
  mats[part!.mat] = { ...mats[part!.mat]!, rows: all };
  const others = parts.slice(1).map(({ all }) => all[0]!.parts[0]!.mat);
  const merged = [
    { ...product, out: Buf.First, parts: [{ ...part!, outCol: column, others }] },
    { ...norm, ...place, in: Buf.First, inCol: column, heads: parts.length },
    { ...rows, ...place, n: all },
    { ...scale, ...place, in: Buf.First, inCol: column, n: all },
  ];
  for (const [k, op] of merged.entries()) ops[parts[0]!.at + k] = op;
  widths[Buf.First] = Math.max(widths[Buf.First]!, column + all);
}

/** Per-layer embeddings: what does not depend on the layers before is computed for many at once. */
function mergeLayers(program: Program): void {
  let parts: Part[] = [];
  const merge = (): void => {
    if (parts.length > 1) mergeParts(program, parts);
    parts = [];
  };
  for (const [i, { kind }] of program.ops.slice(0, program.pool).entries()) {
    if (kind === OpKind.Select) merge(); // rows have other places behind it
    const part = kind === OpKind.Matmul && partAt(program, i);
    if (!part) continue;
    if (parts.length && !follows(program, parts[0]!, parts.at(-1)!, part)) merge();
    parts.push(part);
  }
  merge();
}

/** Merges what a dispatch can compute together. Each result is as before, but for rounding. */
export function mergeOps(program: Program): void {
  for (let i = 0; i < program.pool; i++) {
    const { kind } = program.ops[i]!;
    if (kind === OpKind.SoftCap) mergeTanh(program, i);
    if (kind === OpKind.MixStreams || kind === OpKind.CorrectStreams) mergeWeights(program, i);
    if (kind === OpKind.MixStreams) mergeBehind(program, i);
    if (kind === OpKind.CorrectStreams) mergeScaled(program, i);
    if (kind === OpKind.Sparsify) mergeSparse(program, i);
    if (kind === OpKind.Scale) mergeLaurel(program, i);
  }
  mergeLayers(program);
}
