// Test cases of every kernel, swept over sizes and alignments, with their expected results.
import type { Cache, Part, Recorder } from '../../../web/gpu/kernels.js';
import { attentionScratch } from '../../../web/gpu/kernels.js';
import { types } from '../../../web/gpu/kernels/types.js';
import { floatOfBits, halfValue, randomWeights, weight } from './blocks.js';
import { asTaken } from './codes.js';
import { experts } from './expert-cases.js';
import { type Harness, Random, type Wanted } from './harness.js';
import { morePictures, pictures } from './picture-cases.js';
import { rareOps } from './rare-cases.js';
import { recurrent } from './recurrent-cases.js';
import { sampling } from './sampling-cases.js';

const erf = (x: number) => {
  // By its series, or by the continued fraction of the complement.
  const z = Math.abs(x);
  let value = 0;
  if (z < 3) {
    let term = z;
    for (let n = 0; Math.abs(term) > 1e-18 * Math.abs(value) || n < 2; ++n, term *= (-z * z) / n)
      value += term / (2 * n + 1);
    value *= 2 / Math.sqrt(Math.PI);
  } else {
    let fraction = 0;
    for (let n = 60; n > 0; --n) fraction = n / 2 / (z + fraction);
    value = 1 - Math.exp(-z * z) / Math.sqrt(Math.PI) / (z + fraction);
  }
  return x < 0 ? -value : value;
};
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const relu = (x: number) => Math.max(x, 0);
export const xielu = { positive: 0.8, negative: 0.55, linear: 0.5, below: -1e-6 };
export const activations: ((g: number, u: number) => number)[] = [
  (g, u) => g * sigmoid(g) * u,
  (g, u) => 0.5 * g * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (g + 0.044715 * g ** 3))) * u,
  (g) => 0.5 * g * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (g + 0.044715 * g ** 3))),
  (g, u) => relu(g) * u,
  (g) => relu(g) ** 2,
  (g, u) => Math.min(g, 7) * sigmoid(1.702 * Math.min(g, 7)) * (Math.max(-7, Math.min(7, u)) + 1),
  (g) => 0.5 * g * (1 + erf(g / Math.SQRT2)),
  (g) => Math.tanh(g),
  (g, u) => relu(g) ** 2 * u,
  (x) =>
    (x > 0 ? xielu.positive * x * x : xielu.negative * (Math.expm1(Math.min(x, xielu.below)) - x)) +
    xielu.linear * x,
  relu,
];
const gated = (kind: number) => ![2, 4, 6, 7, 9, 10].includes(kind);
const unaries: ((x: number) => number)[] = [
  (x) => x,
  (x) => x * sigmoid(x),
  sigmoid,
  Math.tanh,
  (x) => relu(x) + Math.log1p(Math.exp(-Math.abs(x))),
  (x) => relu(x) ** 2,
  (x) => Math.exp(-Math.exp(x)),
  (x) => Math.exp(-sigmoid(x) * Math.exp(-0.5)),
];

interface ProductShape {
  types: number[];
  rows: number[];
  cols: number;
  tokens: number;
  add?: boolean;
  bias?: boolean;
  factor?: boolean;
  scale?: number;
  norm?: boolean;
  activation?: number;
  /** The activation's second input is elsewhere. */
  up?: boolean;
  offset?: number;
}

/** One matmul call with a part for each of shape.types. */
function product(h: Harness, shape: ProductShape): void {
  const { cols, tokens, offset = 0 } = shape;
  const eps = 1e-5;
  const x = h.place(tokens, cols);
  const width = shape.rows.reduce((a, b) => a + b, 0);
  const out = h.place(tokens, width, (t, i) => t - i / 7);
  const y0 = (t: number, i: number) => h.get(out, t, i);
  const gain = shape.norm
    ? h.vector(Array.from({ length: cols }, () => 1 + h.random.normal() / 4))
    : undefined;
  let column = 0;
  const sums: ((t: number, r: number) => Wanted)[] = [];
  const parts: Part[] = shape.types.map((type, i) => {
    const rows = shape.rows[i]!;
    const bytes = randomWeights(h.random, type, rows, cols);
    const bias = shape.bias
      ? h.vector(Array.from({ length: rows }, () => h.random.normal()))
      : undefined;
    const factor = shape.factor ? h.vector([1.5 + i]) : undefined;
    const decoded = Array.from({ length: rows }, (_, r) =>
      Float64Array.from({ length: cols }, (_, c) => weight(bytes, type, cols, r, c)),
    );
    const taken = Array.from({ length: tokens }, (_, t) => {
      const values = Array.from({ length: cols }, (_, c) => h.get(x, t, c));
      const root = shape.norm
        ? 1 / Math.sqrt(values.reduce((sum, value) => sum + value ** 2, 0) / cols + eps)
        : 1;
      return asTaken(
        h,
        type,
        tokens,
        values.map((value, c) => value * root * (gain === undefined ? 1 : h.vectorValue(gain + c))),
      );
    });
    sums.push((t, r) => {
      let value = 0,
        size = 0;
      taken[t]!.forEach((x, c) => {
        value += decoded[r]![c]! * x.value;
        size += Math.abs(decoded[r]![c]!) * x.size;
      });
      const scale = shape.scale ?? 1;
      const by = factor === undefined ? 1 : h.vectorValue(factor);
      const more = bias === undefined ? 0 : h.vectorValue(bias + r);
      return {
        value: scale * (by * value + more),
        size: Math.abs(scale) * (Math.abs(by) * size + Math.abs(more)),
      };
    });
    const part = {
      weights: { type, buffer: h.buffer(bytes, offset), offset },
      rows,
      column,
      bias,
      factor,
    };
    column += rows;
    return part;
  });
  const kind = shape.activation;
  const apart = shape.up ? h.place(tokens, width) : undefined;
  const activation = kind === undefined ? undefined : { kind, xielu, up: apart };
  const norm = shape.norm ? { weight: gain, eps, scratch: h.place(tokens, cols) } : undefined;
  if (norm) h.scratch(norm.scratch.at, tokens * norm.scratch.ld);
  h.call(`product ${JSON.stringify(shape)}`, (r) =>
    r.matmul({ parts, cols, x, out, tokens, scale: shape.scale, add: shape.add, norm, activation }),
  );
  column = 0;
  parts.forEach((part, i) => {
    if (kind !== undefined && i === 1) return h.scratch(out.at, 0);
    h.expect({ at: out.at + column, ld: out.ld }, tokens, part.rows, (t, r) => {
      const sum = sums[i]!(t, r);
      if (kind !== undefined) {
        const up = apart
          ? { value: h.get(apart, t, r), size: 10 }
          : parts.length > 1
            ? sums[1]!(t, r)
            : { value: 0, size: 0 };
        const value = activations[kind]!(sum.value, up.value);
        return { value, size: (1 + Math.abs(value)) * (1 + sum.size!) * (1 + (up.size ?? 0)) };
      }
      const before = shape.add
        ? y0(t, i === 0 ? r : r + shape.rows.slice(0, i).reduce((a, b) => a + b, 0))
        : 0;
      return { value: sum.value + before, size: sum.size! + Math.abs(before) };
    });
    column += part.rows;
  });
  if (kind !== undefined && parts.length > 1) {
    for (let t = 0; t < tokens; ++t)
      h.scratch(out.at + t * out.ld + shape.rows[0]!, shape.rows[1]!);
  }
}

