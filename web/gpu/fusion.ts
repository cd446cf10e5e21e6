// Prepares a program for the GPU: checks that the kernels support all operations, and fuses
// operations into one dispatch. Fused are a norm with the only matrix multiplication that reads it
// or with the residual stream that it is added to,
// a matrix multiplication with its activation, RoPE with norms of heads and writing to the KV
// cache, and the addition of one vector to several streams. merged-ops.ts has merged others before.

import { evictionIn } from './eviction-plan.js';
import { Kernels } from './kernels.js';
import { activated, severalOf } from './plan.js';
import {
  kLaurelSum,
  kOpNames,
  KvType,
  NormKind,
  OpKind,
  type Op,
  type Program,
} from './program.js';
import type { Step } from './record.js';

/** States that an invocation of the selective scan keeps in registers, at most. */
const kMaxScanKeys = 256;
const kDone = new Set([
  OpKind.Embed,
  OpKind.Norm,
  OpKind.Matmul,
  OpKind.Rope,
  OpKind.Attention,
  OpKind.Activate,
  OpKind.Add,
  OpKind.Select,
  OpKind.SoftCap,
  OpKind.Scale,
  OpKind.Gate,
  OpKind.Clamp,
  OpKind.Unary,
  OpKind.Copy,
  OpKind.MulVec,
  OpKind.Moe,
  OpKind.Conv,
  OpKind.Decay,
  OpKind.Shift,
  OpKind.Lerp,
  OpKind.State,
  OpKind.Scan,
  OpKind.Rwkv7Keys,
  OpKind.Rwkv7Mix,
  OpKind.Rwkv7Bonus,
  OpKind.Gated,
  OpKind.Temperature,
  OpKind.Rows,
  OpKind.HeadMatmul,
  OpKind.MixStreams,
  OpKind.CorrectStreams,
  OpKind.MatchNorm,
  OpKind.Sparsify,
  kLaurelSum,
]);
/** Whether a program has an operation of this kind. */
export const has = ({ ops }: Program, kind: OpKind): boolean => ops.some((op) => op.kind === kind);

/** What the GPU does not support in this program; null: nothing. */
export function missing(program: Program): string | null {
  const { ops, mats, caches, pool } = program;
  const evicts = evictionIn(program);
  const most = evicts ? KvType.F16 : KvType.Q4;
  if (caches.some(({ heads, type }) => heads > 0 && type > most)) return 'this type of KV cache';
  for (const [i, op] of ops.slice(0, pool).entries()) {
    const begins = i === 0 || i === program.decoder;
    if (!kDone.has(op.kind) || (op.kind === OpKind.Embed) !== begins)
      return `the operation ${kOpNames[op.kind]}`;
    // Attention reads a window or the ring's positions, and ALiBi has no place for those beside it.
    if (
      evicts &&
      (op.alibi || (op.window > evicts.window + evicts.sinks && op.window < evicts.ring))
    )
      return 'this KV cache eviction';
    if (op.att.valuesInKeys && quantized(program)) return 'this type of KV cache';
    if (op.kind === OpKind.Scan && program.recurrences[op.rec!]![4]! > kMaxScanKeys)
      return `more than ${kMaxScanKeys} states per channel`;
    const { first = [] } = severalOf(program, op) ?? {};
    const [gate, up] = first;
    if (up !== undefined && gate! >= 0 && mats[gate!]!.type !== mats[up]!.type)
      return 'gate and up matrices of different types';
    for (const mat of [
      ...op.parts.map(({ mat }) => mat),
      ...(op.kind === OpKind.Rows ? [program.tables[op.table!]!] : []),
      ...first.filter((mat) => mat >= 0),
    ])
      if (!Kernels.supports(mats[mat]!.type)) return `the quantization type of ${mats[mat]!.name}`;
  }
  return null;
}

const kOverwriting = [OpKind.Norm, OpKind.Matmul, OpKind.Attention, OpKind.MulVec];

/** Whether only `ops[i + 1]` reads the output of `ops[i]`. */
function readOnce(ops: Op[], i: number, end: number): boolean {
  const { out } = ops[i]!;
  for (let k = i + 2; k < end; k++) {
    const op = ops[k]!;
    const reads =
      op.in === out ||
      (op.kind === OpKind.Gated && op.gate[0] === out) ||
      (op.out === out && (op.add || op.kind === OpKind.Add));
    if (reads) return false;
    if (op.out === out && kOverwriting.includes(op.kind)) return true;
  }
  return true;
}

