// Kernels that only vision encoders need: attention over f32 keys, all of them or runs; rows of a
// grid; interpolated positions; a transposed matrix; elementwise functions.
import {
  attention,
  cells,
  interpolate,
  map,
  transposed,
} from '../../../web/gpu/pictures/kernels.js';
import { kActivations } from '../../../web/gpu/pictures/record.js';
import { activations } from './cases.js';
import type { Harness } from './harness.js';

interface AttentionShape {
  queries: number;
  keys: number;
  heads: number;
  n: number;
  /** Ends of the runs of keys. Queries are divided into as many runs. */
  runs?: number[];
}

/** Each row of `kv` has all keys, then all values, as encoders have them. */
function attend(h: Harness, s: AttentionShape): void {
  const { queries, keys, heads, n, runs } = s;
  const q = h.place(queries, heads * n);
  const kv = h.place(keys, 2 * heads * n);
  const out = h.place(queries, heads * n);
  const scale = 1 / Math.sqrt(n);
  const seen = (t: number): [number, number] => {
    if (!runs) return [0, keys];
    const run = Math.floor((t * runs.length) / queries);
    return [run && runs[run - 1]!, runs[run]!];
  };
  const table = Array.from({ length: queries }, (_, t) => seen(t)).flat();
  const listed = runs ? h.vector(table) : -1;
  const v = { at: kv.at + heads * n, ld: kv.ld };
  h.call(`attention of an encoder ${JSON.stringify(s)}`, (r) =>
    attention(r, { q, k: kv, v, out, queries, keys, heads, n, scale, runs: listed }),
  );
  h.expect(
    out,
    queries,
    heads * n,
    (t, i) => {
      const first = Math.floor(i / n) * n;
      const [from, to] = seen(t);
      const scores = Array.from({ length: to - from }, (_, j) => {
        let sum = 0;
        for (let d = 0; d < n; d++) sum += h.get(q, t, first + d) * h.get(kv, from + j, first + d);
        return scale * sum;
      });
      const top = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - top));
      const sum = weights.reduce((a, b) => a + b, 0);
      const value = weights.reduce((a, w, j) => a + (w / sum) * h.get(v, from + j, i), 0);
      return { value, size: 1 };
    },
    2e-5,
  );
}

/** Each row of `out` from a list of rows, some of which are beyond the grid. */
function gather(h: Harness, mean: boolean, channelsFirst: boolean): void {
  for (const [tokens, cols, count] of [
    [1, 1, 1],
    [3, 70, 4],
    [5, 33, 9],
  ] as const) {
    const rows = 7;
    const x = h.place(rows, cols);
    const ids = h.place(1, tokens * count, (_, i) => (i % 5 === 3 ? -1 : h.random.below(rows)));
    const width = mean ? cols : cols * count;
    const out = h.place(tokens, width);
    h.call(`cells of ${count} x ${cols}, ${mean}, ${channelsFirst}`, (r) =>
      cells(r, { in: x, out, tokens, cols, cells: count, ids: ids.at, mean, channelsFirst }),
    );
    const value = (t: number, cell: number, c: number): number => {
      const row = h.get(ids, 0, t * count + cell);
      return row < 0 ? 0 : h.get(x, row, c);
    };
    h.expect(out, tokens, width, (t, i) => {
      if (!mean)
        return channelsFirst
          ? value(t, i % count, Math.floor(i / count))
          : value(t, Math.floor(i / cols), i % cols);
      let sum = 0;
      for (let cell = 0; cell < count; cell++) sum += value(t, cell, i);
      return { value: sum / count, size: 1 };
    });
  }
}