const f16 = 1,
  q40 = 2,
  q80 = 8,
  q4k = 12,
  q6k = 14,
  iq2s = 22,
  nvfp4 = 40;
const blockOf = (type: number) => types.get(type)!.values;

export function everyType(h: Harness): void {
  for (const type of types.keys()) {
    const cols = Math.max(blockOf(type) * 3, 96);
    product(h, { types: [type], rows: [7], cols, tokens: 1, offset: 4 * h.random.below(80) });
    // GEMV and GEMM decode weights alike, so the larger case needs only some types.
    if ([f16, q40, q80, q4k, q6k, iq2s, nvfp4].includes(type))
      product(h, { types: [type], rows: [70], cols, tokens: 33, offset: 4 * h.random.below(80) });
  }
}

/** Decodes every type with a kernel that is fast to compile; GEMV and GEMM decode alike. */
export function everyRow(h: Harness): void {
  for (const type of types.keys())
    table(h, type, Math.max(blockOf(type) * 3, 96), 0, Math.max(blockOf(type) * 3, 96));
}

/** A matrix multiplication of each kind. */
export function products(h: Harness): void {
  product(h, { types: [q80, q4k, 1], rows: [9, 16, 6], cols: 256, tokens: 2, norm: true });
  product(h, { types: [q4k, q80, q6k], rows: [5, 8, 12], cols: 512, tokens: 1, norm: true });
  product(h, { types: [f16], rows: [9], cols: 70, tokens: 3, add: true });
  product(h, { types: [q40], rows: [5], cols: 64, tokens: 2, bias: true, scale: 0.5 });
  for (const cols of [5, 640]) product(h, { types: [0], rows: [3], cols, tokens: 1 });
  product(h, { types: [f16], rows: [66], cols: 46, tokens: 9, add: true, bias: true });
  product(h, { types: [f16], rows: [66], cols: 64, tokens: 9, add: true, bias: true });
  product(h, {
    types: [q80, q80, q80],
    rows: [65, 3, 130],
    cols: 96,
    tokens: 34,
    norm: true,
    factor: true,
  });
  product(h, {
    types: [q4k, q4k, q6k],
    rows: [9, 4, 8],
    cols: 512,
    tokens: 1,
    norm: true,
    add: true,
    factor: true,
    scale: 2,
  });
  product(h, { types: [q40, q40], rows: [10, 10], cols: 96, tokens: 1, activation: 0, norm: true });
  product(h, { types: [q40, f16], rows: [70, 10], cols: 96, tokens: 12, norm: true });
}

/** The same kinds with other sizes. */
export function moreProducts(h: Harness): void {
  for (const tokens of [1, 2, 8]) {
    product(h, { types: [f16], rows: [9], cols: 70, tokens, add: true });
    product(h, { types: [f16], rows: [9], cols: 72, tokens, add: true });
    product(h, { types: [q40], rows: [5], cols: 64, tokens, bias: true, scale: 0.5 });
  }
  for (const cols of [1, 8, 36]) product(h, { types: [0], rows: [3], cols, tokens: 1 });
  for (const cols of [3, 200])
    product(h, { types: [f16], rows: [66], cols, tokens: 9, add: true, bias: true });
  product(h, { types: [30], rows: [1], cols: 7, tokens: 40 });
  // The thin matrices of LoRA adapters: those of several parts, and one whose product is added.
  for (const tokens of [1, 12]) {
    product(h, { types: [0, f16, 30], rows: [8, 4, 1], cols: 96, tokens });
    product(h, { types: [0], rows: [70], cols: 4, tokens, add: true, scale: 0.5 });
    product(h, { types: [f16], rows: [70], cols: 1, tokens, add: true, scale: 2 });
  }
  product(h, { types: [q80, q80, q80], rows: [9, 3, 6], cols: 96, tokens: 1, norm: true });
  product(h, {
    types: [q80, q80, q80],
    rows: [9, 3, 6],
    cols: 96,
    tokens: 3,
    norm: true,
    bias: true,
  });
  product(h, { types: [q40, q40, q40, q40, q40], rows: [4, 4, 1, 2, 6], cols: 32, tokens: 2 });
  for (const tokens of [1, 4, 12]) {
    product(h, { types: [q40, q40], rows: [10, 10], cols: 96, tokens, activation: 0, norm: true });
    product(h, { types: [q80, q40], rows: [10, 10], cols: 32, tokens, activation: 1 });
    product(h, { types: [f16], rows: [10], cols: 32, tokens, activation: 2, bias: true });
    product(h, { types: [q80], rows: [10], cols: 64, tokens, activation: 1, up: true });
  }
  product(h, { types: [f16, f16], rows: [10, 10], cols: 32, tokens: 1, activation: 5, bias: true });
  product(h, { types: [f16], rows: [10], cols: 32, tokens: 1, activation: 9, norm: true });
  product(h, { types: [q80, f16], rows: [6, 6], cols: 1056, tokens: 2, norm: true });
  product(h, {
    types: [q4k, q80],
    rows: [6, 6],
    cols: 1024,
    tokens: 40,
    norm: true,
    bias: true,
    scale: 3,
  });
}

