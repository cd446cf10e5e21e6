// Entry of gpu-lora.js: LoRA adapters on the GPU. Beside W x, scale * b (a x) is computed by two more
// matrix multiplications. The engine has read, checked and packed the matrices
// (src/session/adapter_set.h); they are uploaded as rows, and stay. A matrix multiplication that an
// adapter changes is computed by itself: the norm before it and the activation behind it are not fused.

import { Usage, type Buffers } from './buffers.js';
import type { Step } from './fusion.js';
import { attentionScratch } from './kernels/attention.js';
import type { Place, Recorder } from './kernels.js';
import { align, type GpuPlan } from './plan.js';
import { Buf, CpuFallback, OpKind, PassState, Word, type Op, type Program } from './program.js';
import type { Layout, Rows, Writer } from './record.js';

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

interface Matrix {
  type: number;
  rows: number;
  cols: number;
  /** Address in the engine's memory, and in the term's buffer. */
  data: number;
  at: number;
  bytes: number;
}

/** What an adapter adds to a part of an operation. `at`: the column of a x. */
interface Term {
  a: Matrix;
  b: Matrix;
  scale: number;
  outCol: number;
  at: number;
  buffer?: GPUBuffer | undefined;
}

/** What the executor has. */
export interface AdapterHost {
  program: Program;
  memory: WebAssembly.Memory;
  layout: Layout;
  buffers: Buffers;
  device: GPUDevice;
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

  /** Of the adapters that these words of a pass name. Nothing is uploaded. */
  constructor(host: AdapterHost, words: Uint32Array) {
    this.id = words[Word.Adapters]!;
    this.#host = host;
    const { program, memory } = host;
    const { mats, ops, pool } = program;
    const firsts = new Uint32Array(memory.buffer, words[Word.FirstTerms], mats.length + 1);
    const total = firsts[mats.length]!;
    const all = new Uint32Array(memory.buffer, words[Word.Terms], kTerm * total);
    for (const op of ops.slice(0, pool)) {
      if (op.kind !== OpKind.Matmul) continue;
      const terms: Term[] = [];
      for (const { mat, outCol } of op.parts)
        for (let i = firsts[mat]!; i < firsts[mat + 1]!; i++)
          terms.push(this.#term(all.subarray(kTerm * i), outCol, rankOf(terms)));
      if (terms.length) this.#terms.set(op, terms);
    }
  }

  #term(words: Uint32Array, outCol: number, at: number): Term {
    const matrixAt = (place: number, begin: number): Matrix => {
      const [type, rows, cols, data] = [0, kRows, kCols, kData].map((i) => words[place + i]!) as [
        number,
        number,
        number,
        number,
      ];
      return { type, rows, cols, data, at: begin, bytes: rows * cols * sizeOf(type) };
    };
    const a = matrixAt(0, 0);
    const b = matrixAt(kB, align(a.bytes, 16));
    this.bytes += bufferBytes(b) + kNumbers;
    const scale = new Float32Array(words.buffer, words.byteOffset + 4 * kScale, 1)[0]!;
    return { a, b, scale, outCol, at };
  }

  /**
   * Whether the GPU can apply them. It changes no experts of a mixture. The CPU applies those of the
   * embedding, of matrices behind pooling, and of its own layers.
   */
  supported(words: Uint32Array): boolean {
    const { program, memory, device } = this.#host;
    const { mats, ops, cut } = program;
    const firsts = new Uint32Array(memory.buffer, words[Word.FirstTerms], mats.length + 1);
    const known = new Set(
      ops.flatMap(({ kind, parts }) => (kind === OpKind.Matmul ? parts.map(({ mat }) => mat) : [])),
    );
    const layers = Math.max(...ops.map(({ layer }) => layer)) + 1;
    const ofCpu = (layer: number): boolean => cut !== undefined && (layer < 0 || layer >= layers);
    const all = [...this.#terms].every(
      ([op, terms]) =>
        this.#scratch(op).floats >= rankOf(terms) &&
        terms.every(({ b }) => bufferBytes(b) <= device.limits.maxBufferSize),
    );
    return (
      all &&
      mats.every(({ layer }, m) => firsts[m] === firsts[m + 1] || known.has(m) || ofCpu(layer))
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
      if (!this.#terms.has(op)) return [step];
      return [
        ...(norm ? [{ index: index - 1, op: norm }] : []),
        { index, op },
        ...(act ? [{ index: index + 1, op: act }] : []),
      ];
    });
  }

  /** Records what the adapters add to a step. */
  add(to: Recorder, { op }: Step, rows: Rows, writer: Writer): void {
    const terms = this.#terms.get(op);
    if (!terms) return;
    const ld = rankOf(terms);
    const low = this.#scratch(op);
    const tile = Math.floor(low.floats / ld);
    const [x, out] = [writer.place(op.in, op.inCol, rows), writer.place(op.out, 0, rows)];
    for (let first = 0; first < rows.tokens; first += tile) {
      const tokens = Math.min(tile, rows.tokens - first);
      const behind = (place: Place): Place => ({ ...place, at: place.at + first * place.ld });
      const matrix = ({ type, rows, at: offset }: Matrix, buffer: GPUBuffer, column: number) => ({
        weights: { type, buffer, offset },
        rows,
        column,
      });
      to.matmul({
        parts: terms.map(({ a, at, buffer }) => matrix(a, buffer!, at)),
        cols: op.n,
        x: behind(x),
        out: { at: low.at, ld },
        tokens,
      });
      for (const { a, b, scale, outCol, at, buffer } of terms)
        to.matmul({
          parts: [matrix(b, buffer!, outCol)],
          cols: a.rows,
          x: { at: low.at + at, ld },
          out: behind(out),
          tokens,
          scale: op.scale * scale,
          add: true,
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

/** Writes the rows of a packed matrix. A group has the values of `group` rows, column by column. */
function unpack(
  memory: WebAssembly.Memory,
  { type, rows, cols, data, at }: Matrix,
  group: number,
  bytes: Uint8Array<ArrayBuffer>,
): void {
  const size = sizeOf(type);
  const Values = size === 4 ? Uint32Array : Uint16Array;
  const stride = align(cols * size * group, 64) / size;
  const from = new Values(memory.buffer, data, Math.ceil(rows / group) * stride);
  const to = new Values(bytes.buffer, at, rows * cols);
  for (let row = 0; row < rows; row++) {
    const begin = Math.floor(row / group) * stride + (row % group);
    for (let col = 0; col < cols; col++) to[row * cols + col] = from[begin + col * group]!;
  }
}