function positions(h: Harness): void {
  for (const [tokens, cols, taps] of [
    [1, 1, 1],
    [5, 65, 4],
    [3, 130, 16],
  ] as const) {
    const rows = 9;
    const table = h.place(1, rows * cols);
    const list = h.place(1, 2 * tokens * taps, (_, i) =>
      i % 2 ? h.random.normal() : h.random.below(rows),
    );
    const out = h.place(tokens, cols);
    h.call(`interpolate ${taps} of ${cols}`, (r) =>
      interpolate(r, { table: table.at, list: list.at, taps, out, tokens, cols }),
    );
    h.expect(out, tokens, cols, (t, c) => {
      let value = h.get(out, t, c);
      let size = Math.abs(value);
      for (let tap = 0; tap < taps; tap++) {
        const at = 2 * (t * taps + tap);
        const term = h.get(list, 0, at + 1) * h.get(table, 0, h.get(list, 0, at) * cols + c);
        value += term;
        size += Math.abs(term);
      }
      return { value, size };
    });
  }
}

function products(h: Harness): void {
  for (const [tokens, rows, cols] of [
    [1, 1, 1],
    [3, 70, 5],
    [2, 9, 130],
  ] as const) {
    const matrix = h.place(1, rows * cols);
    const x = h.place(tokens, rows);
    const out = h.place(tokens, cols);
    h.call(`transposed ${rows} x ${cols}`, (r) =>
      transposed(r, { in: x, out, tokens, matrix: matrix.at, rows, cols }),
    );
    h.expect(out, tokens, cols, (t, c) => {
      let value = 0;
      let size = 0;
      for (let row = 0; row < rows; row++) {
        const term = h.get(x, t, row) * h.get(matrix, 0, row * cols + c);
        value += term;
        size += Math.abs(term);
      }
      return { value, size };
    });
  }
}

type Value = (x: number, y: number, v: number) => number;

function expressions(): [string, Value][] {
  const [gelu, geluErf] = [activations[2]!, activations[6]!];
  const functions: Value[] = [
    (x) => gelu(x, 0),
    (x) => geluErf(x, 0),
    (x) => x / (1 + Math.exp(-1.702 * x)),
    (x) => x / (1 + Math.exp(-x)),
  ];
  const all: [string, Value][] = [
    ['v', (_x, _y, v) => v],
    ['x * v', (x, _y, v) => x * v],
    ['x - v', (x, _y, v) => x - v],
    ['max(x, v)', (x, _y, v) => Math.max(x, v)],
    ['min(x, v)', (x, _y, v) => Math.min(x, v)],
  ];
  functions.forEach((of, kind) => {
    const text = kActivations[kind as keyof typeof kActivations];
    all.push([text, of], [`${text} * y`, (x, y) => of(x, 0, 0) * y]);
  });
  return all;
}

function maps(h: Harness, all: [string, Value][]): void {
  for (const [expression, of] of all)
    for (const [tokens, n, one] of [
      [1, 1, true],
      [3, 70, false],
    ] as const) {
      const vec = h.vector(Array.from({ length: n }, () => h.random.normal()));
      const x = h.place(tokens, n, () => 4 * h.random.normal());
      const out = h.place(tokens, n);
      h.call(`${expression} of ${n}`, (r) =>
        map(r, expression, { in: x, out, tokens, n, vec, one }),
      );
      h.expect(out, tokens, n, (t, i) => ({
        value: of(h.get(x, t, i), h.get(out, t, i), h.vectorValue(vec + (one ? 0 : i))),
        size: 0.1,
      }));
    }
}

/** A case of each kernel. */
export function pictures(h: Harness): void {
  attend(h, { queries: 21, keys: 50, heads: 3, n: 18 });
  attend(h, { queries: 40, keys: 70, heads: 2, n: 20, runs: [9, 33, 40, 70] });
  gather(h, true, false);
  gather(h, false, true);
  positions(h);
  products(h);
  maps(h, expressions().slice(-1));
}

/** Other head sizes, each of which is compiled separately, and every expression. */
export function morePictures(h: Harness): void {
  attend(h, { queries: 1, keys: 1, heads: 1, n: 4 });
  attend(h, { queries: 40, keys: 40, heads: 2, n: 72 });
  attend(h, { queries: 9, keys: 70, heads: 2, n: 160 });
  attend(h, { queries: 64, keys: 64, heads: 1, n: 80, runs: [16, 32, 48, 64] });
  gather(h, false, false);
  maps(h, expressions());
}