/** Reads rows of a table: columns [column, column + n). */
function table(h: Harness, type: number, cols: number, column: number, n: number): void {
  const bytes = randomWeights(h.random, type, 20, cols);
  const ids = [19, 0, 7];
  const at = h.place(1, 3, (_, i) => ids[i]!);
  const block = blockOf(type);
  // A value may be a difference of terms as large as the largest value of its block.
  const most = ids.map((id) =>
    Array.from({ length: cols / block }, (_, b) =>
      Math.max(
        ...Array.from({ length: block }, (_, i) =>
          Math.abs(weight(bytes, type, cols, id, b * block + i)),
        ),
      ),
    ),
  );
  for (const add of [false, true]) {
    const out = h.place(3, n);
    const before = (t: number, i: number) => h.get(out, t, i);
    const weights = { type, buffer: h.buffer(bytes, 12), offset: 12 };
    h.call(`rows ${type}`, (r) =>
      r.rows({ weights, count: 20, cols, ids: at.at, tokens: 3, column, n, out, scale: 1.5, add }),
    );
    h.expect(out, 3, n, (t, i) => {
      const more = add ? before(t, i) : 0;
      return {
        value: 1.5 * weight(bytes, type, cols, ids[t]!, column + i) + more,
        size: 1.5 * most[t]![Math.floor((column + i) / block)]! + Math.abs(more),
      };
    });
  }
}

export function rows(h: Harness): void {
  for (const [type, cols, column, n] of [
    [q6k, 512, 0, 512],
    [q40, 96, 33, 50],
    [f16, 45, 3, 42],
    [f16, 64, 8, 50],
    [0, 9, 0, 9],
  ] as const)
    table(h, type, cols, column, n);
}

export function norms(h: Harness): void {
  for (const [n, heads, tokens] of [
    [1, 1, 1],
    [37, 3, 2],
    [64, 5, 1],
    [1000, 1, 3],
  ] as const) {
    for (const kind of [0, 1, 2]) {
      for (const perHead of [false, true]) {
        const size = perHead ? n * heads : n;
        const weight =
          kind === 2 ? undefined : h.vector(Array.from({ length: size }, () => h.random.normal()));
        const bias =
          kind === 2 || n === 64
            ? undefined
            : h.vector(Array.from({ length: size }, () => h.random.normal()));
        const inPlace = n === 64;
        const x = h.place(tokens, n * heads, () => 3 + h.random.normal());
        const out = inPlace ? x : h.place(tokens, n * heads);
        const source = Array.from({ length: tokens }, (_, t) =>
          Array.from({ length: n * heads }, (_, i) => h.get(x, t, i)),
        );
        const eps = 1e-4;
        const add = inPlace || perHead ? undefined : -0.5;
        const norm = { heads, kind, weight, bias, perHead, eps, scale: 1.25, add };
        h.call(`norm ${kind} of ${heads} x ${n}, add ${add}`, (r) =>
          r.norm({ in: x, out, tokens, n, ...norm }),
        );
        const before = Array.from({ length: tokens }, (_, t) =>
          Array.from({ length: n * heads }, (_, i) => h.get(out, t, i)),
        );
        const added = (t: number, j: number, norm: { value: number; size: number }) =>
          add === undefined
            ? norm
            : {
                value: before[t]![j]! + add * norm.value,
                size: Math.abs(before[t]![j]!) + norm.size,
              };
        h.expect(out, tokens, n * heads, (t, j) => {
          const head = Math.floor(j / n),
            values = source[t]!.slice(head * n, head * n + n);
          const mean = kind === 1 ? values.reduce((a, b) => a + b, 0) / n : 0;
          const squares = values.reduce((a, b) => a + (b - mean) ** 2, 0);
          if (kind === 2) {
            const value = (1.25 * source[t]![j]!) / Math.max(Math.sqrt(squares), eps);
            return added(t, j, { value, size: Math.abs(value) });
          }
          const own = (perHead ? head * n : 0) + (j % n);
          const term =
            ((source[t]![j]! - mean) / Math.sqrt(squares / n + eps)) * h.vectorValue(weight! + own);
          const more = bias === undefined ? 0 : h.vectorValue(bias + own);
          // The rounding error of a mean is divided by the same root.
          return added(t, j, {
            value: term + more,
            size:
              Math.abs(term) +
              Math.abs(more) +
              (3 * Math.abs(h.vectorValue(weight! + own))) / Math.sqrt(squares / n + eps),
          });
        });
      }
    }
  }
}

