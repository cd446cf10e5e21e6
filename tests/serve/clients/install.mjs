// Installs the clients of package.json into build/clients, on demand and from npm's cache where it
// has them. Each lock file has a directory of its own, so a change of versions is noticed.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

import { inRoot } from '../../../web/scripts/lib.mjs';

const all = inRoot('build', 'clients');
const files = ['package.json', 'package-lock.json'];
const source = (name) => inRoot('tests', 'serve', 'clients', name);

function hash() {
  const lock = createHash('sha256');
  for (const file of files) lock.update(readFileSync(source(file)));
  return lock.digest('hex').slice(0, 12);
}

/** The directory of the installed clients. Two processes may call it at once. */
export function installed() {
  const name = hash();
  const folder = join(all, name);
  if (existsSync(folder)) return folder;
  mkdirSync(all, { recursive: true });
  for (const old of readdirSync(all))
    if (!old.startsWith(name)) rmSync(join(all, old), { recursive: true, force: true });
  const own = mkdtempSync(join(all, `${name}-`));
  for (const file of files) copyFileSync(source(file), join(own, file));
  // An import from here finds these packages.
  writeFileSync(join(own, 'load.mjs'), 'export const load = (name) => import(name);\n');
  const args = ['ci', '--prefer-offline', '--ignore-scripts', '--loglevel=error'];
  const { error, status, stderr } = spawnSync('npm', args, {
    cwd: own,
    encoding: 'utf8',
    timeout: 600_000,
  });
  if (status !== 0) {
    rmSync(own, { recursive: true, force: true });
    throw new Error(`npm cannot install the clients of ${source('')}: ${error ?? stderr}`);
  }
  try {
    renameSync(own, folder);
  } catch (e) {
    if (!existsSync(folder)) throw e;
    rmSync(own, { recursive: true, force: true }); // another process was faster
  }
  return folder;
}

/** Imports a package of these clients. */
export async function load(name) {
  const loader = await import(join(installed(), 'load.mjs'));
  return loader.load(name);
}

/** 'ai 7.0.0, openai 7.0.0' for 'ai, openai'. */
export function versions(names) {
  const { dependencies } = JSON.parse(readFileSync(source('package.json'), 'utf8'));
  return names
    .split(', ')
    .map((name) => `${name} ${dependencies[name]}`)
    .join(', ');
}
