// Mixture of experts: routing, multiplication with the selected matrices, and the weighted sum.
import type { Part } from '../../../web/gpu/kernels.js';
import { randomWeights, weight } from './blocks.js';
import { asTaken } from './codes.js';
import type { Harness, Wanted } from './harness.js';

const f16 = 1,
  q40 = 2,
  q6k = 14;
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const silu = (gate: number, up: number) => gate * sigmoid(gate) * up;

interface Routing {
  n: number;
  used: number;
  gating: number;
  groups?: number;
  groupsUsed?: number;
  sharedBy?: number;
  normalize?: boolean;
  bias?: boolean;
}

/**
 * A token's experts and weights in double precision, as in src/session/moe_router.cpp but by
 * sorting.
 */
function routed(
  { n, used, gating, groups = 1, groupsUsed = 1, sharedBy = 1, normalize }: Routing,
  logits: number[],
  bias: (i: number) => number,
): [number, number][] {
  const most = Math.max(...logits);
  const all = logits.reduce((sum, x) => sum + Math.exp(x - most), 0);
  const weights = logits.map((x) =>
    gating === 0 ? Math.exp(x - most) / all : gating === 1 ? sigmoid(x) : x,
  );
  const scores = weights.map((w, i) => w + bias(i));
  const size = n / groups;
  const best = Array.from({ length: groups }, (_, g) =>
    scores
      .slice(g * size, g * size + size)
      .sort((a, b) => b - a)
      .slice(0, 2)
      .reduce((a, b) => a + b),
  );
  const kept = best
    .map((_, g) => g)
    .sort((a, b) => best[b]! - best[a]!)
    .slice(0, groupsUsed);
  const order = scores
    .map((_, i) => i)
    .filter((i) => kept.includes(Math.floor(i / size)))
    .sort((a, b) => scores[b]! - scores[a]!);
  let chosen = order
    .slice(0, used)
    .map((e): [number, number] => [Math.floor(e / sharedBy), weights[Math.floor(e / sharedBy)]!]);
  if (gating === 2) {
    const sum = chosen.reduce((total, [, w]) => total + Math.exp(w - most), 0);
    chosen = chosen.map(([e, w]) => [e, Math.exp(w - most) / sum]);
  }
  const sum = normalize
    ? Math.max(
        chosen.reduce((total, [, w]) => total + w, 0),
        2 ** -14,
      )
    : 1;
  chosen = chosen.map(([e, w]) => [e, (1.5 * w) / sum]);
  if (sharedBy > 1) {
    chosen.forEach((pair, k) => {
      const first = chosen.findIndex(([e]) => e === pair[0]);
      if (first < k) {
        chosen[first]![1] += pair[1];
        pair[0] = -1;
      }
    });
  }
  return chosen;
}

function route(h: Harness, shape: Routing): void {
  const { n, used, gating, groups = 1, groupsUsed = 1, sharedBy = 1, normalize = false } = shape;
  const tokens = 5;
  const logits = h.place(tokens, 4 * n, (_, i) => (i < n ? 2 * h.random.normal() : 5));
  const bias = shape.bias
    ? h.vector(Array.from({ length: n }, () => h.random.normal() / 4))
    : undefined;
  const ids = h.place(1, tokens * used),
    weights = h.place(1, tokens * used);
  const wanted = Array.from({ length: tokens }, (_, t) =>
    routed(
      shape,
      Array.from({ length: n }, (_, i) => h.get(logits, t, i)),
      (i) => (bias === undefined ? 0 : h.vectorValue(bias + i)),
    ),
  );
  h.call(`route ${JSON.stringify(shape)}`, (r) =>
    r.route({
      logits,
      n,
      tokens,
      used,
      ids: ids.at,
      weights: weights.at,
      gating,
      groups,
      groupsUsed,
      sharedBy,
      normalize,
      scale: 1.5,
      bias,
    }),
  );
  for (let t = 0; t < tokens; ++t) h.scratch(logits.at + t * logits.ld + n, 3 * n);
  h.expect(ids, 1, tokens * used, (_, i) => wanted[Math.floor(i / used)]![i % used]![0]);
  h.expect(weights, 1, tokens * used, (_, i) => ({
    value: wanted[Math.floor(i / used)]![i % used]![1],
    size: 1,
  }));
}

/**
 * Multiplies pairs of tokens and experts. Only experts [first, first + count) are in the buffer;
 * the others must be skipped.
 */