export function vectors(h: Harness): void {
  type Change = (
    r: Recorder,
    op: {
      in: { at: number; ld: number };
      out: { at: number; ld: number };
      tokens: number;
      n: number;
      heads: number;
      inStep: number;
      outStep: number;
    },
  ) => void;
  const each = (
    name: string,
    record: Change,
    value: (x: number, y: number, i: number) => number,
    wide = false,
  ) => {
    for (const [n, heads, tokens] of [
      [1, 1, 1],
      [50, 3, 2],
      [129, 1, 3],
    ] as const) {
      const inStep = n + 2,
        outStep = n + 1;
      const spread = () => (wide ? 12 * h.random.normal() : h.random.normal());
      const x = h.place(tokens, heads * inStep, spread),
        out = h.place(tokens, heads * outStep);
      h.call(`${name} of ${heads} x ${n}`, (r) =>
        record(r, { in: x, out, tokens, n, heads, inStep, outStep }),
      );
      for (let head = 0; head < heads; ++head) {
        h.expect({ at: out.at + head * outStep, ld: out.ld }, tokens, n, (t, i) => {
          const before = h.get(out, t, head * outStep + i);
          const v = value(h.get(x, t, head * inStep + i), before, i);
          return { value: v, size: Math.abs(before) * 0.5 + (wide ? 0 : 1e-3) };
        });
      }
    }
  };
  each(
    'add',
    (r, op) => r.add(op),
    (x, y) => x + y,
  );
  each(
    'scaled add',
    (r, op) => r.add({ ...op, scale: -0.3 }),
    (x, y) => y - Math.fround(0.3) * x,
  );
  each(
    'scale',
    (r, op) => r.scale({ ...op, scale: 3 }),
    (x) => 3 * x,
  );
  each(
    'scale by 0',
    (r, op) => r.scale({ ...op, scale: 0 }),
    () => 0,
  );
  each(
    'copy',
    (r, op) => r.copy(op),
    (x) => x,
  );
  each(
    'softcap',
    (r, op) => r.softcap({ ...op, softcap: 5 }),
    (x) => 5 * Math.tanh(x / 5),
    true,
  );
  each(
    'clamp',
    (r, op) => r.clamp({ ...op, softcap: 0.75 }),
    (x) => Math.max(-0.75, Math.min(0.75, x)),
  );
  unaries.forEach((f, unary) =>
    each(
      `unary ${unary}`,
      (r, op) => r.unary({ ...op, unary }),
      (x) => f(x),
      unary !== 6,
    ),
  );
  const long = h.vector(Array.from({ length: 129 }, () => h.random.normal()));
  each(
    'mulVec',
    (r, op) => r.mulVec({ ...op, vec: long }),
    (x, _, i) => x * h.vectorValue(long + i),
  );
  each(
    'mulVec by one',
    (r, op) => r.mulVec({ ...op, vec: long, one: true }),
    (x) => x * h.vectorValue(long),
  );
  each(
    'addVec',
    (r, op) => r.addVec({ ...op, vec: long }),
    (x, _, i) => x + h.vectorValue(long + i),
  );
  activations.forEach((f, kind) => {
    for (const [n, tokens] of [
      [70, 2],
      [3, 1],
    ] as const) {
      const at = h.place(tokens, 2 * n, () => 4 * h.random.normal());
      h.call(`activation ${kind}`, (r) => r.activate({ at, tokens, n, kind, xielu }));
      h.expect(at, tokens, n, (t, i) => ({
        value: f(h.get(at, t, i), gated(kind) ? h.get(at, t, n + i) : 0),
        size: 0.1,
      }));
    }
  });
  for (const heads of [1, 4]) {
    const gate = h.place(2, heads),
      out = h.place(2, 12);
    h.call(`gate of ${heads}`, (r) => r.gate({ in: gate, out, tokens: 2, n: 12, heads }));
    h.expect(
      out,
      2,
      12,
      (t, i) => h.get(out, t, i) * sigmoid(h.get(gate, t, Math.floor(i / (12 / heads)))),
    );
    const x = h.place(2, 6 * heads),
      gates = h.place(2, 8 * heads),
      y = h.place(2, 6 * heads);
    h.call(`gated of ${heads}`, (r) =>
      r.gated({ in: x, out: y, tokens: 2, n: 6, heads, unary: 1, gate: gates, stride: 8 }),
    );
    h.expect(
      y,
      2,
      6 * heads,
      (t, i) => h.get(x, t, i) * unaries[1]!(h.get(gates, t, Math.floor(i / 6) * 8 + (i % 6))),
    );
  }
}

interface AttentionShape {
  heads: number;
  kvHeads: number;
  dk: number;
  dv: number;
  tokens: number;
  first: number;
  /** q4_0: batches that end no group. */
  type?: 'f16' | 'q8_0' | 'q4_0';
  window?: number;
  chunked?: boolean;
  causal?: boolean;
  whole?: boolean;
  /** End of what the batch is a part of. */
  seenTo?: number;
  softcap?: number;
  alibi?: number;
  sinks?: boolean;
  inKeys?: boolean;
  capacity?: number;
  rot?: number;
  neox?: boolean;
  column?: number;
  /** Heads of queries and keys have an RMS norm, and possibly those of values. */
  normed?: boolean | 'values';
  /** The first visible position, and how many are visible apart from the cache, to other queries. */
  begin?: number;
  kept?: number;
}

/** Positions apart from the cache, for `queries` of their own. */
interface Kept {
  queries: { at: number; ld: number };
  cache: Cache;
  length: number;
  key(head: number, p: number, i: number): number;
  value(head: number, p: number, i: number): number;
}

/** `length` positions in halves, of more that there is room for. */
function keptApart(
  h: Harness,
  { heads, kvHeads, dk, dv, tokens }: AttentionShape,
  length: number,
): Kept {
  const capacity = length + 3;
  const headBytes = 2 * capacity * (dk + dv);
  const bytes = new Uint8Array(kvHeads * headBytes);
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length; at += 2) view.setUint16(at, half(h.random), true);
  const cache: Cache = {
    buffer: h.buffer(bytes, 0),
    type: 'f16',
    capacity,
    keys: 0,
    keyHead: headBytes,
    keyRow: 2 * dk,
    values: 2 * capacity * dk,
    valueHead: headBytes,
    valueRow: 2 * dv,
  };
  const read = (at: number): number => halfValue(view.getUint16(at, true));
  return {
    queries: h.place(tokens, heads * dk),
    cache,
    length,
    key: (head, p, i) => read(head * headBytes + 2 * (p * dk + i)),
    value: (head, p, i) => read(head * headBytes + 2 * (capacity * dk + p * dv + i)),
  };
}

