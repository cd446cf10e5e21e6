// Keeps files that take long to make in a folder of ccache's, where every checkout finds them, under a
// hash of what they are made of. Off where ccache is not installed or CCACHE_DISABLE is set.
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

const kFiles = 700; // of nine versions: engines, linked and optimized, and scripts; 260 MB

/** The folder, or null. */
export function cacheFolder({ env = process.env, program = '/usr/bin/ccache' } = {}) {
  if (env.CCACHE_DISABLE !== undefined || !existsSync(program)) return null;
  const caches = env.XDG_CACHE_HOME ?? join(homedir(), '.cache');
  return join(env.CCACHE_DIR ?? join(caches, 'ccache'), 'sluice');
}

function hashOf(inputs) {
  const hash = createHash('sha256');
  for (const input of inputs) hash.update(`${input.length} `).update(input);
  return hash.digest('hex');
}

/** Removes the files that were used least recently. */
function evict(folder) {
  const files = readdirSync(folder).map((name) => join(folder, name));
  const usedAt = (file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const times = new Map(files.map((file) => [file, usedAt(file)]));
  files.sort((a, b) => times.get(b) - times.get(a));
  for (const file of files.slice(kFiles)) rmSync(file, { force: true });
}

function restore(kept, file) {
  try {
    copyFileSync(kept, `${file}.new`);
    renameSync(`${file}.new`, file);
    utimesSync(kept, new Date(), new Date());
    return true;
  } catch {
    return false; // it was never there, or another process has removed it
  }
}

function keep(file, kept) {
  const written = `${kept}.${process.pid}`; // others never see a part of it
  try {
    mkdirSync(dirname(kept), { recursive: true });
    copyFileSync(file, written);
    renameSync(written, kept);
    evict(dirname(kept));
  } catch (e) {
    console.warn(`${kept} is not kept: ${e.message}`); // a full disk does not fail the build
    if (existsSync(written)) rmSync(written);
  }
}

/**
 * Copies to `files` what was made of the same `inputs` before, strings or bytes, or calls `make`, which
 * writes them. Resolves to whether they were made.
 */
export async function cached(files, inputs, make, folder = cacheFolder()) {
  const hash = folder && hashOf(inputs);
  const kept = files.map((file, i) => [file, folder && join(folder, `${hash}-${i}`)]);
  if (folder && kept.every(([file, from]) => restore(from, file))) return false;
  await make();
  if (folder) kept.forEach(([file, to]) => keep(file, to));
  return true;
}
