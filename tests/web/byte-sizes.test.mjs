// Byte sizes that callers pass: numbers and texts, and what a shift that overflowed looks like.
// tests/data/byte-sizes.json has texts, which the native program's tests use too.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { byteCount } = await importWeb('api/options');
const { byteSize } = await importWeb('protocol/byte-size');
const cases = JSON.parse(readFileSync(new URL('../data/byte-sizes.json', import.meta.url)));

test('texts are sizes as in the native program', () => {
  assert.ok(cases.sizes.length > 20 && cases.wrong.length > 20);
  for (const [text, bytes] of cases.sizes) assert.equal(byteSize(text), bytes, text);
  for (const text of [...cases.wrong, ...cases.tooLarge]) assert.equal(byteSize(text), NaN, text);
});

const sizes = [
  [undefined, 0],
  [65536, 65536],
  [1e6 + 0.5, 1e6],
  ['64K', 65536],
  ['256M', 256 * 2 ** 20],
  ['256 MiB', 256 * 2 ** 20],
  ['1.5g', 1.5 * 2 ** 30],
  ['70000', 70000],
  ['70000B', 70000],
  ['64', 64],
  ['auto', 0],
];
for (const [given, bytes] of sizes)
  test(`${given} is ${bytes} bytes`, () => assert.equal(byteCount('memoryBudget', given), bytes));

const wrong = [
  4 << 30,
  2048 << 20,
  256,
  NaN,
  Infinity,
  null,
  {},
  '',
  '0',
  '0M',
  '-1M',
  '1e9',
  'much',
];
for (const given of wrong)
  test(`${String(given) || "''"} is refused`, () =>
    assert.throws(() => byteCount('memoryBudget', given), {
      code: 'INVALID_ARGUMENT',
      message:
        `memoryBudget must be bytes, from 65536, or a text such as '64M', not '${given}'. ` +
        "4 << 30 overflows: write '4G'.",
    }));
