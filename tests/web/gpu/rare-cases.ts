// Operations that few families have: a matrix for each head, what Gemma 3n adds, and relative positions.
import * as kernels from '../../../web/gpu/kernels/gemma-ops.js';
import { kFewTokens, type Place } from '../../../web/gpu/kernels.js';
import { typeIds } from '../../../web/gpu/kernels/types.js';
import type { Unit } from '../../../web/gpu/plan.js';
import { Buf, OpKind, type Op, type Program } from '../../../web/gpu/program.js';
import { rareOps as recorded } from '../../../web/gpu/rare-ops.js';
import type { Rows, Writer } from '../../../web/gpu/record.js';
import { randomWeights, weight } from './blocks.js';
import { activations } from './cases.js';
import { asTaken } from './codes.js';
import type { Harness } from './harness.js';
import { relativePositions } from './relative-cases.js';

interface HeadShape {
  type: number;
  heads: number;
  /** Of the unit that is on the GPU; other heads' columns stay as they are. */
  first: number;
  count: number;
  rows: number;
  cols: number;
  /** 0: all heads have the same input. */
  inStep: number;
  outStep: number;
  tokens: number;
}

function headMatmul(h: Harness, s: HeadShape): void {
  const { type, heads, first, count, rows, cols, inStep, outStep, tokens } = s;
  const numbers = h.place(1, heads, (_, i) => i);
  const x = h.place(tokens, inStep ? heads * inStep : cols);
  const out = h.place(tokens, heads * outStep);
  const bytes = randomWeights(h.random, type, count * rows, cols);
  const buffer = h.buffer(bytes);
  const mats = [{ type, rows, rowBytes: bytes.length / (count * rows) }];
  const record = recorded({ mats } as unknown as Program, { numbers: numbers.at });
  const op = {
    ...{ kind: OpKind.HeadMatmul, mat: 0, n: cols, heads, inStep, outStep },
    ...{ in: Buf.GateUp, inCol: 0, out: Buf.Qkv, outCol: 0 },
  } as Op;
  const writer = { place: (buf: Buf) => (buf === Buf.GateUp ? x : out) } as unknown as Writer;
  h.call(`a matrix per head ${JSON.stringify(s)}`, (r) =>
    record(r, op, { tokens } as Rows, writer, { experts: { first, count } } as Unit, buffer),
  );
  for (let head = first; head < first + count; head++) {
    const taken = Array.from({ length: tokens }, (_, t) =>
      asTaken(
        h,
        type,
        tokens,
        Array.from({ length: cols }, (_, c) => h.get(x, t, head * inStep + c)),
      ),
    );
    h.expect({ at: out.at + head * outStep, ld: out.ld }, tokens, rows, (t, r) => {
      let value = 0,
        size = 0;
      taken[t]!.forEach((x, c) => {
        const w = weight(bytes, type, cols, (head - first) * rows + r, c);
        value += w * x.value;
        size += Math.abs(w) * x.size;
      });
      return { value, size };
    });
  }
}

/** RMS norm of a row, with the values of a vector. */
function normed(h: Harness, place: Place, t: number, n: number, eps: number, gain?: number) {
  const all = Array.from({ length: n }, (_, i) => h.get(place, t, i));
  const root = Math.sqrt(all.reduce((sum, x) => sum + x * x, 0) / n + eps);
  return (i: number) => (all[i]! / root) * (gain === undefined ? 1 : h.vectorValue(gain + i));
}

const vectorOf = (h: Harness, n: number): number =>
  h.vector(Array.from({ length: n }, () => 1 + h.random.normal() / 4));

/** `type`: the weights are a matrix of this type times values. `more`: what else it computes. */
function streams(
  h: Harness,
  n: number,
  count: number,
  lead: number | undefined,
  type?: number,
  more = false,
): void {
  const tokens = 3;
  const eps = 1e-5;
  const height = lead === undefined ? count * count : count;
  const bytes = type === undefined ? undefined : randomWeights(h.random, type, height, count);
  const own = h.place(tokens, count * count);
  const matrix = bytes && { type: type!, buffer: h.buffer(bytes, 12), offset: 12 };
  const weightOf = (t: number, row: number): number => {
    if (!bytes) return h.get(own, t, row);
    let sum = 0;
    for (let i = 0; i < count; i++) sum += weight(bytes, type!, count, row, i) * h.get(own, t, i);
    return sum;
  };
  const given = h.place(tokens, n),
    out = h.place(tokens, count * n),
    scaled = h.place(tokens, n),
    added = h.place(tokens, n);
  const gain = vectorOf(h, n);
  const behind = (t: number) => normed(h, added, t, n, eps, gain);
  const before = (t: number, j: number, i: number) =>
    h.get(out, t, j * n + i) + (more && lead === undefined && j > 0 ? behind(t)(i) : 0);
  const correct = lead === undefined ? undefined : { in: given, active: lead };
  const name = `${count} streams of ${n}, ${lead === undefined ? 'mixed' : 'corrected'}`;
  h.call(`${name}, matrix ${type}, ${more}`, (r) =>
    kernels.streams(r, {
      ...{ weights: own, out, tokens, n, streams: count, correct, matrix },
      ...(more && (correct ? { scaled: { out: scaled, vec: gain } } : {})),
      ...(more && (correct ? {} : { behind: { ...added, weight: gain, eps } })),
    }),
  );
  h.expect(out, tokens, count * n, (t, column) => {
    const [j, i] = [Math.floor(column / n), column % n];
    const terms = [before(t, j, i)];
    if (lead === undefined)
      for (let k = 0; k < count; k++) terms.push(weightOf(t, j * count + k) * before(t, k, i));
    else {
      const by = 1 + weightOf(t, j);
      terms.push(by * h.get(given, t, i), -by * before(t, lead, i));
    }
    return {
      value: terms.reduce((a, b) => a + b),
      size: terms.reduce((a, b) => a + Math.abs(b), 0),
    };
  });
  if (!more || lead === undefined) return;
  h.expect(scaled, tokens, n, (t, i) => {
    const by = 1 + weightOf(t, lead);
    const value = before(t, lead, i) + by * (h.get(given, t, i) - before(t, lead, i));
    return { value: value * h.vectorValue(gain + i), size: 10 * (1 + Math.abs(by)) };
  });
}

