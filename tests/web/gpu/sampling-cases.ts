// Test cases of the kernel that chooses tokens for queued steps.
import { kChooseScratch, type Sampling } from '../../../web/gpu/kernels.js';
import { typeIds } from '../../../web/gpu/kernels/types.js';
import { randomWeights, weight } from './blocks.js';
import type { Harness } from './harness.js';

/** Sums closer than this, relative to their total, are left to the engine's sampler. */
const kNear = 2e-5;
/** The same for logits with penalties. */
const kRounding = 1e-6;

/** Logits, and how far those of f32 may be. */
interface Row {
  logits: number[];
  blurs: number[];
}
/** Parameters of sample::Params. */
interface Draw {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
}
interface Penalties {
  repetition: number;
  frequency: number;
  presence: number;
}
type Candidate = { logit: number; blur: number; token: number };

const inOrder = ({ logits, blurs }: Row): Candidate[] =>
  logits
    .map((logit, token) => ({ logit, blur: blurs[token]!, token }))
    .filter(({ logit }) => logit > -Infinity)
    .sort((a, b) => b.logit - a.logit || a.token - b.token);

/** Whether a candidate and the next one may be in the other order. */
function doubtful(sorted: Candidate[], i: number): boolean {
  const [one, next] = [sorted[i]!, sorted[i + 1]];
  return next !== undefined && one.logit - next.logit < one.blur + next.blur;
}

/**
 * The token that src/sample/sampler.cpp draws with `uniform`. Null: its sums are too close to a
 * limit for f32.
 */
function drawn(row: Row, uniform: number, draw: Draw): number | null {
  const { temperature, topK, topP, minP } = draw;
  const sorted = inOrder(row);
  const all = sorted
    .slice(0, topK)
    .map((one, _, [best]) => ({ ...one, w: Math.exp((one.logit - best!.logit) / temperature) }));
  const total = all.reduce((sum, { w }) => sum + w, 0);
  let near = kNear;
  for (const [i, { w, blur }] of all.entries()) {
    if (doubtful(sorted, i)) return null;
    near = Math.max(near, kNear + (all[0]!.blur + blur) / temperature);
    if (i && Math.abs(w - minP) < near) return null;
  }
  let kept = all.filter(({ w }) => w >= minP);
  let sum = 0;
  for (const [i, { w }] of kept.entries()) {
    sum += w;
    if (topP < 1 && Math.abs(sum - topP * total) < near * total) return null;
    if (topP >= 1 || sum < topP * total) continue;
    kept = kept.slice(0, i + 1);
    break;
  }
  let left = uniform * sum;
  for (const { w, token } of kept.slice(0, -1)) {
    left -= w;
    if (Math.abs(left) < near * total) return null;
    if (left < 0) return token;
  }
  return kept.at(-1)!.token;
}

/** Penalties of the last `window` tokens, of which `before` the queue are given. */
interface Penalized extends Penalties {
  window: number;
  before: number[];
}

/** Logits after penalties, in f32 as src/sample/sampler.cpp computes them. */
function penalized(logits: number[], history: number[], penalties: Penalized): Row {
  const { window, repetition, frequency, presence } = penalties;
  const out = [...logits];
  const blurs = logits.map(() => 0);
  const recent = history.slice(-window);
  for (const token of new Set(recent)) {
    const count = recent.filter((other) => other === token).length;
    const x = out[token]!;
    if (Number.isNaN(x)) continue;
    const by = Math.fround(repetition);
    const y = Math.fround(x > 0 ? x / by : x * by);
    const penalty = Math.fround(Math.fround(count * frequency) + presence);
    out[token] = Math.fround(y - penalty);
    blurs[token] = kRounding * (Math.abs(out[token]!) + Math.abs(penalty));
  }
  return { logits: out, blurs };
}

/** The likeliest token; null: another one is too close to it. */
function likeliest(row: Row): number | null {
  const sorted = inOrder(row);
  return doubtful(sorted, 0) ? null : sorted[0]!.token;
}

interface Queue {
  /** Logits of each step. */
  steps: number[][];
  stops?: number[];
  draw?: Draw;
  penalties?: Penalized;
  /** The tokens that are chosen, until the queue ends. */
  wanted?: number[];
  ended?: boolean;
}