function expertProduct(
  h: Harness,
  shape: {
    type: number;
    rows: number;
    cols: number;
    share: number;
    gated?: boolean;
    more?: boolean;
    /** x has a weight for each expert. */
    weighted?: boolean;
  },
): void {
  const { type, rows, cols, share, gated = false } = shape;
  const first = 3,
    count = 4,
    tokens = 6;
  const chosen = Array.from({ length: tokens * share }, (_, i) =>
    i % 5 === 4 ? -1 : h.random.below(9),
  );
  const ids = h.place(1, chosen.length, (_, i) => chosen[i]!);
  const x = h.place(tokens, cols),
    out = h.place(chosen.length, rows);
  const weights = shape.weighted ? h.place(1, chosen.length) : undefined;
  const parts: Part[] = (gated ? [0, 1] : [0]).map(() => {
    const bytes = randomWeights(h.random, type, count * rows, cols);
    const vector = (length: number) => h.vector(Array.from({ length }, () => h.random.normal()));
    const part: Part = {
      weights: { type, buffer: h.buffer(bytes, 16), offset: 16 },
      rows,
      column: 0,
      ...(shape.more && { bias: vector(9 * rows), factor: vector(9) }),
    };
    return Object.assign(part, { bytes });
  });
  const taken = Array.from({ length: tokens }, (_, t) =>
    asTaken(
      h,
      type,
      1,
      Array.from({ length: cols }, (_, c) => h.get(x, t, c)),
    ),
  );
  const sum = (part: Part, pair: number, r: number): Wanted => {
    const { bytes } = part as Part & { bytes: Uint8Array };
    const expert = chosen[pair]!,
      t = Math.floor(pair / share);
    const bias = part.bias === undefined ? 0 : h.vectorValue(part.bias + expert * rows + r);
    let value = 0,
      size = 0;
    taken[t]!.forEach((x, c) => {
      const w = weight(bytes, type, cols, (expert - first) * rows + r, c);
      value += w * x.value;
      size += Math.abs(w) * x.size;
    });
    const given = weights ? h.get(weights, 0, pair) : 1;
    const by = given * (part.factor === undefined ? 1 : h.vectorValue(part.factor + expert));
    return { value: by * value + bias, size: Math.abs(by) * size + Math.abs(bias) };
  };
  h.call(`experts ${JSON.stringify(shape)}`, (r) =>
    r.matmul({
      parts,
      cols,
      x,
      out,
      tokens: chosen.length,
      experts: { ids: ids.at, first, count, share, weights: weights?.at },
      ...(gated && { activation: { kind: 0 } }),
    }),
  );
  chosen.forEach((expert, pair) => {
    if (expert < first || expert >= first + count) return;
    h.expect({ at: out.at + pair * out.ld, ld: out.ld }, 1, rows, (_, r) => {
      const gate = sum(parts[0]!, pair, r);
      if (!gated) return gate;
      const up = sum(parts[1]!, pair, r);
      const value = silu(gate.value, up.value);
      return { value, size: (1 + Math.abs(value)) * (1 + gate.size!) * (1 + up.size!) };
    });
  });
}

function combine(h: Harness, n: number, used: number, add: boolean, weighted = true): void {
  const tokens = 3;
  const chosen = Array.from({ length: tokens * used }, (_, i) => (i % 4 === 3 ? -1 : i));
  const ids = h.place(1, chosen.length, (_, i) => chosen[i]!),
    weights = h.place(1, chosen.length);
  const given = h.place(1, chosen.length * n);
  const out = h.place(tokens, n);
  const before = (t: number, i: number) => h.get(out, t, i);
  h.call(`combine ${used} of ${n}`, (r) =>
    r.combine({
      ids: ids.at,
      weights: weighted ? weights.at : undefined,
      used,
      in: given.at,
      out,
      tokens,
      n,
      scale: 0.5,
      add,
    }),
  );
  h.expect(out, tokens, n, (t, i) => {
    let value = add ? before(t, i) : 0,
      size = Math.abs(value);
    for (let k = t * used; k < (t + 1) * used; ++k) {
      if (chosen[k]! < 0) continue;
      const weight = weighted ? h.get(weights, 0, k) : 1;
      const term = 0.5 * weight * h.get(given, 0, k * n + i);
      value += term;
      size += Math.abs(term);
    }
    return { value, size };
  });
}

export function experts(h: Harness): void {
  for (const gating of [0, 1, 2]) {
    for (const [n, used] of [
      [4, 2],
      [60, 4],
      [64, 8],
      [130, 6],
      [3, 3],
    ] as const)
      route(h, { n, used, gating, normalize: gating !== 2 && used !== 4 });
  }
  route(h, { n: 64, used: 6, gating: 1, groups: 8, groupsUsed: 3, bias: true, normalize: true });
  route(h, { n: 12, used: 3, gating: 0, groups: 12, groupsUsed: 4 });
  route(h, { n: 24, used: 8, gating: 0, sharedBy: 4, normalize: true });
  expertProduct(h, { type: f16, rows: 9, cols: 70, share: 1, weighted: true });
  expertProduct(h, { type: q40, rows: 10, cols: 96, share: 3, gated: true, more: true });
  expertProduct(h, { type: q6k, rows: 6, cols: 256, share: 2, more: true, weighted: true });
  for (const add of [false, true]) combine(h, 70, 4, add);
  combine(h, 3, 1, false);
  combine(h, 5, 2, true, false);
}
