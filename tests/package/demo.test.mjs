// The demo: its bundles go to a directory of their own, also before dist/ is there, its engine has no
// names, and it tells a story.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import * as esbuild from 'esbuild';
import { bundlePage, settings } from '../../web/scripts/build.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';
import { withoutNames } from '../../web/scripts/wasm-order.mjs';
import { all, longOnly } from '../extent.mjs';

test('a page is bundled into any directory, and dist/ stays as it is', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-demo-'));
  const times = () =>
    readdirSync(inRoot('dist')).map((name) => statSync(inRoot('dist', name)).mtimeMs);
  const before = times();
  try {
    // The second minifier takes 12 s of processor time.
    const finished = [];
    await bundlePage(esbuild, settings(folder), all ? undefined : (file) => finished.push(file));
    for (const name of ['index.js', 'worker.js', 'gpu.js', 'pictures.js']) {
      const [own, theirs] = [folder, inRoot('dist')].map((at) => readFileSync(join(at, name)));
      if (all) assert.deepEqual(own, theirs, name);
      else assert.ok(finished.includes(join(folder, name)) && own.length >= theirs.length, name);
    }
    assert.deepEqual(times(), before);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('a binary without names is as before otherwise', () => {
  const plain = readFileSync(inRoot('dist', 'chat.wasm'));
  const name = [0, 6, 4, ...Buffer.from('name'), 0];
  const bytes = Buffer.concat([plain.subarray(0, 8), Buffer.from(name), plain.subarray(8)]);
  const bare = withoutNames(bytes);
  const [before, after] = [bytes, bare].map((binary) => new WebAssembly.Module(binary));
  const names = (module) => WebAssembly.Module.customSections(module, 'name').length;
  assert.deepEqual([names(before), names(after)], [1, 0]);
  for (const list of [WebAssembly.Module.imports, WebAssembly.Module.exports])
    assert.deepEqual(list(after), list(before));
});

test('npm run demo -- --headless tells a story', { skip: longOnly }, () => {
  const args = [inRoot('web', 'scripts', 'demo.mjs'), '--headless', '--max-tokens', '20'];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^Once upon a time[^]{40}/m);
  assert.match(stdout, /^story {5}20 tokens/m);
});
