// Records the operations of a program as kernel calls, with their places in the arena. The arena
// contains the buffers of model/op.h, each [nBatch][width] in f32, then the RoPE tables, scratch
// memory of attention and experts, and the recurrent states.

import {
  actBytes,
  attentionScratch,
  kFewTokens,
  type Activated,
  type Attention,
  type Cache,
  type Part,
  type Place,
  type Recorder,
} from './kernels.js';
import { Buf, Mix, NonCausal, OpKind, Word, type Op, type Program } from './program.js';
import { evictionIn, planEviction, type EvictionPlan } from './eviction-plan.js';
import type { KvEviction } from './eviction.js';
import type { KvCopies } from './kv-cache.js';
import { planStates, type Carrying, type StatePlan } from './state-plan.js';
import { planQueue, type QueuePlan } from './queue-plan.js';
import { align, type Unit } from './plan.js';

/** Offsets and sizes in the arena, in floats. */
export interface Layout {
  buffers: number[];
  ropes: number[];
  /** Rows of a picture, [batch][(1 + deepstack) nEmbd]; without deepstack, none. */
  media: number;
  scratch: number;
  /** For each pair of token and expert: the expert's id, its weight, hidden values and output. */
  experts: { ids: number; weights: number; hidden: number; given: number };
  states: StatePlan;
  eviction: EvictionPlan;
  queue: QueuePlan;
  /** 0, 1, 2 …: the rows of a batch, if the program reads rows of tables, or heads. */
  numbers: number;
  /** Size of the arena. */
  floats: number;
  /** Bytes of the largest int8 activations. */
  actBytes: number;
  /** Offset of each vector, and size of all. */
  vecs: number[];
  vecFloats: number;
}

export function layOut(program: Program, batch: number): Layout {
  let floats = 0;
  const take = (n: number): number => {
    const at = floats;
    floats += Math.ceil(n / 64) * 64;
    return at;
  };
  const rows = (buf: number): number => (buf === Buf.Logits ? program.logitsRows : batch);
  const buffers = program.widths.map((width, buf) => take(rows(buf) * width));
  const ropes = program.ropes.map(({ nRot }) => take(batch * nRot));
  const { deepstack, nEmbd } = program;
  const media = take(deepstack ? batch * (1 + deepstack) * nEmbd : 0);
  const attention = program.ops.filter(({ kind }) => kind === OpKind.Attention);
  const eviction = planEviction(program, batch, take);
  const scratch = take(
    Math.max(
      0,
      ...attention.map(({ att }) =>
        attentionScratch(att.heads, att.dv, evictionIn(program) && batch),
      ),
    ),
  );
  const most = (size: (numbers: number[], n: number) => number): number =>
    Math.max(
      0,
      ...program.ops
        .filter(({ kind }) => kind === OpKind.Moe)
        .map(({ moe, n }) => size(program.moes[moe]!.numbers, n)),
    );
  const pairs = batch * most((numbers) => numbers[Mix.Used]!);
  const experts = {
    ids: take(pairs),
    weights: take(pairs),
    hidden: take(pairs * most((numbers) => numbers[Mix.Ff]!)),
    given: take(pairs * most((_, n) => n)),
  };
  const states = planStates(program, take);
  const queue = planQueue(take, program.nVocab);
  const numbers = take(numbersOf(program));
  let vecFloats = 0;
  const vecs = program.vecs.map((n) => (vecFloats += Math.ceil(n / 4) * 4) - Math.ceil(n / 4) * 4);
  const products = program.ops.filter(({ kind }) =>
    [OpKind.Matmul, OpKind.Moe, OpKind.HeadMatmul].includes(kind),
  );
  const actsOf = ({ kind, moe, n, heads }: Op): number => {
    if (kind !== OpKind.Moe) return actBytes(Math.max(batch, heads), n);
    const { numbers } = program.moes[moe]!;
    return Math.max(actBytes(batch, n), actBytes(batch * numbers[Mix.Used]!, numbers[Mix.Ff]!));
  };
  return {
    buffers,
    ropes,
    media,
    scratch,
    experts,
    states,
    eviction,
    queue,
    numbers,
    floats,
    actBytes: align(Math.max(0, ...products.map(actsOf)), 16),
    vecs,
    vecFloats,
  };
}

/** Tables of which an operation reads rows, besides the embedding. */
export const tablesOf = ({ ops }: Program): number[] => [
  ...new Set(ops.filter(({ kind }) => kind === OpKind.Rows).map(({ table }) => table!)),
];