/** kKvLevels4 (kernels/kernels.h). */
const kLevels4 = [-63, -50, -40, -30, -22, -15, -9, -3, 3, 9, 15, 22, 30, 40, 50, 63];
const half = (random: Random) => (random.below(2) << 15) | (0x2c00 + random.below(0x1200));

/** Rotates the batch's keys, stores its KV rows after random ones, then attends. */
function attend(h: Harness, s: AttentionShape): void {
  const {
    heads,
    kvHeads,
    dk,
    dv,
    tokens,
    first,
    type = 'f16',
    rot = 0,
    column = 0,
    inKeys = false,
  } = s;
  const end = s.seenTo ?? first + tokens,
    capacity = s.capacity ?? end;
  const blockBytes = type === 'q4_0' ? 20 : 36;
  const rowOf = (n: number) =>
    type === 'f16' ? Math.ceil((2 * n) / 4) * 4 : Math.ceil(n / 32) * blockBytes;
  const keyRow = rowOf(dk),
    valueRow = inKeys ? keyRow : rowOf(dv);
  const perHead = capacity * (keyRow + (inKeys ? 0 : valueRow));
  // q4_0: rows of halves behind the blocks.
  const halfRow = 2 * kvHeads * (dk + dv);
  const halvesAt = kvHeads * perHead;
  const bytes = new Uint8Array(halvesAt + (type === 'q4_0' ? capacity * halfRow : 0));
  const view = new DataView(bytes.buffer);
  const fill = (at: number, n: number) => {
    if (type === 'f16')
      for (let i = 0; i < n; ++i) view.setUint16(at + 2 * i, half(h.random), true);
    else
      for (let b = 0; b < Math.ceil(n / 32); ++b) {
        const block = at + blockBytes * b;
        view.setUint32(block, 0x3c000000 + (h.random.below(64) << 16), true);
        for (let i = 4; i < blockBytes; ++i) view.setInt8(block + i, h.random.below(255) - 127);
      }
  };
  const keptIn = (v: DataView, at: number, i: number) => {
    if (type === 'f16' || at >= halvesAt) return halfValue(v.getUint16(at + 2 * i, true));
    const block = at + blockBytes * (i >> 5);
    const scale = v.getFloat32(block, true);
    if (type === 'q8_0') return scale * v.getInt8(block + 4 + (i % 32));
    const codes = v.getUint8(block + 4 + (i % 16));
    return scale * kLevels4[(codes >> (i & 16 ? 4 : 0)) & 15]!;
  };
  /** Where a query at `own` reads position `p`, which `at` gives for blocks. */
  const readAt = (at: (head: number, p: number) => number, keys: boolean) => {
    return (head: number, p: number, own: number): number =>
      type === 'q4_0' && p >> 6 === own >> 6
        ? halvesAt + (p % capacity) * halfRow + 2 * (keys ? head * dk : kvHeads * dk + head * dv)
        : at(head, p);
  };
  const keyAt = (head: number, position: number) => head * perHead + (position % capacity) * keyRow;
  const valueAt = (head: number, position: number) =>
    inKeys
      ? keyAt(head, position)
      : head * perHead + capacity * keyRow + (position % capacity) * valueRow;
  const keyRead = readAt(keyAt, true),
    valueRead = readAt(valueAt, false);
  for (let at = halvesAt; at < bytes.length; at += 2) view.setUint16(at, half(h.random), true);
  for (let head = 0; head < kvHeads; ++head) {
    for (let place = 0; place < capacity; ++place) {
      fill(keyAt(head, place), dk);
      if (!inKeys) fill(valueAt(head, place), dv);
    }
  }
  const qkv = h.place(tokens, (heads + kvHeads) * dk + kvHeads * dv);
  const table = h.place(tokens, rot, (t, i) =>
    i < rot / 2 ? Math.cos((first + t) * 3 ** -i) : Math.sin((first + t) * 3 ** -(i - rot / 2)),
  );
  if (table.ld !== rot)
    table.at = h.place(1, tokens * rot, (_, i) => h.get(table, Math.floor(i / rot), i % rot)).at;
  const cosine = (t: number, i: number) => Math.fround(Math.cos((first + t) * 3 ** -i)),
    sine = (t: number, i: number) => Math.fround(Math.sin((first + t) * 3 ** -i));
  // RMS norm of each head of queries and keys, with weights per head.
  const gains = [heads, kvHeads].map((count) =>
    s.normed
      ? Array.from({ length: count * dk }, () => Math.fround(1 + h.random.normal() / 4))
      : [],
  );
  const norm = s.normed
    ? {
        queries: h.vector(gains[0]!),
        keys: h.vector(gains[1]!),
        perHead: true,
        values: s.normed === 'values',
        eps: 1e-5,
      }
    : undefined;
  /** A value of a head of n values. */
  const headValue = (t: number, at: number, d: number, n: number, hasNorm?: boolean): number => {
    const x = h.get(qkv, t, at + d);
    if (!norm || !hasNorm) return x;
    let squares = 0;
    for (let i = 0; i < n; ++i) squares += h.get(qkv, t, at + i) ** 2;
    return x / Math.sqrt(squares / n + norm.eps);
  };
  const value = (t: number, at: number, d: number): number => {
    const keys = heads * dk;
    const gain = at < keys ? gains[0]?.[at + d] : gains[1]?.[at - keys + d];
    return headValue(t, at, d, dk, true) * (gain ?? 1);
  };
  const rotated = (t: number, at: number, d: number) => {
    const e = d - column;
    const x = (i: number) => value(t, at, column + i);
    if (e < 0 || e >= rot) return value(t, at, d);
    const i = s.neox ? e % (rot / 2) : e >> 1;
    const a = s.neox ? i : 2 * i,
      b = s.neox ? i + rot / 2 : 2 * i + 1;
    return e === a
      ? x(a) * cosine(t, i) - x(b) * sine(t, i)
      : x(a) * sine(t, i) + x(b) * cosine(t, i);
  };
  /** A head as the cache has it. */
  const head = (n: number, value: (d: number) => number): number[] => {
    const values = Array.from({ length: n }, (_, d) => value(d));
    return type === 'f16' ? values : transformed(values);
  };
  const queries = Array.from({ length: tokens }, (_, t) =>
    Array.from({ length: heads }, (_, i) => head(dk, (d) => rotated(t, i * dk, d))),
  );
  // The expected content of the KV cache.
  const stored = new Map<number, number[]>(); // byte of a row: its values
  for (let i = 0; i < kvHeads; ++i) {
    for (let t = 0; t < tokens; ++t) {
      stored.set(
        keyRead(i, first + t, first + t),
        head(dk, (d) => rotated(t, (heads + i) * dk, d)),
      );
      if (!inKeys)
        stored.set(
          valueRead(i, first + t, first + t),
          head(dv, (d) => headValue(t, (heads + kvHeads) * dk + i * dv, d, dv, norm?.values)),
        );
    }
  }
  const check = (after: Uint8Array) => {
    const failures: string[] = [],
      now = new DataView(after.buffer);
    for (const [at, values] of stored) {
      const most = (i: number) => Math.max(...values.slice(i & ~31, (i & ~31) + 32).map(Math.abs));
      values.forEach((value, i) => {
        const got = keptIn(now, at, i);
        const allowed =
          type !== 'q8_0' ? Math.abs(value) * 2 ** -11 + 1e-6 : (most(i) / 127) * 0.51;
        if (!(Math.abs(got - value) <= allowed))
          failures.push(`${name}: stored ${got}, not ${value}`);
      });
    }
    for (let i = 0; i < bytes.length; i += 4) {
      const inside = [...stored.keys()].some(
        (at) =>
          i >= at && i < at + (at < halvesAt ? Math.max(keyRow, valueRow) : 2 * Math.max(dk, dv)),
      );
      if (!inside && view.getUint32(i) !== now.getUint32(i))
        failures.push(`${name}: byte ${i} of the cache has changed`);
    }
    return failures;
  };
  const name = `attention ${JSON.stringify(s)}`;
  const buffer = h.buffer(bytes, 0, check);
  const cache: Cache = {
    buffer,
    type,
    capacity,
    keys: 0,
    keyHead: perHead,
    keyRow,
    values: inKeys ? 0 : capacity * keyRow,
    valueHead: perHead,
    valueRow,
    ...(type === 'q4_0' && {
      recent: { recent_at: halvesAt / 4, recent_capacity: capacity },
    }),
  };
  const out = h.place(tokens, heads * dv);
  const kept = s.kept ? keptApart(h, s, s.kept) : undefined;
  const scratch = h.place(1, attentionScratch(heads, dv, kept && tokens));
  h.scratch(scratch.at, scratch.ld);
  const sinks = s.sinks
    ? h.vector(Array.from({ length: heads }, () => 1 + h.random.normal()))
    : undefined;
  const shape = { heads, kvHeads, dk, dv, valuesInKeys: inKeys };
  const causal = s.causal ?? true;
  const scale = 1 / Math.sqrt(dk);
  h.call(name, (r) => {
    if (rot > 0)
      r.rope({
        ...shape,
        qkv,
        tokens,
        owned: true,
        rot,
        neox: s.neox ?? false,
        column,
        table: table.at,
        store: { cache, first },
        norm,
      });
    else r.store({ ...shape, qkv, tokens, cache, first });
    r.attention({
      ...shape,
      qkv,
      out,
      tokens,
      first,
      cache,
      scale,
      softcap: s.softcap,
      window: s.window,
      chunked: s.chunked,
      causal,
      whole: s.whole,
      length: end,
      alibi: s.alibi,
      begin: s.begin,
      kept,
      sinks,
      scratch: scratch.at,
    });
  });
  h.expect(qkv, tokens, heads * dk, (t, i) => ({
    value: queries[t]![Math.floor(i / dk)]![i % dk]!,
    size: 1,
  }));
  // A KV value of the batch as the cache stores it, rounded.
  const cached = (at: number, i: number) => {
    const values = stored.get(at);
    if (!values) return keptIn(view, at, i);
    if (type !== 'q8_0') return roundToHalf(values[i]!);
    const most = Math.max(...values.slice(i & ~31, (i & ~31) + 32).map(Math.abs));
    const d = toBf16(Math.fround(most / 127));
    return d * Math.max(-127, Math.min(127, Math.round(values[i]! / d)));
  };
  const group = heads / kvHeads,
    even = 2 ** Math.floor(Math.log2(heads));
  const wantedRow = (t: number, head: number) => {
    const position = first + t,
      kvHead = Math.floor(head / group),
      window = s.window ?? 0;
    const from =
      window === 0
        ? (s.begin ?? 0)
        : s.chunked
          ? Math.floor(position / window) * window
          : Math.max(0, causal ? position + 1 - window : position - Math.floor(window / 2));
    const bidirectional = window === 0 ? end : Math.min(end, position + Math.floor(window / 2) + 1);
    const until = s.whole ? end : causal ? position + 1 : bidirectional;
    const slope = s.alibi
      ? 2 ** -((s.alibi / even) * (head < even ? head + 1 : head - even + 0.5))
      : 0;
    const scores: number[] = [];
    const add = (score: number, bias: number): void => {
      score *= scale;
      if (s.softcap) score = s.softcap * Math.tanh(score / s.softcap);
      scores.push(score - bias);
    };
    for (let p = from; p < until; ++p) {
      let score = 0;
      for (let d = 0; d < dk; ++d)
        score += queries[t]![head]![d]! * cached(keyRead(kvHead, p, position), d);
      add(score, slope * Math.abs(p - position));
    }
    for (let p = 0; kept && p < kept.length; ++p) {
      let score = 0;
      for (let d = 0; d < dk; ++d)
        score += h.get(kept.queries, t, head * dk + d) * kept.key(kvHead, p, d);
      add(score, 0);
    }
    const sink = sinks === undefined ? -Infinity : h.vectorValue(sinks + head);
    const top = Math.max(sink, ...scores);
    const weights = scores.map((x) => Math.exp(x - top));
    const sum = weights.reduce((a, b) => a + b, 0) + Math.exp(sink - top);
    const inRing = until - from;
    const valueOf = (j: number, c: number): number =>
      j < inRing
        ? cached(valueRead(kvHead, from + j, position), c)
        : kept!.value(kvHead, j - inRing, c);
    const row = Array.from({ length: dv }, (_, c) =>
      weights.reduce((a, w, j) => a + (w / sum) * valueOf(j, c), 0),
    );
    return type === 'f16' ? row : transformed(row);
  };
  const wanted = Array.from({ length: tokens }, (_, t) =>
    Array.from({ length: heads }, (_, head) => wantedRow(t, head)),
  );
  // A value halfway between two representable ones may be rounded to either.
  h.expect(
    out,
    tokens,
    heads * dv,
    (t, i) => ({ value: wanted[t]![Math.floor(i / dv)]![i % dv]!, size: 1 }),
    type === 'f16' ? 2e-5 : 2e-3,
  );
}

