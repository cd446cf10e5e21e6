// What the build keeps between checkouts: the same inputs give the file that was made before, other
// inputs do not, and CCACHE_DISABLE turns it off.
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { cached, cacheFolder } from '../../web/scripts/cache.mjs';

test('a file is made once for its inputs', async (t) => {
  const base = mkdtempSync(join(tmpdir(), 'sluice-build-cache-'));
  t.after(() => rmSync(base, { recursive: true }));
  const folder = join(base, 'kept');
  const file = join(base, 'made');
  const made = (inputs, text, into = folder) =>
    cached([file], inputs, () => writeFileSync(file, text), into);
  assert.equal(await made(['a', 'bc'], 'first'), true);
  writeFileSync(file, 'another checkout');
  assert.equal(await made(['a', Buffer.from('bc')], 'second'), false);
  assert.equal(readFileSync(file, 'utf8'), 'first');
  for (const other of [['ab', 'c'], ['a', 'bd'], ['a'], ['a', 'bc', '']])
    assert.equal(await made(other, 'other'), true, `${other}`);
  assert.equal(readFileSync(file, 'utf8'), 'other');
  assert.equal(await made(['a', 'bc'], 'third', null), true, 'without a folder');
  assert.equal(readFileSync(file, 'utf8'), 'third');

  // One more than is kept: what was used least recently goes.
  for (let i = readdirSync(folder).length; i < 700; i++)
    writeFileSync(join(folder, `${i}`), 'more');
  for (const name of readdirSync(folder)) utimesSync(join(folder, name), 1000, 1000);
  assert.equal(await made(['a', 'bc'], 'fourth'), false); // is used now
  const old = readdirSync(folder);
  assert.equal(await made(['new'], 'new'), true);
  assert.equal(old.filter((name) => !existsSync(join(folder, name))).length, 1);
  assert.equal(await made(['a', 'bc'], 'fifth'), false);

  // Where nothing can be written, the build goes on.
  const blocked = join(base, 'blocked');
  writeFileSync(blocked, 'a file');
  t.mock.method(console, 'warn', () => {});
  assert.equal(await made(['a'], 'sixth', blocked), true);
  assert.equal(readFileSync(file, 'utf8'), 'sixth');
  assert.equal(console.warn.mock.callCount(), 1);
});

test('the folder is of ccache, and none without it', () => {
  const program = import.meta.filename ?? new URL(import.meta.url).pathname; // one that exists
  const folder = (env, of = program) => cacheFolder({ env, program: of });
  assert.equal(folder({ CCACHE_DIR: '/a' }), join('/a', 'sluice'));
  assert.equal(folder({ XDG_CACHE_HOME: '/b' }), join('/b', 'ccache', 'sluice'));
  assert.equal(folder({ CCACHE_DIR: '/a', CCACHE_DISABLE: '1' }), null);
  assert.equal(folder({ CCACHE_DIR: '/a' }, '/no/ccache'), null);
});
