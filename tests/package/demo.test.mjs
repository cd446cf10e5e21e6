// The demo's bundles go to a directory of their own, also before dist/ is there.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import * as esbuild from 'esbuild';
import { bundlePage, settings } from '../../web/scripts/build.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';
import { all } from '../extent.mjs';

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
