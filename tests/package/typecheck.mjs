// Type-checks code as a strict user of the package would, against the declarations in dist/.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inRoot, root } from '../../web/scripts/lib.mjs';

/** A new folder in build/ whose node_modules has the package. */
export function consumerFolder(name) {
  mkdirSync(inRoot('build'), { recursive: true });
  const folder = mkdtempSync(inRoot('build', `${name}-`));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(root, join(folder, 'node_modules', 'sluice-llm'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  return folder;
}

/** Options of tsc for code that uses packages whose declarations it need not check. */
export const withOtherPackages = ['--skipLibCheck', '--moduleDetection', 'force'];

/**
 * Compiles `sources`, { name: text }, in a folder of consumerFolder(). Returns what tsc prints: ''
 * if it finds nothing.
 */
export function typecheck(folder, sources, options = [], resolution = 'bundler') {
  for (const [name, text] of Object.entries(sources)) writeFileSync(join(folder, name), text);
  const args = [
    '--noEmit',
    '--strict',
    '--skipDefaultLibCheck', // TypeScript's own declarations
    '--target',
    'es2022',
    '--lib',
    'es2022,dom,dom.iterable,dom.asynciterable,esnext.disposable',
    '--module',
    /^node(next|16)/.test(resolution) ? resolution : 'esnext',
    '--moduleResolution',
    resolution,
    ...options,
    ...Object.keys(sources),
  ];
  const { error, status, stdout } = spawnSync(inRoot('node_modules', '.bin', 'tsc'), args, {
    cwd: folder,
    encoding: 'utf8',
  });
  if (error) throw error;
  return status === 0 ? '' : stdout || `tsc ended with ${status}`;
}
