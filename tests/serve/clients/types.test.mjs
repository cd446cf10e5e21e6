// The package's types against those of the openai package that the clients use. The suite 'types'
// compares them with the version that the root package pins.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { inRoot } from '../../../web/scripts/lib.mjs';
import { installed } from './install.mjs';

test('messages and responses have the types of the openai package', () => {
  const folder = mkdtempSync(inRoot('build', 'client-types-'));
  const openai = join(installed(), 'node_modules', 'openai', 'index.d.mts');
  const files = ['tests/web/openai-types.ts', 'tests/web/option-types.ts'];
  const config = {
    extends: inRoot('web', 'tsconfig.json'),
    compilerOptions: {
      typeRoots: [inRoot('node_modules', '@types')],
      paths: { openai: [openai] },
      listFiles: true,
    },
    files: [...files, 'web/gpu/kernels/wgsl.d.ts'].map((file) => inRoot(file)),
    include: [],
  };
  try {
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
    const tsc = inRoot('node_modules', '.bin', 'tsc');
    const { status, stdout } = spawnSync(tsc, ['-p', folder], { encoding: 'utf8' });
    assert.equal(status, 0, stdout);
    assert.ok(stdout.split('\n').includes(openai));
  } finally {
    rmSync(folder, { recursive: true });
  }
});
