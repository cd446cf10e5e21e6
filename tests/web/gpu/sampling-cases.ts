// Test cases of the kernel that chooses tokens for queued steps.
import type { Draw } from '../../../web/gpu/kernels.js';
import { kChooseScratch } from '../../../web/gpu/kernels.js';
import { typeIds } from '../../../web/gpu/kernels/types.js';
import { randomWeights, weight } from './blocks.js';
import type { Harness } from './harness.js';

/** Sums closer than this, relative to their total, are left to the engine's sampler. */
const kNear = 4e-5;

/**
 * The token that src/sample/sampler.cpp draws with `uniform`. Null: its sums are too close to a
 * limit for f32.
 */
function drawn(logits: number[], uniform: number, draw: Draw): number | null {
  const { temperature, topK, topP, minP } = draw;
  const all = logits
    .map((logit, token) => ({ logit, token }))
    .filter(({ logit }) => logit > -Infinity)
    .sort((a, b) => b.logit - a.logit || a.token - b.token)
    .slice(0, topK)
    .map((one, _, [best]) => ({ ...one, w: Math.exp((one.logit - best!.logit) / temperature) }));
  const total = all.reduce((sum, { w }) => sum + w, 0);
  if (all.some(({ w }, i) => i && Math.abs(w - minP) < kNear)) return null;
  let kept = all.filter(({ w }) => w >= minP);
  let sum = 0;
  for (const [i, { w }] of kept.entries()) {
    sum += w;
    if (topP < 1 && Math.abs(sum - topP * total) < kNear * total) return null;
    if (topP >= 1 || sum < topP * total) continue;
    kept = kept.slice(0, i + 1);
    break;
  }
  let left = uniform * sum;
  for (const { w, token } of kept.slice(0, -1)) {
    left -= w;
    if (Math.abs(left) < kNear * total) return null;
    if (left < 0) return token;
  }
  return kept.at(-1)!.token;
}

interface Queue {
  /** Logits of each step. */
  steps: number[][];
  stops?: number[];
  draw?: Draw;
  /** The tokens that are chosen, until the queue ends. */
  wanted?: number[];
  ended?: boolean;
}

function queue(h: Harness, { steps, stops = [], draw, wanted, ended = false }: Queue): void {
  const tokens = h.place(1, steps.length + 1, () => 0);
  const count = h.place(1, 2, () => 0);
  const ends = h.place(1, Math.max(stops.length, 1), (_, i) => stops[i] ?? -5);
  const draws = h.place(1, steps.length, () => h.random.below(1 << 20) / 2 ** 20);
  const scratch = h.place(1, kChooseScratch, () => 0);
  h.scratch(scratch.at, kChooseScratch);
  const rows = steps.map((row) => row.map(Math.fround));
  for (const [step, row] of rows.entries()) {
    const logits = h.place(1, row.length, (_, i) => row[i]!);
    row.forEach((logit, i) => Number.isNaN(logit) && h.scratch(logits.at + i, 1));
    h.call(`choose ${row.length}, step ${step}`, (r) =>
      r.choose({
        logits: logits.at,
        n: row.length,
        step,
        tokens: tokens.at,
        count: count.at,
        ended: count.at + 1,
        stops: ends.at,
        n_stops: stops.length,
        draws: draws.at,
        best: scratch.at,
        draw,
      }),
    );
  }
  const chosen = wanted ?? rows.map((row, i) => drawn(row, h.get(draws, 0, i), draw!));
  const close = chosen.indexOf(null);
  const sure = close < 0 ? chosen : chosen.slice(0, close);
  h.expect(tokens, 1, steps.length + 1, (_, i) => sure[i - 1] ?? 0, 0);
  h.expect(count, 1, 2, (_, i) => (i ? Number(ended || close >= 0) : sure.length), 0);
}

export function sampling(h: Harness): void {
  const normal = (n: number): number[] => Array.from({ length: n }, () => 3 * h.random.normal());
  const peaked = (n: number, ...at: number[]): number[] =>
    normal(n).map((x, i) => (at.includes(i) ? 40 : x));
  queue(h, { steps: [peaked(1, 0), peaked(5, 4)], wanted: [0, 4] });
  queue(h, {
    steps: [peaked(300, 299), peaked(1000, 0), peaked(1025, 1024)],
    wanted: [299, 0, 1024],
  });
  // The lowest of equal ones, which are in different workgroups.
  queue(h, { steps: [peaked(9000, 8100, 4097, 6000), [-0, 0, -1]], wanted: [4097, 0] });
  queue(h, {
    steps: [
      [-Infinity, NaN, -9, NaN],
      [NaN, Infinity, 7],
    ],
    wanted: [2, 1],
  });
  const never = [-Infinity, NaN, -Infinity];
  queue(h, { steps: [peaked(3, 1), never, peaked(3, 2)], wanted: [1], ended: true });
  queue(h, {
    steps: [peaked(50, 7), peaked(50, 9), peaked(50, 3)],
    stops: [1, 9],
    wanted: [7, 9],
    ended: true,
  });
  for (const draw of [
    { temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05 },
    { temperature: 1.5, topK: 64, topP: 1, minP: 0 },
    { temperature: 1, topK: 7, topP: 0.5, minP: 0 },
    { temperature: 0.3, topK: 1, topP: 1, minP: 1 },
  ])
    for (const n of [30, 2500])
      queue(h, { steps: Array.from({ length: 6 }, () => normal(n)), draw });
  // A draw between two equal halves cannot be told apart in f32.
  queue(h, {
    steps: [[5, 5]],
    draw: { temperature: 1, topK: 2, topP: 0.5, minP: 0 },
    wanted: [],
    ended: true,
  });
  tables(h);
}

/** Rows of a table that is divided: each dispatch has some of its rows. */
function tables(h: Harness): void {
  const [type, cols, all] = [typeIds.Q8_0!, 64, 20];
  const bytes = randomWeights(h.random, type, all, cols);
  const buffer = h.buffer(bytes);
  const ids = [19, 0, 7, 8];
  const at = h.place(1, ids.length, (_, i) => ids[i]!);
  const out = h.place(ids.length, cols);
  for (const [row, count] of [
    [0, 8],
    [8, 12],
  ] as const) {
    const weights = { type, buffer, offset: (row * bytes.length) / all };
    h.call(`rows from ${row}`, (r) =>
      r.rows({ weights, row, count, cols, ids: at.at, tokens: ids.length, n: cols, out }),
    );
  }
  h.expect(out, ids.length, cols, (t, i) => weight(bytes, type, cols, ids[t]!, i));
}