function roundToHalf(x: number): number {
  const exponent = Math.max(Math.floor(Math.log2(Math.abs(x) || 1e-9)), -14);
  const unit = 2 ** (exponent - 10),
    n = x / unit,
    down = Math.floor(n);
  const up = n - down > 0.5 || (n - down === 0.5 && down % 2 !== 0);
  return (down + (up ? 1 : 0)) * unit;
}
function toBf16(x: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, x);
  const bits = view.getUint32(0);
  return floatOfBits(((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000) >>> 0);
}

export function attention(h: Harness): void {
  attend(h, { heads: 8, kvHeads: 2, dk: 64, dv: 64, tokens: 1, first: 40, rot: 64, neox: true });
  attend(h, {
    heads: 2,
    kvHeads: 2,
    dk: 16,
    dv: 16,
    tokens: 3,
    first: 600,
    rot: 6,
    neox: true,
    column: 4,
    sinks: true,
  });
  attend(h, { heads: 6, kvHeads: 2, dk: 20, dv: 14, tokens: 37, first: 5, rot: 20 });
  attend(h, {
    heads: 4,
    kvHeads: 2,
    dk: 24,
    dv: 16,
    tokens: 3,
    first: 9,
    rot: 10,
    neox: true,
    column: 6,
    normed: true,
  });
  attend(h, { heads: 3, kvHeads: 1, dk: 16, dv: 18, tokens: 12, first: 2, alibi: 8, sinks: true });
  attend(h, {
    heads: 4,
    kvHeads: 2,
    dk: 16,
    dv: 16,
    tokens: 9,
    first: 61,
    window: 20,
    capacity: 40,
  });
  attend(h, {
    heads: 4,
    kvHeads: 2,
    dk: 16,
    dv: 16,
    tokens: 25,
    first: 10,
    window: 8,
    chunked: true,
    rot: 16,
  });
  attend(h, {
    heads: 2,
    kvHeads: 2,
    dk: 32,
    dv: 32,
    tokens: 40,
    first: 0,
    causal: false,
    window: 9,
  });
  const whole = { heads: 2, kvHeads: 1, dk: 16, dv: 16, whole: true };
  attend(h, { ...whole, tokens: 39, first: 7 });
  attend(h, { ...whole, tokens: 21, first: 30, window: 12, capacity: 40 });
  const evicting = { heads: 4, kvHeads: 2, dk: 16, dv: 16, rot: 16, capacity: 96 };
  attend(h, { ...evicting, tokens: 1, first: 130, begin: 64, kept: 32 });
  attend(h, { ...evicting, tokens: 9, first: 130, window: 80, kept: 4, sinks: true });
  attend(h, { ...evicting, tokens: 9, first: 130, window: 80, kept: 4, whole: true });
  attend(h, { ...evicting, tokens: 5, first: 60, window: 80, whole: true, seenTo: 75 });
  attend(h, { heads: 4, kvHeads: 2, dk: 40, dv: 72, tokens: 19, first: 20, type: 'q8_0' });
  attend(h, {
    heads: 4,
    kvHeads: 2,
    dk: 32,
    dv: 48,
    tokens: 2,
    first: 300,
    type: 'q8_0',
    rot: 20,
    neox: true,
    column: 4,
    normed: true,
  });
  attend(h, {
    heads: 3,
    kvHeads: 1,
    dk: 24,
    dv: 16,
    tokens: 2,
    first: 9,
    rot: 24,
    normed: 'values',
  });
  ownQueries(h, 3, 24, 16);
}

