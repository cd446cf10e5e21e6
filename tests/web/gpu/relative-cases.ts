// Attention with relative positions (T5): the encoder's, the decoder's behind the encoder's positions,
// and cross-attention.
import type { Cache } from '../../../web/gpu/kernels.js';
import { bucketWords, relativeAttention } from '../../../web/gpu/kernels/relative.js';
import { halfValue } from './blocks.js';
import type { Harness } from './harness.js';

const kReach = 128;

/** Buckets as src/model/builder_cross.cpp has them. */
function buckets(count: number, bothWays: boolean): number[] {
  const n = bothWays ? count / 2 : count,
    exact = Math.floor(n / 2);
  return Array.from({ length: 2 * kReach + 1 }, (_, i) => {
    const d = i - kReach;
    const far = bothWays ? Math.abs(d) : Math.max(-d, 0);
    const grown = Math.log(far / exact) / Math.log(kReach / exact);
    const bucket = far < exact ? far : Math.min(n - 1, exact + Math.trunc(grown * (n - exact)));
    return bucket + (bothWays && d > 0 ? n : 0);
  });
}

interface Shape {
  heads: number;
  dk: number;
  dv: number;
  tokens: number;
  first: number;
  /** Positions [begin, length) are visible. */
  begin: number;
  length: number;
  causal: boolean;
  /** Number of buckets; 0: no biases. */
  count: number;
}

function attend(h: Harness, s: Shape): void {
  const { heads, dk, dv, tokens, first, begin, length, causal, count } = s;
  const headBytes = 2 * length * (dk + dv);
  const bytes = new Uint8Array(heads * headBytes);
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length; at += 2)
    view.setUint16(at, (h.random.below(2) << 15) | (0x2c00 + h.random.below(0x1200)), true);
  const read = (at: number): number => halfValue(view.getUint16(at, true));
  const cache: Cache = {
    buffer: h.buffer(bytes, 0),
    type: 'f16',
    capacity: length,
    keys: 0,
    keyHead: headBytes,
    keyRow: 2 * dk,
    values: 2 * length * dk,
    valueHead: headBytes,
    valueRow: 2 * dv,
  };
  const of = buckets(count || 32, !causal);
  const biases = Array.from({ length: count * heads }, () => Math.fround(h.random.normal()));
  const at = count ? h.vector(biases) : undefined;
  const qkv = h.place(tokens, heads * (2 * dk + dv));
  const out = h.place(tokens, heads * dv);
  const scale = 0.3;
  h.call(`relative attention ${JSON.stringify(s)}`, (r) =>
    relativeAttention(r, {
      ...{ heads, kvHeads: heads, dk, dv, valuesInKeys: false, qkv, out, tokens, first, cache },
      ...{ scale, causal, begin, length, scratch: 0, biases: at, words: bucketWords(of) },
    }),
  );
  /** The weight of each position from `begin` on. */
  const weightsOf = (t: number, head: number): number[] => {
    const own = first + t;
    const end = causal ? own + 1 : length;
    const scores = Array.from({ length: end - begin }, (_, i) => {
      const p = begin + i;
      let score = 0;
      for (let d = 0; d < dk; d++)
        score += h.get(qkv, t, head * dk + d) * read(head * headBytes + 2 * (p * dk + d));
      const distance = Math.max(-kReach, Math.min(kReach, p - own));
      return score * scale + (count ? biases[of[distance + kReach]! * heads + head]! : 0);
    });
    const most = Math.max(...scores);
    const weights = scores.map((score) => Math.exp(score - most));
    const sum = weights.reduce((all, weight) => all + weight, 0);
    return weights.map((weight) => weight / sum);
  };
  const weights = Array.from({ length: tokens }, (_, t) =>
    Array.from({ length: heads }, (_, head) => weightsOf(t, head)),
  );
  h.expect(out, tokens, heads * dv, (t, column) => {
    const head = Math.floor(column / dv);
    let value = 0,
      size = 0;
    weights[t]![head]!.forEach((weight, i) => {
      const kept = read(head * headBytes + 2 * (length * dk + (begin + i) * dv + (column % dv)));
      value += weight * kept;
      size += weight * Math.abs(kept);
    });
    return { value, size };
  });
}

export function relativePositions(h: Harness): void {
  const whole = { first: 0, begin: 0, causal: false };
  attend(h, { ...whole, heads: 3, dk: 16, dv: 16, tokens: 9, length: 9, count: 32 });
  attend(h, { ...whole, heads: 2, dk: 64, dv: 64, tokens: 140, length: 140, count: 32 });
  const decoder = { begin: 40, causal: true };
  attend(h, { ...decoder, heads: 2, dk: 16, dv: 24, tokens: 1, first: 40, length: 41, count: 32 });
  attend(h, {
    ...decoder,
    heads: 2,
    dk: 16,
    dv: 24,
    tokens: 1,
    first: 240,
    length: 241,
    count: 16,
  });
  attend(h, { ...decoder, heads: 3, dk: 20, dv: 12, tokens: 7, first: 50, length: 57, count: 32 });
  // Cross-attention.
  attend(h, { ...whole, heads: 2, dk: 16, dv: 16, tokens: 1, first: 43, length: 40, count: 0 });
  attend(h, { ...whole, heads: 3, dk: 16, dv: 16, tokens: 5, first: 43, length: 40, count: 0 });
}
