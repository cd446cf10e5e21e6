// Entry of gpu-lora.js: LoRA adapters on the GPU. Beside W x, scale * b (a x) is computed by two more
// matrix multiplications. The engine has read, checked and packed the matrices
// (src/session/adapter_set.h); they are uploaded as rows, and stay. A matrix multiplication that an
// adapter changes is computed by itself: the norm before it and the activation behind it are not fused.
// So are AltUp's coefficients. Experts and heads have a pair of matrices each, behind one another.

import { Usage, type Buffers } from './buffers.js';
import { attentionScratch } from './kernels/attention.js';
import { kFewTokens } from './kernels/matmul.js';
import type { Experts, Part, Place, Recorder } from './kernels.js';
import { align, severalOf, type GpuPlan, type Unit } from './plan.js';
import {
  Buf,
  CpuFallback,
  Mix,
  OpKind,
  PassState,
  Word,
  type Op,
  type Program,
} from './program.js';
import type { Layout, Rows, Step, Writer } from './record.js';

/** AdapterSet::Term, in words: a, b and the scale. A matrix: type, layout, rows, columns, address. */
const kTerm = 18;
const kB = 8;
const kScale = 16;
const [kRows, kCols, kData] = [2, 4, 6];

const kF32 = 0;
/** Bytes of the parameters of a term's dispatches, which replays have twice. */
const kNumbers = 1024;
/** Behind a matrix, since shaders read whole units of eight values. */
const kPadding = 32;
/** Of a binding's place, at most. */
const kAlign = 260;

/** A matrix, or one for each expert or head, behind one another. `at`: in the term's buffer. */
interface Matrix {
  type: number;
  /** Of one. */
  rows: number;
  cols: number;
  at: number;
  bytes: number;
  /** The engine's, whose rows follow one another. */
  pieces: Packed[];
}

interface Packed {
  type: number;
  rows: number;
  cols: number;
  /** Address in the engine's memory. */
  data: number;
}

/** What an adapter adds to a part of an operation. `at`: the column of a x. */
interface Term {
  part: number;
  a: Matrix;
  b: Matrix;
  scale: number;
  outCol: number;
  at: number;
  buffer?: GPUBuffer | undefined;
}

/** A part of an operation: matrices whose rows follow one another, or one for each expert or head. */
interface Changed {
  mats: number[];
  outCol: number;
}

/** x and y of terms, and the expert or head of each row. */
interface Through {
  cols: number;
  x: Place;
  out: Place;
  tokens: number;
  scale: number;
  experts?: Experts;
  /** The only expert or head. */
  one?: number;
}

/** What the executor has. */
export interface AdapterHost {
  program: Program;
  memory: WebAssembly.Memory;
  layout: Layout;
  buffers: Buffers;
  device: GPUDevice;
  /** That of any sequence: matrices and activations are the same for all. */
  writer: Writer;
  /** That of the weights, the one with so many bytes for adapters, and how it takes its place. */
  plan: GpuPlan;
  planFor(adapters: number): GpuPlan;
  arrange(plan: GpuPlan): Promise<void>;
}

/**
 * The adapters that the words of a pass name, in place of those `before`. Weights stream if both do not
 * fit. If the GPU cannot apply them, the CPU computes the pass.
 */
export async function adaptersOf(
  host: AdapterHost,
  words: Uint32Array,
  given: () => boolean,
  before: Adapters | undefined,
): Promise<Adapters | undefined> {
  const id = words[Word.Adapters]!;
  before?.drop();
  const adapters = id ? new Adapters(host, words) : undefined;
  if (await applied(host, words, adapters)) return adapters;
  adapters?.drop();
  words[Word.Refused] = id;
  words[Word.CpuFallback]! |= CpuFallback.Adapters;
  if (!given()) words[Word.State] = PassState.None;
  return undefined;
}

async function applied(
  { plan, planFor, arrange }: AdapterHost,
  words: Uint32Array,
  adapters: Adapters | undefined,
): Promise<boolean> {
  if (adapters && !adapters.supported(words)) return false;
  let next: GpuPlan;
  try {
    next = planFor(adapters?.bytes ?? 0);
  } catch {
    return false; // the budget is too small
  }
  if (next.bytes !== plan.bytes || next.pinnedBytes !== plan.pinnedBytes) await arrange(next);
  return adapters === undefined || adapters.upload();
}

