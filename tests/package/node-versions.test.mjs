// The package on the Node versions that people run: the tests of this folder that need no browser,
// in each of them. Node 20 is the lowest and runs the whole suite. npm has the programs.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { longOnly } from '../extent.mjs';
import { online, run } from './tarball.mjs';

const versions = ['22.23.3', '24.21.0', '26.12.1'];
const files = ['node', 'process', 'chat', 'entries'].map((name) =>
  inRoot('tests', 'package', `${name}.test.mjs`),
);
const source = `node-${process.platform}-${process.arch}`; // npm's package with the program

const skip = longOnly || (online() ? false : 'the npm registry does not answer');
for (const version of versions) {
  test(`Node ${version}`, { skip }, (t) => {
    const folder = inRoot('build', 'node', version);
    const program = join(folder, 'node_modules', source, 'bin', 'node');
    if (!existsSync(program)) {
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, 'package.json'), '{ "private": true }\n');
      run(folder, 'npm', ['install', '--ignore-scripts', '--no-save', `${source}@${version}`]);
    }
    const { NODE_TEST_CONTEXT: _, ...env } = process.env; // of this test, not of the others
    const { status, stdout, stderr } = spawnSync(
      program,
      ['--test', '--test-concurrency=1', '--test-reporter=tap', ...files],
      { encoding: 'utf8', timeout: 900_000, env },
    );
    assert.equal(status, 0, `${stdout.slice(-8000)}${stderr}`);
    const passed = Number(/^# pass (\d+)$/m.exec(stdout)?.[1]);
    assert.ok(passed > 30, stdout.slice(-2000));
    t.diagnostic(`${passed} tests passed`);
  });
}
