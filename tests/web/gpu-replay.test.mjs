// Decode steps that are replayed on the GPU have the dispatches and parameters of a recording that is made
// anew: at each position, over windows, groups of q4_0 and parts of attention, in any order. No GPU is needed.
import assert from 'node:assert/strict';
import { build } from 'esbuild';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { wgsl } from '../../web/scripts/wgsl.mjs';
import { root } from './helpers.mjs';

const out = join(root, 'build', 'web-tests', 'gpu-replay');
const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);
const navigator = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
let compare;

before(async () => {
  await build({
    entryPoints: [join(root, 'tests', 'web', 'gpu', 'replay.ts')],
    outdir: out,
    bundle: true,
    format: 'esm',
    target: 'es2022',
    plugins: [wgsl],
    logLevel: 'warning',
  });
  Object.defineProperty(globalThis, 'navigator', { value: { gpu: {} }, configurable: true });
  ({ compare } = await import(pathToFileURL(join(out, 'replay.js')).href));
});
after(() => {
  delete globalThis.navigator;
  if (navigator) Object.defineProperty(globalThis, 'navigator', navigator);
});

test('replays of successive positions are those of recordings, which are few', async (t) => {
  // Attention has 32 parts at most: behind 8192 positions they get longer.
  const { compared, made, differ } = await compare([...range(0, 1100), ...range(8100, 8300)]);
  t.diagnostic(`${made} recordings for ${compared} positions`);
  assert.deepEqual(differ, []);
  assert.equal(compared, 1300);
  assert.ok(made > 40 && made < compared / 10, `${made} recordings`);
});

test('replays behind rewinds and jumps are those of recordings', async () => {
  let state = 7;
  const random = () => (state = (state * 48271) % 0x7fffffff);
  const positions = range(0, 100).flatMap(() => {
    const from = random() % 3000;
    return range(from, from + (random() % 6));
  });
  const { compared, made, differ } = await compare(positions);
  assert.deepEqual(differ, []);
  assert.ok(compared > 150 && made > 80, `${made} recordings for ${compared} positions`);
});
