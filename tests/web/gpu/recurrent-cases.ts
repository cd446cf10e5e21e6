// Recurrent layers: their output, the state that they pass on, and the copies for checkpoints on the
// way.
import type { Place } from '../../../web/gpu/kernels.js';
import * as kernels from '../../../web/gpu/kernels/recurrent.js';
import type { Harness, Wanted } from './harness.js';

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
    kernels.convolve(r, {
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

/** Which states a call writes. */
interface Passing {
  tokens: number;
  first?: number;
  every?: number;
  queue?: 'runs' | 'ended';
}

/** The places of a state of `floats` floats, and a check of what `stateAfter` n tokens it is there. */
function passing(h: Harness, floats: number, s: Passing) {
  const { tokens, queue, first = 0, every = 1 } = s;
  const before = h.place(1, floats);
  const after = queue ? before : h.place(1, floats, () => 3e7);
  const ended = h.place(1, 1, () => Number(queue === 'ended'));
  const ends: number[] = [];
  for (let end = first; first > 0 && end <= tokens; end += every) ends.push(end);
  const step = floats + 3;
  const copies = h.place(1, Math.max(1, ends.length) * step, () => 4e7);
  return {
    initial: Array.from({ length: floats }, (_, i) => h.get(before, 0, i)),
    places: {
      before: before.at,
      after: after.at,
      ended: queue && ended.at,
      copies: { at: copies.at, step, first, every },
    },
    check(stateAfter: (tokens: number) => readonly number[]): void {
      if (queue === 'ended') return;
      const wanted = (end: number) => {
        const state = stateAfter(end);
        return (_: number, i: number) => ({ value: state[i]!, size: 1 + Math.abs(state[i]!) });
      };
      h.expect(after, 1, floats, wanted(tokens));
      ends.forEach((end, i) =>
        h.expect({ at: copies.at + i * step, ld: 0 }, 1, floats, wanted(end)),
      );
    },
  };
}

interface RecurrenceShape extends Passing {
  kind: kernels.StateKind;
  heads: number;
  groups?: number;
  interleaved?: boolean;
  keys: number;
  values: number;
  decayPerKey?: boolean;
  beta?: boolean;
  given?: boolean;
}

/** kernels/reference/recurrent.cpp, for one column: its state after each token, and its outputs. */
function column(
  s: RecurrenceShape,
  initial: number[],
  row: (name: 'r' | 'k' | 'a' | 'b' | 'decay', t: number, i: number) => number,
  value: (t: number) => number,
  beta: (t: number) => number,
  given: (i: number) => number,
): { states: number[][]; outputs: Wanted[] } {
  const { kind, keys, tokens } = s;
  const state = [...initial];
  const [states, outputs]: [number[][], Wanted[]] = [[], []];
  const all = Array.from({ length: keys }, (_, i) => i);
  const sum = (f: (i: number) => number) => all.reduce((total, i) => total + f(i), 0);
  for (let t = 0; t < tokens; t++) {
    let v = value(t);
    const bonus = kind === 3 ? sum((i) => row('r', t, i) * row('k', t, i) * given(i)) : given(0);
    const skipped = bonus * v;
    if (kind === 1) v -= sum((i) => row('k', t, i) * row('decay', t, i) * state[i]!);
    const removed = kind === 2 ? sum((i) => row('a', t, i) * state[i]!) : 0;
    v *= beta(t);
    const former = [...state];
    for (const i of all) {
      state[i] = row('decay', t, i) * state[i]! + row('k', t, i) * v;
      if (kind === 2) state[i]! += row('b', t, i) * removed;
    }
    const seen = kind === 3 ? former : state;
    const size = 1 + Math.abs(skipped) + sum((i) => Math.abs(row('r', t, i) * seen[i]!));
    outputs.push({ value: skipped + sum((i) => row('r', t, i) * seen[i]!), size });
    states.push([...state]);
  }
  return { states, outputs };
}

function recurrence(h: Harness, s: RecurrenceShape): void {
  const { kind, heads, keys, values, tokens, groups = heads, interleaved = false } = s;
  const unit = () => h.random.normal() / Math.sqrt(keys);
  const rows = {
    r: h.place(tokens, groups * keys),
    k: h.place(tokens, groups * keys, unit),
    a: h.place(tokens, groups * keys, unit),
    b: h.place(tokens, groups * keys, unit),
    decay: h.place(tokens, heads * (s.decayPerKey ? keys : 1), () => h.random.next()),
  };
  const v = h.place(tokens, heads * values);
  const beta = s.beta ? h.place(tokens, heads, () => h.random.next()) : undefined;
  const out = h.place(tokens, heads * values, () => 5e7);
  const perHead = kind === 3 ? keys : 1;
  const given = s.given
    ? h.vector(Array.from({ length: heads * perHead }, () => h.random.normal()))
    : undefined;
  const states = passing(h, heads * keys * values, s);
  const columns = Array.from({ length: heads * values }, (_, j) => {
    const head = Math.floor(j / values);
    const group = interleaved ? head % groups : Math.floor((head * groups) / heads);
    const at = (i: number) => (head * keys + i) * values + (j % values);
    return column(
      s,
      Array.from({ length: keys }, (_, i) => states.initial[at(i)]!),
      (name, t, i) => {
        const place = name === 'decay' ? head * (s.decayPerKey ? keys : 1) : group * keys;
        return h.get(rows[name], t, place + (name !== 'decay' || s.decayPerKey ? i : 0));
      },
      (t) => h.get(v, t, j),
      (t) => (beta ? h.get(beta, t, head) : 1),
      (i) => (given === undefined ? 0 : h.vectorValue(given + head * perHead + i)),
    );
  });
  h.call(`recurrence ${JSON.stringify(s)}`, (r) =>
    kernels.recurrence(r, {
      ...rows,
      v,
      out,
      beta,
      given,
      kind,
      heads,
      groups,
      interleaved,
      keys,
      values,
      decayPerKey: s.decayPerKey ?? false,
      tokens,
      ...states.places,
    }),
  );
  h.expect(out, tokens, heads * values, (t, j) => columns[j]!.outputs[t]!);
  states.check((end) =>
    states.initial.map((_, i) => {
      const [head, within] = [Math.floor(i / (keys * values)), i % (keys * values)];
      const { states } = columns[head * values + (within % values)]!;
      return states[end - 1]![Math.floor(within / values)]!;
    }),
  );
}

function scan(h: Harness, s: Passing & { n: number; keys: number }): void {
  const { n, keys, tokens } = s;
  const dt = h.place(tokens, n, () => h.random.next());
  const [x, b, c, out] = [n, keys, keys, n].map((width) => h.place(tokens, width)) as [
    Place,
    Place,
    Place,
    Place,
  ];
  const rates = h.vector(Array.from({ length: keys * n }, () => -4 * h.random.next()));
  const skip = h.vector(Array.from({ length: n }, () => h.random.normal()));
  const states = passing(h, keys * n, s);
  const passed: number[][] = [];
  const outputs: Wanted[][] = [];
  const state = [...states.initial];
  for (let t = 0; t < tokens; t++) {
    outputs.push([]);
    for (let j = 0; j < n; j++) {
      const [value, step] = [h.get(x, t, j), h.get(dt, t, j)];
      const sum = { value: value * h.vectorValue(skip + j), size: 1 };
      for (let i = 0; i < keys; i++) {
        const decay = Math.exp(step * h.vectorValue(rates + i * n + j));
        state[i * n + j] = decay * state[i * n + j]! + h.get(b, t, i) * step * value;
        sum.value += h.get(c, t, i) * state[i * n + j]!;
        sum.size += Math.abs(h.get(c, t, i) * state[i * n + j]!);
      }
      outputs[t]!.push(sum);
    }
    passed.push([...state]);
  }
  h.call(`scan ${JSON.stringify(s)}`, (r) =>
    kernels.scan(r, { x, dt, b, c, out, n, keys, tokens, rates, skip, ...states.places }),
  );
  h.expect(out, tokens, n, (t, j) => outputs[t]![j]!);
  states.check((end) => passed[end - 1]!);
}

function decay(h: Harness, n: number, heads: number, tokens: number): void {
  const x = h.place(tokens, n, () => 4 * h.random.normal());
  const out = h.place(tokens, n);
  const bias = h.vector(Array.from({ length: n }, () => h.random.normal()));
  const rates = h.vector(Array.from({ length: heads }, () => -h.random.next()));
  const step = (t: number, i: number) => {
    const sum = h.get(x, t, i) + h.vectorValue(bias + i);
    return Math.max(sum, 0) + Math.log1p(Math.exp(-Math.abs(sum)));
  };
  h.call(`decay ${n} ${heads} ${tokens}`, (r) =>
    kernels.decay(r, { in: x, out, tokens, n, heads, bias, rates }),
  );
  h.expect(out, tokens, n, (t, i) =>
    Math.exp(h.vectorValue(rates + Math.floor((i * heads) / n)) * step(t, i)),
  );
  h.expect(x, tokens, n, (t, i) => ({ value: step(t, i), size: 1 }));
}

function shift(h: Harness, s: Passing & { n: number }): void {
  const { n, tokens } = s;
  const [x, out] = [h.place(tokens, n), h.place(tokens, n)];
  const states = passing(h, n, s);
  h.call(`shift ${JSON.stringify(s)}`, (r) =>
    kernels.shift(r, { x, out, tokens, n, ...states.places }),
  );
  const former = (t: number, i: number) => (t ? h.get(x, t - 1, i) : states.initial[i]!);
  h.expect(out, tokens, n, (t, i) => ({ value: former(t, i) - h.get(x, t, i), size: 1 }));
  states.check((end) => Array.from({ length: n }, (_, i) => former(end, i)));
}

function lerps(h: Harness, n: number, rows: number, tokens: number): void {
  const weights = h.vector(Array.from({ length: rows * n }, () => h.random.normal()));
  const [x, step] = [h.place(tokens, n), h.place(tokens, n)];
  const places = { in: x, step, tokens, n };
  for (const add of [false, true]) {
    const out = h.place(tokens, rows * n);
    h.call(`lerp ${n} ${rows} ${tokens} ${add}`, (r) =>
      kernels.lerp(r, { ...places, out, rows, weights, add }),
    );
    h.expect(out, tokens, rows * n, (t, i) => {
      const weight = h.vectorValue(weights + i) + (add ? h.get(out, t, i) : 0);
      return { value: h.get(x, t, i % n) + h.get(step, t, i % n) * weight, size: 1 };
    });
  }
  const out = h.place(tokens, n);
  h.call(`mix into ${n} ${tokens}`, (r) => kernels.mixInto(r, { ...places, out }));
  h.expect(out, tokens, n, (t, i) => {
    const [from, to] = [h.get(out, t, i), h.get(x, t, i)];
    return { value: from + h.get(step, t, i) * (to - from), size: 1 };
  });
}

/** session/rwkv.cpp */
function rwkv7(h: Harness, heads: number, n: number, tokens: number): void {
  const values = () => h.vector(Array.from({ length: heads * n }, () => h.random.normal()));
  const rows = () => h.place(tokens, heads * n);
  const [removal, replacement, weights] = [values(), values(), values()];
  const [k, rates, negative, both] = [rows(), rows(), rows(), rows()];
  const eps = 1e-12;
  h.call(`RWKV 7 keys ${heads} ${n} ${tokens}`, (r) =>
    kernels.rwkv7Keys(r, {
      ...{ k, rates, negative, both, tokens, n, heads, removal, replacement, eps },
    }),
  );
  const removed = (t: number, i: number) => h.get(k, t, i) * h.vectorValue(removal + i);
  const unit = (t: number, i: number) => {
    const first = i - (i % n);
    const squares = Array.from({ length: n }, (_, j) => removed(t, first + j) ** 2);
    return removed(t, i) / Math.sqrt(squares.reduce((a, b) => a + b));
  };
  h.expect(negative, tokens, heads * n, (t, i) => -unit(t, i));
  h.expect(both, tokens, heads * n, (t, i) => unit(t, i) * h.get(rates, t, i));
  h.expect(k, tokens, heads * n, (t, i) => ({
    value: h.get(k, t, i) * (1 + (h.get(rates, t, i) - 1) * h.vectorValue(replacement + i)),
    size: 1,
  }));
  const [r, key, v, out] = [rows(), rows(), rows(), rows()];
  h.call(`RWKV 7 bonus ${heads} ${n} ${tokens}`, (to) =>
    kernels.rwkv7Bonus(to, { r, k: key, v, out, tokens, heads, keys: n, values: n, weights }),
  );
  h.expect(out, tokens, heads * n, (t, i) => {
    const first = i - (i % n);
    let [sum, size] = [0, 0];
    for (let j = first; j < first + n; j++) {
      const term = h.get(r, t, j) * h.get(key, t, j) * h.vectorValue(weights + j);
      sum += term;
      size += Math.abs(term);
    }
    const value = h.get(v, t, i);
    return { value: h.get(out, t, i) + value * sum, size: 1 + Math.abs(value) * size };
  });
}

/** As models have them: Mamba 2, gated delta rules, RWKV 7 and 6. */
function recurrences(h: Harness): void {
  const [plain, delta, general, bonus] = [0, 1, 2, 3] as const;
  for (const tokens of [1, 2, 5])
    recurrence(h, { kind: delta, heads: 2, keys: 128, values: 33, beta: true, tokens });
  const grouped = { heads: 6, groups: 2, values: 5, tokens: 3 };
  for (const interleaved of [false, true])
    recurrence(h, { ...grouped, kind: delta, keys: 40, beta: true, interleaved });
  recurrence(h, { ...grouped, kind: plain, keys: 16, beta: true, given: true });
  const wide = { kind: plain, heads: 1, keys: 256, values: 20, beta: true, given: true } as const;
  recurrence(h, { ...wide, tokens: 4 });
  recurrence(h, { ...wide, tokens: 1, first: 1 });
  const perKey = { heads: 2, keys: 64, values: 64, decayPerKey: true } as const;
  recurrence(h, { ...perKey, kind: delta, beta: true, tokens: 2 });
  recurrence(h, { ...perKey, kind: general, tokens: 3 });
  recurrence(h, { ...perKey, kind: bonus, given: true, tokens: 3 });
  const odd = { heads: 3, keys: 67, values: 3, beta: true } as const;
  recurrence(h, { ...odd, kind: delta, tokens: 40, first: 8, every: 16 });
  for (const queue of ['runs', 'ended'] as const)
    recurrence(h, { ...odd, kind: delta, tokens: 1, first: 1, queue });
}

export function recurrent(h: Harness): void {
  recurrences(h);
  for (const tokens of [1, 4]) scan(h, { n: 70, keys: 16, tokens });
  scan(h, { n: 5, keys: 3, tokens: 20, first: 4, every: 8 });
  for (const queue of ['runs', 'ended'] as const) scan(h, { n: 9, keys: 16, tokens: 1, queue });
  decay(h, 6, 6, 3);
  decay(h, 192, 3, 2);
  for (const tokens of [1, 5]) shift(h, { n: 70, tokens });
  shift(h, { n: 5, tokens: 20, first: 4, every: 8 });
  for (const queue of ['runs', 'ended'] as const) shift(h, { n: 9, tokens: 1, queue });
  lerps(h, 70, 3, 2);
  for (const n of [64, 67]) rwkv7(h, 2, n, 3);
  for (const tokens of [1, 2, 3, 9]) convolution(h, { n: 70, taps: 3, tokens, unary: 0 });
  for (const tokens of [1, 5]) convolution(h, { n: 128, taps: 4, tokens, unary: 1, bias: true });
  convolution(h, { n: 5, taps: 3, tokens: 1, unary: 0, first: 1 });
  for (const queue of ['runs', 'ended'] as const)
    convolution(h, { n: 70, taps: 3, tokens: 1, unary: 0, first: 1, queue });
  convolution(h, { n: 65, taps: 3, tokens: 40, unary: 0, first: 8, every: 16 });
  convolution(h, { n: 33, taps: 4, tokens: 32, unary: 1, bias: true, first: 16, every: 16 });
  convolution(h, { n: 3, taps: 9, tokens: 4, unary: 0, bias: true, first: 2, every: 2 });
}