export class Adapters {
  /** That of Word.Adapters. */
  readonly id: number;
  /** Bytes on the GPU. */
  bytes = 0;
  readonly #host: AdapterHost;
  readonly #terms = new Map<Op, Term[]>();
  /** Matrices that these operations multiply by. */
  readonly #known = new Set<number>();
  /** Whether experts or heads of an operation are all changed alike. */
  #alike = true;

  /** Of the adapters that these words of a pass name. Nothing is uploaded. */
  constructor(host: AdapterHost, words: Uint32Array) {
    this.id = words[Word.Adapters]!;
    this.#host = host;
    const { program, memory } = host;
    const { mats, ops, pool } = program;
    const firsts = new Uint32Array(memory.buffer, words[Word.FirstTerms], mats.length + 1);
    const all = new Uint32Array(memory.buffer, words[Word.Terms], kTerm * firsts[mats.length]!);
    for (const merged of ops.slice(0, pool)) {
      const op = merged.apart ?? merged;
      const terms: Term[] = [];
      for (const [part, { mats, outCol }] of partsOf(program, op).entries()) {
        for (const mat of mats) this.#known.add(mat);
        const counts = mats.map((mat) => firsts[mat + 1]! - firsts[mat]!);
        this.#alike &&= counts.every((count) => count === counts[0]);
        for (let i = 0; this.#alike && i < counts[0]!; i++) {
          const each = mats.map((mat) => all.subarray(kTerm * (firsts[mat]! + i)));
          terms.push(this.#term(each, op, part, outCol, rankOf(terms)));
        }
      }
      if (terms.length) this.#terms.set(op, terms);
    }
  }

  #term(each: Uint32Array[], { kind }: Op, part: number, outCol: number, at: number): Term {
    const several = kind !== OpKind.Matmul;
    const matrixAt = (place: number, begin: number): Matrix => {
      const pieces = each.map((words): Packed => {
        const [type, rows, cols, data] = [0, kRows, kCols, kData].map((i) => words[place + i]!);
        return { type: type!, rows: rows!, cols: cols!, data: data! };
      });
      const { type, rows: one, cols } = pieces[0]!;
      this.#alike &&= pieces.every(
        (piece) => piece.type === type && piece.cols === cols && (!several || piece.rows === one),
      );
      // Parts of one matrix have the same a.
      if (!several && !place) pieces.length = 1;
      const all = pieces.reduce((sum, { rows }) => sum + rows, 0);
      const bytes = all * cols * sizeOf(type);
      return { type, rows: several ? one : all, cols, at: begin, bytes, pieces };
    };
    const a = matrixAt(0, 0);
    const b = matrixAt(kB, align(a.bytes, 16));
    this.bytes += bufferBytes(b) + kNumbers;
    const scales = each.map(
      (words) => new Float32Array(words.buffer, words.byteOffset + 4 * kScale, 1)[0]!,
    );
    this.#alike &&= scales.every((scale) => scale === scales[0]);
    return { part, a, b, scale: scales[0]!, outCol, at };
  }

  /**
   * Whether the GPU can apply them. The CPU applies those of the embedding, of matrices behind pooling,
   * and of its own layers.
   */
  supported(words: Uint32Array): boolean {
    const { program, memory, device } = this.#host;
    const { mats, ops, cut, moes } = program;
    const firsts = new Uint32Array(memory.buffer, words[Word.FirstTerms], mats.length + 1);
    const layers = Math.max(...ops.map(({ layer }) => layer)) + 1;
    const ofCpu = (layer: number): boolean => cut !== undefined && (layer < 0 || layer >= layers);
    const { maxBufferSize, maxStorageBufferBindingSize: binding } = device.limits;
    const all = [...this.#terms].every(([op, terms]) => {
      const numbers = moes[op.moe]?.numbers ?? [];
      const mixture = op.kind === OpKind.Moe;
      return (
        // The gate's values take the place of an expert's, and up's that of its results.
        (!mixture || numbers[Mix.Ff]! <= op.n) &&
        this.#scratch(op).floats >= rankOf(terms) * (mixture ? numbers[Mix.Used]! : op.heads) &&
        terms.every(({ b }) => bufferBytes(b) + kAlign <= Math.min(binding, maxBufferSize))
      );
    });
    return (
      this.#alike &&
      all &&
      mats.every(
        ({ layer }, m) => firsts[m] === firsts[m + 1] || this.#known.has(m) || ofCpu(layer),
      )
    );
  }

  /** Uploads the matrices. False: the GPU refuses memory. */
  async upload(): Promise<boolean> {
    const { buffers, device, memory, program } = this.#host;
    device.pushErrorScope('out-of-memory');
    for (const term of [...this.#terms.values()].flat()) {
      const { a, b } = term;
      const bytes = new Uint8Array(bufferBytes(b));
      for (const matrix of [a, b]) unpack(memory, matrix, program.rowGroup, bytes);
      term.buffer = buffers.make(bytes.length, Usage.Storage | Usage.CopyTarget);
      device.queue.writeBuffer(term.buffer, 0, bytes);
    }
    return !(await device.popErrorScope());
  }

  drop(): void {
    for (const term of [...this.#terms.values()].flat()) {
      if (term.buffer) this.#host.buffers.drop(term.buffer);
      term.buffer = undefined;
    }
  }

  /** These steps, with what adapters change by itself. */
  steps(steps: Step[]): Step[] {
    return steps.flatMap((step): Step[] => {
      const { index, op, norm, act } = step;
      const { apart } = op;
      if (apart && this.#terms.has(apart)) {
        const { whole: _, ...plain } = op;
        const inCol = apart.parts[0]!.outCol;
        return [
          { index, op: apart, by: this },
          { index: index - 1, op: { ...plain, inCol } },
        ];
      }
      if (!this.#terms.has(op)) return [step];
      if (op.kind !== OpKind.Matmul) return [{ ...step, by: this }];
      return [
        ...(norm ? [{ index: index - 1, op: norm }] : []),
        { index, op, by: this },
        ...(act ? [{ index: index + 1, op: act }] : []),
      ];
    });
  }

  /** Records a unit: of experts, with what is added to gate and up before the activation. */
  products(to: Recorder, step: Step, unit: Unit, buffer: GPUBuffer, rows: Rows): void {
    const { op } = step;
    const { program, layout, writer } = this.#host;
    if (op.kind !== OpKind.Moe) return writer.products(to, step, unit, buffer, rows);
    const { moes } = program;
    const { ids, weights, hidden, given } = layout.experts;
    const { numbers } = moes[op.moe]!;
    const [used, ff] = [numbers[Mix.Used]!, numbers[Mix.Ff]!];
    const tokens = rows.tokens * used;
    const terms = this.#terms.get(op)!;
    const product = (
      of: number,
      cols: number,
      x: Place,
      out: Place,
      own: Partial<Experts>,
    ): void => {
      const parts = writer.experts(numbers, unit, buffer, of);
      const experts = { ids, ...unit.experts!, share: 1, ...own };
      if (!parts.length) return;
      to.matmul({ parts, cols, x, out, tokens, experts });
      const added = terms.filter(({ part }) => part === of);
      this.#apply(to, op, added, { cols, x, out, tokens, scale: 1, experts });
    };
    const gated = numbers[Mix.Gate]! >= 0;
    const [act, beside] = [
      { at: hidden, ld: ff },
      { at: given, ld: op.n },
    ];
    const x = writer.place(op.in, op.inCol, rows);
    const shared = { share: used, ...(numbers[Mix.WeighInput] && { weights }) };
    product(0, op.n, x, act, shared);
    product(1, op.n, x, gated ? beside : act, shared);
    to.activate({ at: act, up: beside, tokens, n: ff, kind: numbers[Mix.Act]! });
    product(2, ff, act, beside, {});
  }

  /** Records what follows, and what the adapters add. */
  finish(to: Recorder, step: Step, rows: Rows): void {
    const { op } = step;
    const { writer } = this.#host;
    writer.finish(to, step, rows);
    if (op.kind === OpKind.Moe) return;
    const terms = this.#terms.get(op)!;
    const { n: cols, scale, heads, inStep, outStep } = op;
    const { tokens } = rows;
    const x = writer.place(op.in, op.inCol, rows);
    if (op.kind === OpKind.Matmul) {
      const out = writer.place(op.out, 0, rows);
      return this.#apply(to, op, terms, { cols, x, out, tokens, scale });
    }
    // As rare-ops.ts: the heads of a token, or the tokens of a head.
    const out = writer.place(op.out, op.outCol, rows);
    const experts = { ids: this.#host.layout.numbers, first: 0, count: heads, share: 1 };
    const behind = ({ at, ld }: Place, more: number, width = ld): Place => ({
      at: at + more,
      ld: width,
    });
    if (tokens <= kFewTokens)
      for (let t = 0; t < tokens; t++)
        this.#apply(to, op, terms, {
          ...{ cols, scale, tokens: heads, experts },
          x: behind(x, t * x.ld, inStep),
          out: behind(out, t * out.ld, outStep),
        });
    else
      for (let one = 0; one < heads; one++)
        this.#apply(to, op, terms, {
          ...{ cols, scale, tokens, one },
          x: behind(x, one * inStep),
          out: behind(out, one * outStep),
        });
  }

  /** out += scale * b (a x) of these terms, as many rows at a time as fit. */
  #apply(
    to: Recorder,
    op: Op,
    terms: Term[],
    { cols, x, out, tokens, scale: by, experts, one }: Through,
  ): void {
    if (!terms.length) return;
    const before = terms[0]!.at;
    const ld = rankOf(terms);
    const low = this.#scratch(op);
    const share = experts?.share ?? 1;
    const tile = Math.floor(low.floats / ld / share) * share;
    const part = ({ type, rows, cols, at }: Matrix, buffer: GPUBuffer, column: number): Part => {
      const index = one ?? experts?.first ?? 0;
      const offset = at + index * rows * cols * sizeOf(type);
      return { weights: { type, buffer, offset }, rows, column };
    };
    for (let first = 0; first < tokens; first += tile) {
      const count = Math.min(tile, tokens - first);
      const own = experts && {
        ...experts,
        ids: experts.ids + first,
        ...(experts.weights !== undefined && { weights: experts.weights + first }),
      };
      to.matmul({
        parts: terms.map(({ a, at, buffer }) => part(a, buffer!, at - before)),
        cols,
        x: { ...x, at: x.at + (first / share) * x.ld },
        out: { at: low.at, ld },
        tokens: count,
        ...(own && { experts: own }),
      });
      for (const { a, b, scale, outCol, at, buffer } of terms)
        to.matmul({
          parts: [part(b, buffer!, outCol)],
          cols: a.rows,
          x: { at: low.at + at - before, ld },
          out: { ...out, at: out.at + first * out.ld },
          tokens: count,
          scale: by * scale,
          add: true,
          ...(own && { experts: { ...own, share: 1, weights: undefined } }),
        });
    }
  }

  /** A part of the arena that has nothing while this operation is computed. */
  #scratch({ out }: Op): { at: number; floats: number } {
    const { layout, program } = this.#host;
    const { ops, widths, logitsRows } = program;
    const attention = ops.filter(({ kind }) => kind === OpKind.Attention);
    const heads = attention.map(({ att }) => attentionScratch(att.heads, att.dv));
    const logits = out === Buf.Logits ? 0 : logitsRows * widths[Buf.Logits]!;
    return Math.max(0, ...heads) > logits
      ? { at: layout.scratch, floats: Math.max(...heads) }
      : { at: layout.buffers[Buf.Logits]!, floats: logits };
  }
}