/**
 * RMS norms of heads from `ops[i]` on, before a RoPE: of queries, of keys that it stores, and possibly of
 * values, without weights. A layer that reads the KV cache of another one has queries only.
 */
function headNorms(ops: Op[], i: number): Op[] | undefined {
  let end = i;
  while (ops[end]?.kind === OpKind.Norm) end++;
  const norms = ops.slice(i, end);
  const [rope, attention] = [ops[end], ops[end + 1]];
  if (rope?.kind !== OpKind.Rope || attention?.kind !== OpKind.Attention) return undefined;
  const { heads, kvHeads, dk, owned } = rope.att;
  const [first, keys] = norms;
  const normed = (op: Op, k: number): boolean =>
    op.norm === NormKind.Rms &&
    op.heads === (k ? kvHeads : heads) &&
    op.n === dk &&
    op.vec1 < 0 &&
    op.in === rope.in &&
    op.out === rope.in &&
    op.inCol === (k ? heads + (k - 1) * kvHeads : 0) * dk &&
    op.outCol === op.inCol &&
    op.eps === first!.eps &&
    (k < 2 ? op.vecPerHead === first!.vecPerHead : op.vec0 < 0);
  return first && attention.in === rope.in && owned === !!keys && norms.every(normed)
    ? norms
    : undefined;
}

/** Equal for additions of the same values to the same buffer. */
const additionOf = ({ kind, in: from, inCol, out, n, scale }: Op): string =>
  [kind, from, inCol, out, n, scale].join();

/** Whether the KV cache is quantized. All layers have one type. */
export const quantized = ({ caches }: Pick<Program, 'caches'>): boolean =>
  caches.some(({ heads, type }) => heads > 0 && type !== KvType.F16);

/**
 * The steps of a pass for embeddings, or of an encoder before its decoder. It ends before operation
 * `hidden` with rows of all tokens.
 */
export const hiddenSteps = (program: Program, hidden: number): Step[] =>
  stepsOf({
    ...program,
    ops: program.ops.slice(0, hidden),
    decoder: 0,
    pool: Math.min(hidden, program.pool),
  }).filter(({ op }) => op.kind !== OpKind.Select);

export function stepsOf(program: Program): Step[] {
  const { ops, mats, pool, decoder } = program;
  const steps: Step[] = [];
  for (let i = decoder + 1; i < pool; i++) {
    const heads = headNorms(ops, i);
    if (heads) i += heads.length;
    const op = ops[i]!;
    const next = ops[i + 1]!;
    const step: Step = { index: i, op, ...(heads && { heads }) };
    const last = steps.at(-1);
    if (
      op.kind === OpKind.Add &&
      op.in !== op.out &&
      last &&
      additionOf(op) === additionOf(last.op) &&
      op.outCol === last.op.outCol + last.op.heads * op.n
    ) {
      last.op = { ...last.op, heads: last.op.heads + 1, inStep: 0, outStep: op.n };
      continue;
    }
    const normed =
      op.kind === OpKind.Norm &&
      op.norm === NormKind.Rms &&
      op.heads === 1 &&
      op.vec1 < 0 &&
      op.in !== op.out &&
      op.outCol === 0 &&
      next?.kind === OpKind.Matmul &&
      next.in === op.out &&
      next.inCol === 0 &&
      next.n === op.n;
    if (normed && readOnce(ops, i, pool)) {
      step.index = ++i;
      step.op = next;
      step.norm = op;
    }
    const residual =
      step.op === op &&
      op.kind === OpKind.Norm &&
      next?.kind === OpKind.Add &&
      op.heads === 1 &&
      next.heads === 1 &&
      next.in === op.out &&
      next.inCol === op.outCol &&
      next.n === op.n &&
      next.out !== op.in &&
      next.scale !== 0;
    if (residual && readOnce(ops, i, pool)) step.residual = ops[++i]!;
    if (step.op.kind === OpKind.Matmul && activated(ops, step.index, mats)) step.act = ops[++i]!;
    if (
      op.kind === OpKind.Rope &&
      next?.kind === OpKind.Attention &&
      op.att.owned &&
      next.in === op.in
    )
      step.stores = true;
    if (op.kind === OpKind.Attention)
      step.stores = steps.at(-1)?.stores === true && steps.at(-1)!.op.kind === OpKind.Rope;
    steps.push(step);
  }
  return steps;
}