/** How many numbers Layout.numbers has. */
export const numbersOf = (program: Program): number =>
  Math.max(
    tablesOf(program).length && program.nBatch,
    ...program.ops.map(({ kind, heads }) => (kind === OpKind.HeadMatmul ? heads : 0)),
  );

/** Bytes of a batch's rows of a table. */
export const tableBytes = ({ mats, tables, nBatch }: Program, table: number): number =>
  align(nBatch * mats[tables[table]!]!.rowBytes, 16);

/** An operation and what fusion.ts fuses with it. */
export interface Step {
  /** Index of the operation. `norm` and `act` are fused with it. */
  index: number;
  op: Op;
  norm?: Op;
  act?: Op;
  /** Norm: what adds it to the residual stream. */
  residual?: Op;
  /** RoPE: norms of heads before it, of queries, keys and values. */
  heads?: Op[];
  /** RoPE: also stores keys and values. Attention: they are already stored. */
  stores?: boolean;
  /** In place of the writer: lora.ts. */
  by?: Pick<Writer, 'products' | 'finish'>;
}

/** Rows of a batch that the current operation processes. */
export interface Rows {
  tokens: number;
  /** Position of the first token. */
  first: number;
  /** Rows of the residual stream before the first selected one. */
  skipped: number;
  states: Carrying;
  /** The step of a queue; 0 without one. Of a lane: its first token in the batch. */
  step: number;
  /** What a batch has of each sequence, if of several (parallel.ts); of a lane: its first row. */
  lanes?: LaneRows[];
  row?: number;
  /** Of a batch of inputs that begin at position 0 each. */
  inputs?: InputRows[];
  /** RoPE of these, which also stores them. */
  rope?: Step;
  /** The operation before which the batch ends, with rows of all tokens; 0: it computes logits. */
  hidden?: number;
  /** Of a picture. */
  media?: { width: number; nonCausal: NonCausal };
}

/** The rows of an input: the first one, and its tokens. */
export type InputRows = Pick<Rows, 'row' | 'step' | 'tokens' | 'first'>;

/** Those of a pass; none: it continues a sequence, or has one input. */
export function inputsOf(words: Uint32Array): InputRows[] {
  const ends = new Int32Array(words.buffer, words[Word.Ends], words[Word.NEnds]);
  let row = 0;
  return [...(ends.length > 1 ? ends : [])].map((end) => {
    const input = { row, step: row, tokens: end - row, first: 0 };
    row = end;
    return input;
  });
}

/** Attention of another script, in place of to.attention(): eviction.ts, relative-attention.ts. */
export type OwnAttention = Pick<
  KvEviction,
  'kindOf' | 'observes' | 'begin' | 'attention' | 'download' | 'settle'
>;

/** What depends on positions. */
const kOfInputs = [OpKind.Rope, OpKind.Attention, OpKind.Temperature];

/** A sequence on the GPU, or several that a pass computes together. */
export interface GpuSequence {
  cache: KvCopies;
  attention?: OwnAttention | undefined;
  writer: Writer;
  /** Tells apart batches of several sequences whose kernels differ. */
  kind?: string;
}

/** One of several sequences in a pass (parallel.ts). */
export interface Lane {
  sequence: GpuSequence;
  words: Uint32Array;
  /** It was dropped before the pass began: its rows mean nothing. */
  dropped: boolean;
  /** Where its rows begin in what is read back, and where they end. */
  begin: number;
  end: number;
}

/** The rows of a lane at an operation. `row`: the first one in buffers. `step`: its token in the batch. */
export interface LaneRows {
  lane: Lane;
  row: number;
  step: number;
  tokens: number;
  first: number;
}

/**
 * Records the operations of another script, and leaves others: recurrent-ops.ts, rare-ops.ts,
 * gemma-ops.ts. `unit`: one of the operation's weights, in `buffer`; without it, what needs no weights.
 */
export type RecordOp = (
  to: Recorder,
  op: Op,
  rows: Rows,
  writer: Writer,
  unit?: Unit,
  buffer?: GPUBuffer,
) => void;

export class Writer {
  readonly #program: Program;
  readonly #layout: Layout;
  readonly #caches: (Cache | null)[];
  readonly #attention: OwnAttention | undefined;
  readonly #others: (RecordOp | undefined)[];
  readonly #tables: ReadonlyMap<number, GPUBuffer>;

