// Medians and their intervals, against tables of order statistics.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { interval, median } from '../bench/statistics.mjs';

const upTo = (n) => Array.from({ length: n }, (_, i) => i + 1).reverse();

test('medians', () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 3, 2]), 2.5);
});

// The ranks of Conover, Practical Nonparametric Statistics, for a confidence of 95 %.
test('the interval of a median has the ranks of the binomial distribution', () => {
  const ranks = { 3: [1, 3], 5: [1, 5], 6: [1, 6], 8: [1, 8], 9: [2, 8], 10: [2, 9], 20: [6, 15] };
  for (const [n, expected] of Object.entries(ranks))
    assert.deepEqual(interval(upTo(Number(n))), expected, n);
  assert.deepEqual(interval(upTo(10), 0.9), [2, 9]);
  assert.deepEqual(interval(upTo(10), 0.99), [1, 10]);
});