/** Columns of a x of these terms. Each begins at a multiple of four. */
const rankOf = (terms: Term[]): number => terms.reduce((sum, { a }) => sum + align(a.rows), 0);

const sizeOf = (type: number): number => (type === kF32 ? 4 : 2);

/** Bytes of a term's buffer, whose last matrix this is. */
const bufferBytes = ({ at, bytes }: Matrix): number => align(at + bytes, 16) + kPadding;

/** Writes the rows of packed matrices. A group has the values of `group` rows, column by column. */
function unpack(
  memory: WebAssembly.Memory,
  { pieces, at }: Matrix,
  group: number,
  bytes: Uint8Array<ArrayBuffer>,
): void {
  let begin = at;
  for (const { type, rows, cols, data } of pieces) {
    const size = sizeOf(type);
    const Values = size === 4 ? Uint32Array : Uint16Array;
    const stride = align(cols * size * group, 64) / size;
    const from = new Values(memory.buffer, data, Math.ceil(rows / group) * stride);
    const to = new Values(bytes.buffer, begin, rows * cols);
    for (let row = 0; row < rows; row++) {
      const first = Math.floor(row / group) * stride + (row % group);
      for (let col = 0; col < cols; col++) to[row * cols + col] = from[first + col * group]!;
    }
    begin += to.byteLength;
  }
}

/** The parts of an operation that adapters may change. Those of a mixture: gate, up and down. */
function partsOf(program: Program, op: Op): Changed[] {
  if (op.kind === OpKind.Matmul)
    return op.parts.map(({ mat, outCol, others = [] }) => ({ mats: [mat, ...others], outCol }));
  const several = op.whole ? undefined : severalOf(program, op);
  return (several?.first ?? []).map((first) => ({
    mats: first < 0 ? [] : Array.from({ length: several!.count }, (_, i) => first + i),
    outCol: 0,
  }));
}
