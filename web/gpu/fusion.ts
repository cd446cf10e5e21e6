// Prepares a program for the GPU: checks that the kernels support all operations, and fuses
// operations into one dispatch. Fused are a norm with the only matrix multiplication that reads it
// or with the residual stream that it is added to,
// a matrix multiplication with its activation, RoPE with norms of heads and writing to the KV
// cache, and the addition of one vector to several streams.

import { evictionIn } from './eviction-plan.js';
import { Kernels } from './kernels.js';
import { activated, severalOf } from './plan.js';
import { kOpNames, KvType, NormKind, OpKind, type Op, type Program } from './program.js';

export interface Step {
  /** Index of the operation. `norm` and `act` are fused with it. */
  index: number;
  op: Op;
  norm?: Op;
  act?: Op;
  /** Norm: what adds it to the residual stream. */
  residual?: Op;
  /** RoPE: norms of the heads of queries and keys before it. */
  heads?: [queries: Op, keys: Op];
  /** RoPE: also stores keys and values. Attention: they are already stored. */
  stores?: boolean;
}

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
]);
/** Operations that rare-ops.ts records. */
const kRare = new Set([
  OpKind.HeadMatmul,
  OpKind.MixStreams,
  OpKind.CorrectStreams,
  OpKind.MatchNorm,
  OpKind.Sparsify,
]);
/** Whether a program needs gpu-ops.js. */
export const hasRareOps = ({ ops }: Program): boolean => ops.some(({ kind }) => kRare.has(kind));

/** What the GPU does not support in this program; null: nothing. */
export function missing(program: Program): string | null {
  const { ops, mats, caches, pool } = program;
  const evicts = evictionIn(program);
  const most = evicts ? KvType.F16 : KvType.Q4;
  if (caches.some(({ heads, type }) => heads > 0 && type > most)) return 'this type of KV cache';
  for (const [i, op] of ops.slice(0, pool).entries()) {
    const begins = i === 0 || i === program.decoder;
    if (!(kDone.has(op.kind) || kRare.has(op.kind)) || (op.kind === OpKind.Embed) !== begins)
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
    if (op.out === out && (op.kind === OpKind.Norm || op.kind === OpKind.Matmul)) return true;
  }
  return true;
}

/**
 * RMS norms of the heads of queries and keys at `ops[i]`, before a RoPE that stores the keys. A norm of
 * the values may be between.
 */
function headNorms(ops: Op[], i: number): [queries: Op, keys: Op] | undefined {
  const [queries, keys, ...behind] = ops.slice(i, i + 5);
  const values = behind[0]?.kind === OpKind.Norm && behind.shift()!;
  const [rope, attention] = behind;
  if (rope?.kind !== OpKind.Rope || attention?.kind !== OpKind.Attention) return undefined;
  const { att } = rope;
  const normed = (op: Op, heads: number, column: number): boolean =>
    op.kind === OpKind.Norm &&
    op.norm === NormKind.Rms &&
    op.heads === heads &&
    op.n === att.dk &&
    op.vec1 < 0 &&
    op.in === rope.in &&
    op.out === rope.in &&
    op.inCol === column &&
    op.outCol === column;
  return att.owned &&
    attention.in === rope.in &&
    normed(queries!, att.heads, 0) &&
    normed(keys!, att.kvHeads, att.heads * att.dk) &&
    (!values || normed(values, att.kvHeads, (att.heads + att.kvHeads) * att.dk)) &&
    queries!.eps === keys!.eps &&
    queries!.vecPerHead === keys!.vecPerHead
    ? [queries!, keys!]
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
    if (heads) {
      i += 2;
      if (ops[i]!.kind === OpKind.Norm) steps.push({ index: i, op: ops[i++]! });
    }
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
