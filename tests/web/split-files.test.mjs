// Models in several files through the package in Node. The parts of a split GGUF from paths, a
// server and picked files in any order give the logits of the complete file; a missing part is an
// error that names it. For every budget in which not even the header fits, the error names the
// smallest budget.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { serve } from '../../web/scripts/serve.mjs';
import { extent } from '../extent.mjs';
import { root } from './helpers.mjs';
import { splitGguf } from './split-gguf.mjs';

const model = join(root, 'tests', 'data', 'families', 'llama-biases.gguf');
const tokens = [1, 5, 9, 40];
const names = ['m-00001-of-00003.gguf', 'm-00002-of-00003.gguf', 'm-00003-of-00003.gguf'];
const options = { contextLength: 64, threads: 1 };
let Engine;
let folder;
let whole;

async function logits(source, more = {}) {
  const engine = await Engine.load(source, { ...options, ...more });
  try {
    return Array.from(await engine.logits(tokens));
  } finally {
    await engine.dispose();
  }
}

const refused = (source, more) =>
  logits(source, more).then(
    () => assert.fail('it loaded'),
    (error) => error,
  );
const blob = (name) => new File([readFileSync(join(folder, name))], name);

before(async () => {
  ({ Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href));
  folder = mkdtempSync(join(tmpdir(), 'sluice-opening-'));
  splitGguf(readFileSync(model), 3).forEach((bytes, i) =>
    writeFileSync(join(folder, names[i]), bytes),
  );
  whole = await logits(model);
});
after(() => rmSync(folder, { recursive: true }));

test('a split model from paths and from a server', async () => {
  assert.deepEqual(await logits(join(folder, names[0])), whole);
  const files = await serve([['/', folder]]);
  try {
    assert.deepEqual(
      await logits(`${files.url}/${names[0]}?download=true`, { cache: 'none' }),
      whole,
    );
  } finally {
    await files.close();
  }
});

test('picked parts work in any order, and unnamed ones in their own order', async () => {
  for (const order of [
    [0, 1, 2],
    [2, 0, 1],
    [1, 2, 0],
  ]) {
    assert.deepEqual(await logits(order.map((i) => blob(names[i]))), whole, `${order}`);
  }
  assert.deepEqual(
    await logits(names.map((name) => new Blob([readFileSync(join(folder, name))]))),
    whole,
  );
});

test('a missing part, or one that is not the first, is an error that names it', async () => {
  const few = await refused([blob(names[0]), blob(names[2])]);
  assert.equal(few.code, 'NOT_FOUND');
  assert.match(few.message, /part 2 of 3/);
  const later = await refused(join(folder, names[1]));
  assert.equal(later.code, 'INVALID_ARGUMENT');
  assert.match(later.message, /file 2 .* in 3 files/);
  const alone = join(folder, 'alone.gguf');
  writeFileSync(alone, readFileSync(join(folder, names[0])));
  const nameless = await refused(alone);
  assert.equal(nameless.code, 'INVALID_ARGUMENT');
  assert.match(nameless.message, /-00001-of-00003\.gguf/);
});

test(`${extent('many budgets', 'every budget')} below the smallest are errors that name it`, async () => {
  for (const source of [model, join(root, 'tests', 'data', 'hf', 'llama3')]) {
    const smallest = (error) => Number(/smallest that works is (\d+)/.exec(error.message)?.[1]);
    const least = smallest(await refused(source, { memoryBudget: 65536 }));
    assert.ok(least > 0, basename(source));
    for (let budget = 65536; budget < least; budget += extent(5, 1) * 65536) {
      const error = await refused(source, { memoryBudget: budget });
      assert.equal(
        error.code,
        'BUDGET_TOO_SMALL',
        `${basename(source)} in ${budget} bytes: ${error.message}`,
      );
      assert.ok(
        smallest(error) <= least,
        `${basename(source)} in ${budget} bytes: ${error.message}`,
      );
    }
    await logits(source, { memoryBudget: Math.ceil(least / 65536) * 65536 });
  }
});
