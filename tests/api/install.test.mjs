// The installed library as other projects use it: programs in C, C++ and Python, built against the
// files below a prefix through pkg-config and CMake, print the same story as `sluice run`.
// Needs build/native with all its targets.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { glibcOf } from '../release/elf.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const examples = join(root, 'examples', 'native');
const model = join(root, 'examples', 'models', 'sluice-tales-Q8_0.gguf');
const prompt = 'Once upon a time';
const budget = '1000000';
const seed = '7';
const strict = ['-Wall', '-Wextra', '-Werror', '-pedantic'];
const folder = mkdtempSync(join(tmpdir(), 'sluice-install-'));
let prefix = join(folder, 'first');
let expected, small; // the story, and its end in the short context of a small budget

const run = (program, args, env = {}) =>
  execFileSync(program, args, {
    encoding: 'utf8',
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
const pkgConfig = (...args) =>
  run('pkg-config', [...args, 'sluice'], { PKG_CONFIG_PATH: join(prefix, 'lib', 'pkgconfig') })
    .trim()
    .split(/\s+/);
const library = () => join(prefix, 'lib', 'libsluice.so');
const withLibrary = () => ({ LD_LIBRARY_PATH: join(prefix, 'lib') });

before(() => {
  run('cmake', ['--install', join(root, 'build', 'native'), '--prefix', prefix]);
  renameSync(prefix, join(folder, 'moved')); // the tree must work after being moved
  prefix = join(folder, 'moved');
  const sluice = (...args) =>
    run(join(prefix, 'bin', 'sluice'), [
      ...['run', model, '--raw', '-p', prompt, '-n', '128', '--seed', seed],
      ...args,
    ]);
  expected = sluice();
  small = sluice('--memory-budget', budget);
});
after(() => rmSync(folder, { recursive: true, force: true }));

test('libraries, header, packages and program are installed', () => {
  for (const file of [
    'bin/sluice',
    'include/sluice.h',
    'lib/libsluice.a',
    'lib/libsluice.so',
    'lib/pkgconfig/sluice.pc',
    'lib/cmake/sluice/sluice-config.cmake',
    'lib/cmake/sluice/sluice-config-version.cmake',
  ]) {
    assert.ok(existsSync(join(prefix, file)), file);
  }
});

test('program and library need no later glibc than the documentation names', () => {
  const named = /glibc (\d\.\d+) or later/.exec(readFileSync(join(root, 'docs/cli.md'), 'utf8'));
  for (const file of [join(prefix, 'bin', 'sluice'), library()])
    assert.ok(glibcOf(file) <= named[1], `${file}: ${glibcOf(file)}`);
});

test('a C11 program built through pkg-config tells the story under a budget', () => {
  const story = join(folder, 'story');
  run('cc', [
    '-std=c11',
    ...strict,
    join(examples, 'story.c'),
    '-o',
    story,
    ...pkgConfig('--cflags', '--libs'),
  ]);
  assert.equal(run(story, [model, prompt, budget, '128', seed], withLibrary()), small);
});

test('what pkg-config says for static programs links all of libsluice.a', () => {
  const story = join(folder, 'story-static');
  const options = pkgConfig('--static', '--libs').map((option) =>
    option === '-lsluice' ? '-l:libsluice.a' : option,
  );
  run('cc', [
    '-std=c11',
    join(examples, 'story.c'),
    '-o',
    story,
    ...pkgConfig('--cflags'),
    ...options,
  ]);
  assert.equal(run(story, [model, prompt, budget, '128', seed]), small);
});

test('C and C++ programs built through CMake tell it, with the shared library and the static one', () => {
  const build = join(folder, 'cmake');
  const flags = strict.join(' ');
  run('cmake', [
    '-G',
    'Ninja',
    '-S',
    examples,
    '-B',
    build,
    `-DCMAKE_PREFIX_PATH=${prefix}`,
    `-DCMAKE_C_FLAGS=${flags}`,
    `-DCMAKE_CXX_FLAGS=${flags}`,
  ]);
  run('cmake', ['--build', build]);
  assert.equal(run(join(build, 'story'), [model, prompt, budget, '128', seed]), small);
  const archive = join(folder, 'archive.bin');
  writeFileSync(archive, Buffer.concat([Buffer.alloc(4321, 1), readFileSync(model)]));
  assert.equal(run(join(build, 'reader'), [archive, '4321', prompt, seed]), expected);
});

test('the shared library gives out the functions of sluice.h and nothing else', () => {
  const given = run('nm', ['-D', '--defined-only', library()])
    .trim()
    .split('\n')
    .map((line) => line.split(' ').at(-1));
  const header = readFileSync(join(prefix, 'include', 'sluice.h'), 'utf8');
  const declared = [...header.matchAll(/SLUICE_API[^(;]*?(sluice_\w+)\(/g)].map(([, name]) => name);
  assert.ok(declared.length > 30);
  assert.deepEqual(given.sort(), declared.sort());
});

test('Python tells the story with ctypes', (t) => {
  if (spawnSync('python3', ['-c', 'import ctypes']).status !== 0)
    return t.skip('python3 with ctypes is not there');
  assert.equal(
    run('python3', [join(root, 'tests', 'api', 'story.py'), library(), model, prompt, '128', seed]),
    expected,
  );
});

test('32-bit and big-endian processors are refused with a sentence', (t) => {
  const refusal = (compiler, option) =>
    spawnSync(compiler, [option, '-fsyntax-only', join(root, 'src', 'base', 'target.cpp')], {
      encoding: 'utf8',
    }).stderr;
  if (process.arch === 'x64')
    assert.match(refusal('g++', '-m32'), /error: .*64-bit processors only/);
  const cross = 'aarch64-linux-gnu-g++';
  if (spawnSync(cross, ['--version']).error) return t.skip(`${cross} is not there`);
  assert.match(refusal(cross, '-mbig-endian'), /error: .*little-endian processors only/);
});
