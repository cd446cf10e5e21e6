// Convolutions over time: their output, the state that they pass on, and the copies for checkpoints
// on the way.
import type { Harness } from './harness.js';

interface ConvolutionShape {
  n: number;
  taps: number;
  tokens: number;
  unary: number;
  bias?: boolean;
  first?: number;
  every?: number;
  /** A step of a queue, which changes its state in place, unless the queue has ended. */
  queue?: 'runs' | 'ended';
}

const unaries: Record<number, (x: number) => number> = {
  0: (x) => x,
  1: (x) => x / (1 + Math.exp(-x)),
};

function convolution(h: Harness, s: ConvolutionShape): void {
  const { n, taps, tokens, unary, first = 0, every = 1 } = s;
  const past = taps - 1;
  const x = h.place(tokens, n);
  const before = h.place(1, past * n);
  const after = s.queue ? before : h.place(1, past * n, () => 3e7);
  const ended = h.place(1, 1, () => Number(s.queue === 'ended'));
  const weights = h.vector(Array.from({ length: taps * n }, () => h.random.normal()));
  const bias = s.bias ? h.vector(Array.from({ length: n }, () => h.random.normal())) : undefined;
  const ends: number[] = [];
  for (let end = first; first > 0 && end <= tokens; end += every) ends.push(end);
  const step = past * n + 3;
  const copies = h.place(1, Math.max(1, ends.length) * step, () => 4e7);
  /** The input at token t; negative tokens precede the batch. */
  const input = (t: number, c: number) =>
    t < 0 ? h.get(before, 0, (past + t) * n + c) : h.get(x, t, c);
  h.call(`convolution ${JSON.stringify(s)}`, (r) =>
    r.convolve({
      x,
      tokens,
      n,
      unary,
      taps,
      weights,
      bias,
      before: before.at,
      after: after.at,
      ended: s.queue && ended.at,
      copies: { at: copies.at, step, first, every },
    }),
  );
  h.expect(x, tokens, n, (t, c) => {
    let value = bias === undefined ? 0 : h.vectorValue(bias + c),
      size = Math.abs(value);
    for (let j = 0; j < taps; ++j) {
      const term = input(t - past + j, c) * h.vectorValue(weights + j * n + c);
      value += term;
      size += Math.abs(term);
    }
    return { value: unaries[unary]!(value), size: 1 + size };
  });
  const carried = (end: number) => (_: number, i: number) =>
    input(end - past + Math.floor(i / n), i % n);
  if (s.queue === 'ended') return;
  if (past > 0) h.expect(after, 1, past * n, carried(tokens), 0);
  ends.forEach((end, i) =>
    h.expect({ at: copies.at + i * step, ld: 0 }, 1, past * n, carried(end), 0),
  );
}

export function recurrent(h: Harness): void {
  for (const tokens of [1, 2, 3, 9]) convolution(h, { n: 70, taps: 3, tokens, unary: 0 });
  for (const tokens of [1, 5]) convolution(h, { n: 128, taps: 4, tokens, unary: 1, bias: true });
  convolution(h, { n: 5, taps: 3, tokens: 1, unary: 0, first: 1 });
  for (const queue of ['runs', 'ended'] as const)
    convolution(h, { n: 70, taps: 3, tokens: 1, unary: 0, first: 1, queue });
  convolution(h, { n: 65, taps: 3, tokens: 40, unary: 0, first: 8, every: 16 });
  convolution(h, { n: 33, taps: 4, tokens: 32, unary: 1, bias: true, first: 16, every: 16 });
  convolution(h, { n: 3, taps: 9, tokens: 4, unary: 0, bias: true, first: 2, every: 2 });
}