/** Queries of a layer that reads the KV cache of another one: norms of their heads, then RoPE. */
function ownQueries(h: Harness, heads: number, dk: number, rot: number): void {
  const [tokens, eps] = [2, 1e-5];
  const qkv = h.place(tokens, heads * dk);
  const table = h.place(1, tokens * rot);
  const queries = h.vector(Array.from({ length: dk }, () => 1 + h.random.normal() / 4));
  h.call(`${heads} heads of queries`, (r) =>
    r.rope({
      ...{ heads, kvHeads: 1, dk, dv: dk, qkv, tokens, owned: false, rot, neox: true, column: 0 },
      ...{ table: table.at, norm: { queries, perHead: false, eps } },
    }),
  );
  h.expect(qkv, tokens, heads * dk, (t, i) => {
    const [head, d] = [Math.floor(i / dk) * dk, i % dk];
    const squares = Array.from({ length: dk }, (_, k) => h.get(qkv, t, head + k) ** 2);
    const root = Math.sqrt(squares.reduce((a, b) => a + b) / dk + eps);
    const value = (k: number) => (h.get(qkv, t, head + k) / root) * h.vectorValue(queries + k);
    if (d >= rot) return { value: value(d), size: 1 };
    const pair = d % (rot / 2);
    const [a, b] = [value(pair), value(pair + rot / 2)];
    const [c, s] = [0, rot / 2].map((at) => h.get(table, 0, t * rot + at + pair)) as [
      number,
      number,
    ];
    return { value: d === pair ? a * c - b * s : a * s + b * c, size: 4 };
  });
}

