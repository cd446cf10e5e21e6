// PartialJson: values of JSON text that is incomplete.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { PartialJson } = await importWeb('chat/partial-json');

test('PartialJson: every prefix gives its certain values, the end gives all', () => {
  const value = {
    name: 'A "q" \n é 😀 \\',
    list: [1, -2.5e3, true, null, [], {}],
    deep: { a: { b: 'x' } },
    last: 12,
  };
  for (const text of [
    JSON.stringify(value),
    JSON.stringify(value, null, 2),
    JSON.stringify(value).replace('é', '\\u00e9').replace('😀', '\\ud83d\\ude00'),
  ]) {
    const partial = new PartialJson();
    let last;
    let changes = 0;
    for (const char of text) {
      const changed = partial.push(char);
      if (!changed) continue;
      last = changed.value;
      changes++;
      assert.ok(value.name.startsWith(last.name ?? ''), JSON.stringify(last));
      assert.ok(last.last === undefined || last.last === 12, JSON.stringify(last));
      for (const [i, item] of (last.list ?? []).entries()) assert.deepEqual(item, value.list[i]);
    }
    last = partial.push(undefined)?.value ?? last;
    assert.deepEqual(last, value);
    assert.ok(changes > 20);
  }
  for (const [text, wanted] of [
    ['12', 12],
    ['"a', 'a'],
    ['true', true],
    ['[1, 2', [1, 2]],
  ]) {
    const partial = new PartialJson();
    const before = partial.push(text)?.value;
    assert.deepEqual(partial.push(undefined)?.value ?? before, wanted);
  }
  const nothing = new PartialJson();
  assert.equal(nothing.push('Once upon'), null);
  assert.equal(nothing.push(undefined), null);
});
