// The program that people download, built by the preset `release`: what it needs from the system,
// and what `cmake --install --strip` writes.
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { glibcOf, neededBy } from './elf.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const model = join(root, 'examples/models/sluice-tales-Q8_0.gguf');
const folder = mkdtempSync(join(tmpdir(), 'sluice-release-'));
const run = (program, ...args) => execFileSync(program, args, { cwd: root, encoding: 'utf8' });
const program = join(folder, 'bin', 'sluice');
const library = join(folder, 'lib', 'libsluice.so');

before(() =>
  run('cmake', '--install', join(root, 'build', 'release'), '--strip', '--prefix', folder),
);
after(() => rmSync(folder, { recursive: true, force: true }));

test('only libc and libcurl are shared', () => {
  // Debian's cpp-httplib is a shared library; vcpkg's, which the workflow takes, is a header.
  const cache = readFileSync(join(root, 'build', 'release', 'CMakeCache.txt'), 'utf8');
  const headers = !/^httplib_DIR:PATH=.*-NOTFOUND$/m.test(cache);
  const system = ['ld-linux', 'libc.so.6', 'libcurl.so.4', 'libm.so.6'];
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

test('exceptions and random numbers work without the functions of later versions', async () => {
  const { status, stderr } = spawnSync(program, ['info', model, '--no-such-option'], {
    encoding: 'utf8',
  });
  assert.equal(status, 2, stderr);
  assert.match(stderr, /no-such-option.*\[INVALID_ARGUMENT\]/);
  // Ids of completions are random.
  const server = spawn(program, ['serve', model, '--port', '0', '--json', '--quiet']);
  try {
    const [line] = await once(createInterface({ input: server.stdout }), 'line');
    const ids = [];
    for (let i = 0; i < 2; ++i) {
      const body = JSON.stringify({ prompt: 'Once', max_tokens: 1 });
      const answer = await fetch(`${JSON.parse(line).url}/v1/completions`, {
        method: 'POST',
        body,
      });
      ids.push((await answer.json()).id);
    }
    assert.match(ids[0], /^cmpl-/);
    assert.notEqual(ids[0], ids[1]);
  } finally {
    server.kill();
  }
});

test('URLs work with the libcurl of the system', async () => {
  const server = createServer((request, response) => response.end(readFileSync(model)));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${server.address().port}/model.gguf`;
  try {
    const { stdout } = await promisify(execFile)(program, ['info', url, '--json']);
    assert.equal(JSON.parse(stdout).architecture, 'llama');
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test('the program writes what the development build writes', () => {
  const args = ['run', model, '--raw', '-p', 'Once upon a time'];
  args.push('-n', '40', '--temp', '0');
  const text = run(program, ...args);
  assert.match(text, /^Once upon a time/);
  assert.equal(text, run(join(root, 'build', 'native', 'sluice'), ...args));
});
