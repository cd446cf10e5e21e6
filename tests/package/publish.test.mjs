// Checks the tarball with publint and "are the types wrong". The package is ESM only, so its finding
// that require() loads a module does not count: Node can do that since 20.19.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { inRoot } from '../../web/scripts/lib.mjs';
import { pack, scratch } from './tarball.mjs';

let folder;
let tarball;
before(() => {
  folder = scratch();
  tarball = pack(folder);
});
after(() => rmSync(folder, { recursive: true, force: true }));

test('publint finds nothing', async () => {
  mkdirSync(join(folder, 'unpacked'));
  assert.equal(spawnSync('tar', ['-xzf', tarball, '-C', join(folder, 'unpacked')]).status, 0);
  const pkgDir = join(folder, 'unpacked', 'package');
  const { messages, pkg } = await publint({ pkgDir, pack: false, strict: true });
  assert.deepEqual(
    messages.map((message) => formatMessage(message, pkg)),
    [],
  );
});

test('the types are right for Node, for bundlers and for resolution without exports', async () => {
  const { exports } = JSON.parse(readFileSync(inRoot('package.json'), 'utf8'));
  const entrypoints = Object.keys(exports).filter((name) => exports[name].types);
  const found = await checkPackage(createPackageFromTarballData(readFileSync(tarball)), {
    entrypoints,
  });
  assert.ok(found.types, 'the package has types');
  assert.equal(Object.keys(found.entrypoints).length, entrypoints.length);
  for (const [name, entry] of Object.entries(found.entrypoints)) {
    for (const kind of ['node10', 'node16-cjs', 'node16-esm', 'bundler']) {
      const { resolution } = entry.resolutions[kind];
      assert.ok(resolution?.isTypeScript, `${name} has declarations (${kind})`);
    }
  }
  const ours = found.problems.filter(({ kind }) => kind !== 'CJSResolvesToESM');
  assert.deepEqual(ours, []);
});
