// The program that people download, built by the preset `release`: what it needs from the system,
// and what `cmake --install --strip` writes.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { glibcOf, neededBy } from './elf.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'sluice-release-'));
const run = (program, ...args) => execFileSync(program, args, { cwd: root, encoding: 'utf8' });
const program = join(folder, 'bin', 'sluice');
const library = join(folder, 'lib', 'libsluice.so');

before(() =>
  run('cmake', '--install', join(root, 'build', 'release'), '--strip', '--prefix', folder),
);
after(() => rmSync(folder, { recursive: true, force: true }));

test('only libc, libcurl and zlib are shared', () => {
  // Debian's cpp-httplib is a shared library; vcpkg's, which the workflow takes, is a header.
  const cache = readFileSync(join(root, 'build', 'release', 'CMakeCache.txt'), 'utf8');
  const headers = !/^httplib_DIR:PATH=.*-NOTFOUND$/m.test(cache);
  const system = ['ld-linux', 'libc.so.6', 'libcurl.so.4', 'libm.so.6', 'libz.so.1'];
  for (const [file, known] of [
    [program, headers ? system : [...system, 'libcpp-httplib.so']],
    [library, system],
  ]) {
    const needed = neededBy(file);
    assert.ok(needed.includes('libc.so.6') && needed.includes('libcurl.so.4'), file);
    assert.deepEqual(
      needed.filter((name) => !known.some((start) => name.startsWith(start))),
      [],
      file,
    );
  }
});

test('they need the glibc that the documentation names', () => {
  const named = /glibc (\d\.\d+) or later/.exec(readFileSync(join(root, 'docs/cli.md'), 'utf8'));
  assert.equal(glibcOf(program), named[1]);
  assert.ok(glibcOf(library) <= named[1], glibcOf(library));
});

test('libcurl is needed without the symbol versions of Debian', () => {
  assert.doesNotMatch(run('readelf', '--version-info', program), /CURL_/);
});

test('they are stripped, small, and licenses are installed', () => {
  for (const file of [program, library]) {
    assert.doesNotMatch(run('readelf', '--sections', '--wide', file), /\.symtab|\.debug_info/);
    assert.ok(statSync(file).size < 10e6, `${file}: ${statSync(file).size} bytes`);
  }
  const notices = join(folder, 'share', 'doc', 'sluice');
  assert.ok(existsSync(join(notices, 'LICENSE')));
  for (const name of ['liblz4-dev', 'libzstd-dev', 'libedit-dev'])
    assert.ok(existsSync(join(notices, 'third-party', name, 'copyright')), name);
});

test('the program writes what the development build writes', () => {
  const args = ['run', 'examples/models/sluice-tales-Q8_0.gguf', '-p', 'Once upon a time'];
  args.push('-n', '40', '--temp', '0');
  const text = run(program, ...args);
  assert.match(text, /^Once upon a time/);
  assert.equal(text, run(join(root, 'build', 'native', 'sluice'), ...args));
});
