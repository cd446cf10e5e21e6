// Bytes of weights that matrix multiplications read on the GPU, for every quantization type: at most
// 1.05 times those of the file, once for each tile of tokens. Kernels run on a software adapter, with
// reads that count (gpu/weight-reads.ts).
import assert from 'node:assert/strict';
import { build } from 'esbuild';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { extent, longOnly } from '../extent.mjs';
import { wgsl } from '../../web/scripts/wgsl.mjs';
import { noSoftwareAdapter, withDawn } from './gpu-node.mjs';
import { root } from './helpers.mjs';

const out = join(root, 'build', 'web-tests', 'gpu-weight-reads');
const kMost = 1.05;
/** A binding begins at a multiple of 256 bytes and ends at a word. */
const kBindingPadding = 256 + 4;
const [kRows, kCols] = [64, 512];
/** Types with blocks of every kind: whole words, 2 bytes more, 1 byte more, and a codebook. */
const kSome = ['F16', 'Q4_0', 'MXFP4', 'Q4_K', 'Q6_K', 'IQ2_S', 'QSF3'];
/** Tokens, and the tiles that read the weights once each. */
const kTiles = [
  [1, 1],
  [4, 1],
  [8, 2],
  [9, 1],
  [33, 2],
];

describe('reads of weights', { skip: noSoftwareAdapter }, () => {
  let close, reads, everyType, planned;
  before(async () => {
    await build({
      entryPoints: [
        join(root, 'tests', 'web', 'gpu', 'weight-reads.ts'),
        join(root, 'web', 'gpu', 'plan.ts'),
      ],
      outbase: root,
      outdir: out,
      bundle: true,
      format: 'esm',
      target: 'es2022',
      plugins: [wgsl],
      logLevel: 'warning',
    });
    close = await withDawn();
    const load = (...path) => import(pathToFileURL(join(out, ...path)).href);
    ({ reads, everyType } = await load('tests', 'web', 'gpu', 'weight-reads.js'));
    ({ planWeights: planned } = await load('web', 'gpu', 'plan.js'));
  });
  after(() => close?.());

  async function check(t, { type, name }, tokens, tiles, codes) {
    const found = await reads({ type, rows: kRows, cols: kCols, tokens, codes });
    const of = (bytes) => (bytes / found.file).toFixed(3);
    t.diagnostic(
      `${name}, ${tokens} tokens${codes ? ', int8' : ''}: ${of(found.fetched)} of the file's bytes, ` +
        `${of(found.requested)} with those from caches`,
    );
    assert.equal(found.dispatches, 1);
    assert.equal(found.tiles, tiles, name);
    assert.ok(found.bound <= found.file + kBindingPadding, `${name}: binds ${found.bound} bytes`);
    // Every byte is read, or this would count something else.
    assert.ok(found.fetched >= found.file - 4, `${name}: reads ${found.fetched} bytes`);
    assert.ok(found.fetched <= kMost * found.file, `${name}: reads ${found.fetched} bytes`);
    assert.ok(found.requested >= tiles * found.file);
  }

  test('a token, every type', { timeout: 300_000 }, async (t) => {
    const all = everyType.filter(({ name }) => extent(kSome, [name]).includes(name));
    assert.ok(all.length >= kSome.length);
    for (const type of all)
      for (const codes of extent([type.coded], type.coded ? [false, true] : [false]))
        await check(t, type, 1, 1, codes);
  });

  test('tiles of tokens', { skip: longOnly, timeout: 600_000 }, async (t) => {
    for (const name of kSome) {
      const type = everyType.find((type) => type.name === name);
      for (const [tokens, tiles] of kTiles)
        for (const codes of type.coded ? [false, true] : [false])
          await check(t, type, tokens, tiles, codes);
    }
  });

  test('units of weights have 15 bytes of padding for each matrix at most', () => {
    const mats = everyType.map(({ type }, i) => ({ type, rows: 7 + i, rowBytes: 2 * (i + 9) }));
    const op = (_, mat) => ({ kind: 2, parts: [{ mat, outCol: 0 }], n: 0, act: 0 });
    const program = { ops: mats.map(op), mats, pool: mats.length, moes: [] };
    const { units, bytes, pinnedBytes } = planned(program, 2 ** 30, { unitBytes: 2 ** 28 });
    const file = mats.reduce((sum, { rows, rowBytes }) => sum + rows * rowBytes, 0);
    assert.equal(units.length, mats.length);
    assert.ok(pinnedBytes >= file && pinnedBytes < file + 16 * mats.length, `${pinnedBytes}`);
    assert.ok(bytes > pinnedBytes);
  });
});