function laurelSum(h: Harness, n: number): void {
  const tokens = 2;
  const eps = 1e-5;
  const scale = Math.fround(Math.SQRT1_2);
  const [out, low, x] = [0, 1, 2].map(() => ({
    ...h.place(tokens, n),
    weight: vectorOf(h, n),
  })) as [Place & kernels.Gain, Place & kernels.Gain, Place & kernels.Gain];
  low.weight = undefined;
  h.call(`attention and LAuReL of ${n}`, (r) =>
    kernels.laurelSum(r, { out, low, x, tokens, n, eps, scale }),
  );
  h.expect(out, tokens, n, (t, i) => {
    const terms = [
      ...[out, low, x].map((place) => normed(h, place, t, n, eps, place.weight)(i)),
      h.get(x, t, i),
    ];
    return {
      value: scale * terms.reduce((a, b) => a + b),
      size: terms.reduce((a, b) => a + Math.abs(b), 0),
    };
  });
}

function sparsify(h: Harness, n: number, deviations: number, activation?: number): void {
  const tokens = 2;
  const at = h.place(tokens, 2 * n, (t) => t + h.random.normal());
  h.call(`the largest of ${n}, ${deviations} deviations, activation ${activation}`, (r) =>
    kernels.sparsify(r, { at, tokens, n, deviations, activation }),
  );
  h.expect(at, tokens, n, (t, i) => {
    const all = Array.from({ length: n }, (_, j) => h.get(at, t, j));
    const mean = all.reduce((a, b) => a + b) / n;
    const squares = all.reduce((sum, x) => sum + (x - mean) ** 2, 0);
    const cut = mean + deviations * Math.sqrt(squares / Math.max(1, n - 1));
    const gate = Math.max(0, all[i]! - cut);
    const size = Math.abs(all[i]!) + Math.abs(cut);
    if (activation === undefined) return { value: gate, size };
    const up = h.get(at, t, n + i);
    return { value: activations[activation]!(gate, up), size: size * (1 + Math.abs(up)) };
  });
}

function matchNorm(h: Harness, n: number, heads: number): void {
  const wanted = h.place(2, n),
    matched = h.place(2, n * heads);
  h.call(`matched norm of ${n}`, (r) =>
    kernels.matchNorm(r, { in: wanted, out: matched, tokens: 2, n, heads }),
  );
  h.expect(matched, 2, n * heads, (t, i) => {
    const norm = (place: typeof wanted, from: number) =>
      Math.hypot(...Array.from({ length: n }, (_, j) => h.get(place, t, from + j)));
    return (h.get(matched, t, i) * norm(wanted, 0)) / norm(matched, Math.floor(i / n) * n);
  });
}

export function rareOps(h: Harness): void {
  const { F16, Q4_0, Q8_0 } = typeIds as { F16: number; Q4_0: number; Q8_0: number };
  for (const tokens of [1, 3, kFewTokens + 4]) {
    const part = { type: F16, heads: 5, first: 1, count: 3, rows: 9, cols: 39 };
    headMatmul(h, { ...part, inStep: 50, outStep: 11, tokens });
    const whole = { type: Q4_0, heads: 3, first: 0, count: 3, rows: 70, cols: 64 };
    headMatmul(h, { ...whole, inStep: 0, outStep: 70, tokens });
  }
  headMatmul(h, {
    ...{ type: Q8_0, heads: 4, first: 2, count: 2, rows: 6, cols: 96 },
    ...{ inStep: 96, outStep: 6, tokens: 1 },
  });
  for (const lead of [undefined, 0, 2]) streams(h, 70, 4, lead);
  streams(h, 5, 2, undefined);
  const [F32, half, BF16] = kernels.streamTypes;
  streams(h, 70, 4, undefined, half, true);
  for (const type of [F32, BF16]) streams(h, 70, 3, 2, type, true);
  for (const n of [70, 600]) laurelSum(h, n);
  for (const act of [0, 1]) sparsify(h, 70, 1.6449, act);
  for (const deviations of [1.6449, -0.5]) sparsify(h, 70, deviations);
  sparsify(h, 1300, 1);
  sparsify(h, 1, 1);
  matchNorm(h, 1, 1);
  matchNorm(h, 33, 2);
  matchNorm(h, 2000, 1);
  relativePositions(h);
}