  /** `tables`: rows of a batch. `others`: scripts that are loaded. */
  constructor(
    program: Program,
    layout: Layout,
    caches: (Cache | null)[],
    tables: ReadonlyMap<number, GPUBuffer>,
    attention?: OwnAttention,
    others: (RecordOp | undefined)[] = [],
  ) {
    this.#others = others;
    this.#tables = tables;
    this.#attention = attention;
    this.#program = program;
    this.#layout = layout;
    this.#caches = caches;
  }

  place(buf: Buf, column: number, rows: Rows): Place {
    const ld = this.#program.widths[buf]!;
    const skipped = (buf === Buf.X ? rows.skipped : 0) + (rows.row ?? 0);
    return { at: this.#layout.buffers[buf]! + skipped * ld + column, ld };
  }

  /** Goes on with `nRows` rows of the residual stream, behind `skipped` others. */
  select(_to: Recorder, rows: Rows, skipped: number, nRows: number): void {
    Object.assign(rows, { tokens: nRows, skipped });
  }

  vec(index: number): number | undefined {
    return index < 0 ? undefined : this.#layout.vecs[index]!;
  }

  /** Records the matrix multiplications of one unit of a step. */
  products(to: Recorder, step: Step, unit: Unit, buffer: GPUBuffer, rows: Rows): void {
    const { op, norm, act } = step;
    if (op.kind === OpKind.Moe) return this.#experts(to, op, unit, buffer, rows);
    if (op.kind !== OpKind.Matmul) return this.#other(to, op, rows, unit, buffer);
    const { mats, normEps } = this.#program;
    const parts = unit.pieces.map(({ part, row0, rows: n, at }): Part => {
      const { mat, bias, outCol, factor } = op.parts[part]!;
      const piece: Part = {
        weights: { type: mats[mat]!.type, buffer, offset: at },
        rows: n,
        column: outCol + row0,
      };
      if (bias >= 0) piece.bias = this.vec(bias)! + row0;
      if (factor >= 0) piece.factor = this.vec(factor)!;
      return piece;
    });
    to.matmul({
      parts,
      cols: op.n,
      x: norm ? this.place(norm.in, norm.inCol, rows) : this.place(op.in, op.inCol, rows),
      out: this.place(op.out, 0, rows),
      tokens: rows.tokens,
      scale: op.scale,
      add: op.add,
      ...(norm && {
        norm: {
          weight: this.vec(norm.vec0),
          eps: norm.eps || normEps,
          scratch: this.place(op.in, op.inCol, rows),
        },
      }),
      ...(act && rows.tokens <= kFewTokens && { activation: this.#activation(act, rows) }),
    });
  }

  #other(to: Recorder, op: Op, rows: Rows, unit?: Unit, buffer?: GPUBuffer): void {
    for (const record of this.#others) record?.(to, op, rows, this, unit, buffer);
  }

  /** Records the router, which selects the experts of each token. */
  #route(to: Recorder, op: Op, rows: Rows): void {
    const { numbers, weightsScale } = this.#program.moes[op.moe]!;
    const { ids, weights } = this.#layout.experts;
    to.route({
      logits: this.place(Buf.Router, 0, rows),
      n: numbers[Mix.Experts]!,
      tokens: rows.tokens,
      used: numbers[Mix.Used]!,
      ids,
      weights,
      gating: numbers[Mix.Gating]!,
      groups: numbers[Mix.Groups]!,
      groupsUsed: numbers[Mix.GroupsUsed]!,
      sharedBy: numbers[Mix.SharedBy]!,
      normalize: numbers[Mix.Normalize] === 1,
      scale: weightsScale,
      bias: this.vec(numbers[Mix.ChoiceBias]!),
    });
  }

  /** Gate (0), up (1) or down (2) of a unit's experts; none: they have no gate. */
  experts(numbers: number[], { pieces }: Unit, buffer: GPUBuffer, of: number): Part[] {
    return pieces
      .filter(({ part }) => part === of)
      .slice(0, 1)
      .map(({ mat, rows, at }) => ({
        weights: { type: this.#program.mats[mat]!.type, buffer, offset: at },
        rows,
        column: 0,
        bias: this.vec(numbers[Mix.GateBias + of]!),
        factor: this.vec(numbers[Mix.GateScale + of]!),
      }));
  }

  /** Records the experts of a unit, for the tokens that are routed to them. */
  #experts(to: Recorder, op: Op, unit: Unit, buffer: GPUBuffer, rows: Rows): void {
    const { numbers } = this.#program.moes[op.moe]!;
    const { ids, weights, hidden, given } = this.#layout.experts;
    const [used, ff] = [numbers[Mix.Used]!, numbers[Mix.Ff]!];
    const part = (of: number) => this.experts(numbers, unit, buffer, of);
    const tokens = rows.tokens * used;
    const experts = { ids, ...unit.experts! };
    to.matmul({
      parts: [...part(0), ...part(1)],
      cols: op.n,
      x: this.place(op.in, op.inCol, rows),
      out: { at: hidden, ld: ff },
      tokens,
      experts: { ...experts, share: used, ...(numbers[Mix.WeighInput] && { weights }) },
      activation: { kind: numbers[Mix.Act]! },
    });
    to.matmul({
      parts: part(2),
      cols: ff,
      x: { at: hidden, ld: ff },
      out: { at: given, ld: op.n },
      tokens,
      experts: { ...experts, share: 1 },
    });
  }

  /** Records what follows when all units of a step are done: combining experts, activation. */
  finish(to: Recorder, { op, act }: Step, rows: Rows): void {
    if (op.kind === OpKind.Moe) {
      const { ids, weights, given } = this.#layout.experts;
      const { numbers } = this.#program.moes[op.moe]!;
      to.combine({
        ids,
        weights: numbers[Mix.WeighInput] ? undefined : weights,
        used: numbers[Mix.Used]!,
        in: given,
        out: this.place(op.out, op.outCol, rows),
        tokens: rows.tokens,
        n: op.n,
        scale: op.scale,
        add: op.add,
      });
    }
    if (act && rows.tokens > kFewTokens)
      to.activate({
        at: this.place(act.in, act.inCol, rows),
        tokens: rows.tokens,
        n: act.n,
        ...this.#activation(act, rows),
      });
  }

  #activation(op: Op, rows: Rows): Activated {
    const [positive, negative, linear, below] = op.xielu;
    return {
      kind: op.act,
      xielu: { positive, negative, linear, below },
      up: op.up && this.place(...op.up, rows),
    };
  }

  /** Scales queries by position: one call for all tokens with the same factor. */
  #temperature(to: Recorder, op: Op, rows: Rows): void {
    const [scale, length, offset] = this.#program.temperature;
    const first = rows.first + rows.skipped;
    const { at, ld } = this.place(op.in, 0, rows);
    for (let t = 0; t < rows.tokens;) {
      const steps = Math.floor((first + t + offset) / length);
      const next = (steps + 1) * length - offset;
      const end = Math.min(rows.tokens, next - first);
      to.holds(next);
      const place = { at: at + t * ld, ld };
      const factor = Math.fround(1 + scale * Math.log(1 + steps));
      to.scale({ in: place, out: place, tokens: end - t, n: op.n, scale: factor });
      t = end;
    }
  }