/** The tokens of a queue, until one is too close to call. */
function expected({ steps, draw, penalties }: Queue, draws: number[]): (number | null)[] {
  const chosen: (number | null)[] = [];
  for (const [step, row] of steps.entries()) {
    const history = [...(penalties?.before ?? []), ...(chosen as number[])];
    const logits = penalties
      ? penalized(row, history, penalties)
      : { logits: row, blurs: row.map(() => 0) };
    const token = draw ? drawn(logits, draws[step]!, draw) : likeliest(logits);
    chosen.push(token);
    if (token === null) break;
  }
  return chosen;
}

function samplingOf(draw: Draw | undefined, penalties: Penalized | undefined): Sampling {
  const { temperature = 0, topK = 0, topP = 0, minP = 0 } = draw ?? {};
  const { repetition = 0, frequency = 0, presence = 0, window = 0 } = penalties ?? {};
  return [temperature, topK, topP, minP, repetition, frequency, presence, window];
}

/** What leaves the window behind each step. */
const leaving = ({ before, window }: Penalized, steps: number): number[] => {
  const n = Math.min(before.length, window);
  return Array.from({ length: steps }, (_, step) => {
    const i = step + n - window;
    return i < 0 ? -1 : i < n ? before.slice(-window)[i]! : n - i - 2;
  });
};

function queue(h: Harness, given: Queue): void {
  const { stops = [], draw, wanted, ended = false, penalties } = given;
  const steps = given.steps.map((row) => row.map(Math.fround));
  const n = steps[0]!.length;
  const recent = penalties?.before.slice(-penalties.window) ?? [];
  const counts = h.place(1, n, (_, i) => recent.filter((token) => token === i).length);
  h.scratch(counts.at, n);
  const gone = penalties ? leaving(penalties, steps.length) : [-1];
  const leaves = h.place(1, gone.length, (_, i) => gone[i]!);
  const tokens = h.place(1, steps.length + 1, () => 0);
  const count = h.place(1, 2, () => 0);
  const ends = h.place(1, Math.max(stops.length, 1), (_, i) => stops[i] ?? -5);
  const draws = h.place(1, steps.length, () => h.random.below(1 << 20) / 2 ** 20);
  const scratch = h.place(1, kChooseScratch, () => 0);
  h.scratch(scratch.at, kChooseScratch);
  for (const [step, row] of steps.entries()) {
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
        sampling: samplingOf(draw, penalties),
        counts: counts.at,
        leaving: leaves.at,
      }),
    );
  }
  const numbers = steps.map((_, i) => h.get(draws, 0, i));
  const chosen = wanted ?? expected({ ...given, steps }, numbers);
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
  penalties(h, normal, peaked);
  // A draw between two equal halves cannot be told apart in f32.
  queue(h, {
    steps: [[5, 5]],
    draw: { temperature: 1, topK: 2, topP: 0.5, minP: 0 },
    wanted: [],
    ended: true,
  });
  tables(h);
}

/** Tokens that occurred become less likely; the window moves on with each step. */
function penalties(
  h: Harness,
  normal: (n: number) => number[],
  peaked: (n: number, ...at: number[]) => number[],
): void {
  const before = [7, 3, 7, 12, 29, 3, 3];
  const none = { repetition: 1, frequency: 0, presence: 0 };
  const some = { repetition: 1.3, frequency: 0.4, presence: 0.7 };
  const draw = { temperature: 0.8, topK: 20, topP: 0.95, minP: 0.05 };
  const all = { temperature: 1.2, topK: 64, topP: 1, minP: 0 };
  for (const window of [1, 3, before.length, 64])
    for (const drawing of [undefined, draw, all])
      for (const n of [30, 2500]) {
        const steps = Array.from({ length: 8 }, () => normal(n));
        queue(h, { steps, draw: drawing, penalties: { ...some, window, before } });
      }
  // The same logits each time: what was chosen is not, until the window has passed it.
  const row = peaked(40, 5).map((x, i) => (i === 8 || i === 9 ? 39 - i / 10 : x));
  const same = Array.from({ length: 6 }, () => row);
  const penalties = { ...none, presence: 100, window: 2, before: [0] };
  queue(h, { steps: same, penalties, wanted: [5, 8, 9, 5, 8, 9] });
  // Two logits that are as close as rounding, one of which occurred.
  queue(h, {
    steps: [[4, 6.3, 4 * (1 - 1e-7)]],
    penalties: { ...none, repetition: 6.3 / 4, window: 8, before: [1] },
    wanted: [],
    ended: true,
  });
  // No logit of a token that occurred is a number.
  queue(h, {
    steps: [[NaN, -Infinity, -3]],
    penalties: { ...some, window: 8, before: [0, 1, 1] },
    wanted: [2],
  });
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