/** A cache in q4_0: its own group of positions as halves, earlier ones as codes. */
export function attentionQ4(h: Harness): void {
  const shape = { heads: 4, kvHeads: 2, dk: 32, dv: 48, type: 'q4_0' } as const;
  attend(h, { ...shape, tokens: 3, first: 130, capacity: 192, rot: 20, normed: 'values' });
  attend(h, { ...shape, tokens: 1, first: 300, capacity: 320 });
  attend(h, { ...shape, tokens: 21, first: 64, capacity: 192, window: 40, rot: 32 });
}

/** The Hadamard transform of a head, whose size need not be a power of two. */
function transformed(x: number[]): number[] {
  const sign = (i: number) => (i.toString(2).replaceAll('0', '').length % 2 ? -1 : 1);
  const part = (i: number) => 2 ** Math.floor(Math.log2(i ^ x.length));
  return x.map((_, i) => {
    const size = part(i);
    const first = Math.floor(i / size) * size;
    let sum = 0;
    for (let j = 0; j < size; ++j) sum += sign((i - first) & j) * x[first + j]!;
    return sum / Math.sqrt(size);
  });
}

/** Other head shapes, each of which is compiled separately, and other sizes. */
export function moreAttention(h: Harness): void {
  attend(h, { heads: 3, kvHeads: 3, dk: 160, dv: 64, tokens: 2, first: 5, rot: 160, normed: true });
  attend(h, { heads: 4, kvHeads: 2, dk: 16, dv: 16, tokens: 1, first: 0, rot: 16 });
  attend(h, { heads: 8, kvHeads: 2, dk: 64, dv: 64, tokens: 1, first: 20 });
  attend(h, { heads: 4, kvHeads: 1, dk: 16, dv: 16, tokens: 1, first: 800, rot: 8 });
  attend(h, { heads: 8, kvHeads: 4, dk: 128, dv: 128, tokens: 20, first: 3, rot: 128, neox: true });
  attend(h, { heads: 2, kvHeads: 1, dk: 256, dv: 256, tokens: 5, first: 30, softcap: 3 });
  attend(h, { heads: 4, kvHeads: 2, dk: 80, dv: 80, tokens: 1, first: 300, rot: 80, neox: true });
  attend(h, { heads: 4, kvHeads: 4, dk: 80, dv: 80, tokens: 9, first: 40, rot: 32, neox: true });
  attend(h, { heads: 6, kvHeads: 2, dk: 112, dv: 112, tokens: 1, first: 20, rot: 112 });
  attend(h, { heads: 4, kvHeads: 2, dk: 112, dv: 112, tokens: 21, first: 3, rot: 112, neox: true });
  attend(h, { heads: 4, kvHeads: 1, dk: 96, dv: 64, tokens: 9, first: 17, inKeys: true });
  attend(h, { heads: 2, kvHeads: 1, dk: 576, dv: 512, tokens: 2, first: 10, inKeys: true });
  attend(h, {
    heads: 4,
    kvHeads: 2,
    dk: 16,
    dv: 16,
    tokens: 1,
    first: 700,
    window: 300,
    capacity: 320,
    sinks: true,
  });
  attend(h, { heads: 2, kvHeads: 2, dk: 32, dv: 32, tokens: 40, first: 0, causal: false });
  attend(h, { heads: 3, kvHeads: 3, dk: 16, dv: 16, tokens: 7, first: 0, causal: false, alibi: 8 });
  attend(h, { heads: 4, kvHeads: 2, dk: 64, dv: 64, tokens: 1, first: 300, type: 'q8_0', rot: 64 });
}

/** One token through a Llama layer with the type mix of real files: 7 dispatches. */
export function layer(h: Harness): void {
  product(h, { types: [q4k, q4k, q6k], rows: [64, 32, 32], cols: 256, tokens: 1, norm: true });
  attend(h, { heads: 4, kvHeads: 2, dk: 16, dv: 16, tokens: 1, first: 300, rot: 16 });
  product(h, { types: [q80], rows: [64], cols: 64, tokens: 1, add: true });
  product(h, {
    types: [q4k, q4k],
    rows: [20, 20],
    cols: 256,
    tokens: 1,
    norm: true,
    activation: 0,
  });
  product(h, { types: [q6k], rows: [64], cols: 256, tokens: 1, add: true });
}

export const groups: Record<string, (h: Harness) => void> = {
  everyRow,
  everyType,
  products,
  moreProducts,
  rows,
  norms,
  vectors,
  attention,
  moreAttention,
  attentionQ4,
  experts,
  recurrent,
  rareOps,
  pictures,
  morePictures,
  sampling,
  layer,
};