  /** Adds values of the tokens' rows of a table. */
  #rows(to: Recorder, op: Op, rows: Rows): void {
    const { mats, tables, nBatch } = this.#program;
    const { type, cols } = mats[tables[op.table!]!]!;
    to.rows({
      weights: { type, buffer: this.#tables.get(op.table!)!, offset: 0 },
      count: nBatch,
      cols,
      ids: this.#layout.numbers + rows.step + rows.skipped,
      tokens: rows.tokens,
      column: op.inCol,
      n: op.n,
      out: this.place(op.out, op.outCol, rows),
      scale: op.scale,
      add: op.add,
    });
  }

  /** Records what follows a layer of a picture's batch: further values of its rows are added. */
  deepstack(to: Recorder, layer: number, rows: Rows): void {
    const { nEmbd, deepstack } = this.#program;
    const ld = rows.media!.width;
    if (layer < 0 || layer >= deepstack || ld < nEmbd * (layer + 2)) return;
    const at = this.#layout.media + (layer + 1) * nEmbd;
    const out = this.place(Buf.X, 0, rows);
    to.add({ in: { at, ld }, out, tokens: rows.tokens, n: nEmbd });
  }

  /** Records an operation without weights. */
  simple(to: Recorder, step: Step, rows: Rows): void {
    const { op, heads: normed, residual, stores } = step;
    const { tokens, inputs } = rows;
    if (inputs?.length && kOfInputs.includes(op.kind)) {
      // All inputs have the same places in the KV cache: each is stored right before its attention.
      if (op.kind === OpKind.Rope && stores) return void (rows.rope = step);
      for (const input of inputs) {
        const own = { ...rows, ...input, inputs: [] };
        if (stores) this.simple(to, rows.rope!, own);
        this.simple(to, step, own);
      }
      return;
    }
    const map = {
      in: this.place(op.in, op.inCol, rows),
      out: this.place(op.out, op.outCol, rows),
      tokens,
      n: op.n,
    };
    const { heads, kvHeads, dk, dv, valuesInKeys, owned } = op.att;
    const shape = { heads, kvHeads, dk, dv, valuesInKeys };
    const cache = this.#caches[op.att.cache] ?? null;
    const first = rows.first + rows.skipped;
    const row = rows.step + rows.skipped;
    switch (op.kind) {
      case OpKind.Norm:
        return to.norm({
          ...map,
          heads: op.heads,
          kind: op.norm,
          weight: this.vec(op.vec0),
          bias: this.vec(op.vec1),
          perHead: op.vecPerHead,
          eps: op.eps || this.#program.normEps,
          scale: op.scale,
          ...(residual && {
            out: this.place(residual.out, residual.outCol, rows),
            add: residual.scale,
          }),
        });
      case OpKind.Rope: {
        const { nRot, neox } = this.#program.ropes[op.rope]!;
        return to.rope({
          ...shape,
          qkv: this.place(op.in, 0, rows),
          tokens,
          owned,
          rot: nRot,
          neox,
          column: op.inCol,
          table: this.#layout.ropes[op.rope]! + row * nRot,
          ...(stores && { store: { cache: cache!, first } }),
          ...(normed && {
            norm: {
              queries: this.vec(normed[0]!.vec0),
              keys: normed[1] && this.vec(normed[1].vec0),
              perHead: normed[0]!.vecPerHead,
              values: normed.length > 2,
              eps: normed[0]!.eps || this.#program.normEps,
            },
          }),
        });
      }
      case OpKind.Attention: {
        const qkv = this.place(op.in, 0, rows);
        // A quantized cache also has transformed queries.
        if (!stores && (owned || cache!.type !== 'f16'))
          to.store({ ...shape, qkv, tokens, cache: cache!, first, owned });
        const call: Attention = {
          ...shape,
          qkv,
          out: this.place(op.out, 0, rows),
          tokens,
          first,
          cache: cache!,
          scale: op.scale,
          softcap: op.softcap,
          window: op.window,
          chunked: op.chunked,
          causal: op.att.causal,
          whole:
            rows.media?.nonCausal === NonCausal.AllLayers ||
            (rows.media?.nonCausal === NonCausal.Windows && op.window > 0),
          alibi: op.alibi,
          sinks: this.vec(op.vec0),
          scratch: this.#layout.scratch,
        };
        if (this.#attention) this.#attention.attention(to, op, row, call);
        else to.attention(call);
        return;
      }
      case OpKind.Moe:
        return this.#route(to, op, rows);
      case OpKind.Temperature:
        return this.#temperature(to, op, rows);
      case OpKind.Activate:
        return to.activate({ at: map.in, tokens, n: op.n, ...this.#activation(op, rows) });
      case OpKind.Add:
        return to.add({
          ...map,
          scale: op.scale,
          heads: op.heads,
          inStep: op.inStep,
          outStep: op.outStep,
        });
      case OpKind.Scale:
        return to.scale({ ...map, scale: op.scale });
      case OpKind.SoftCap:
        return to.softcap({ ...map, softcap: op.softcap });
      case OpKind.Clamp:
        return to.clamp({ ...map, softcap: op.softcap });
      case OpKind.Gate:
        return to.gate({ ...map, heads: op.heads });
      case OpKind.Unary:
        return to.unary({ ...map, unary: op.unary });
      case OpKind.Gated:
        return to.gated({
          ...map,
          heads: op.heads,
          unary: op.unary,
          gate: this.place(...op.gate, rows),
          stride: op.inStep,
        });
      case OpKind.Rows:
        return this.#rows(to, op, rows);
      case OpKind.Copy:
        return to.copy({ ...map, heads: op.heads, inStep: op.inStep, outStep: op.outStep });
      case OpKind.MulVec:
        return to.mulVec({
          ...map,
          vec: this.vec(op.vec0)!,
          one: this.#program.vecs[op.vec0] === 1,
        });
      default:
        // The caller handles Select by changing its rows; fusion.ts rejects what is in neither.
        this.#other(to, op, rows);
    }
  }
}
