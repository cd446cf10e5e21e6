// Where the model cache is, in Node. src/io/default_cache_native.cpp has the same rules for the
// native program; tests/data/model-cache.json has environments and directories for both.

import * as os from 'node:os';

import { byteSize } from '../protocol/byte-size.js';
import { invalid } from '../protocol/errors.js';

/**
 * `given` (an option), else SLUICE_CACHE, else the system's directory for caches. Undefined: no
 * cache; 'none' asks for that.
 */
export function cacheDirectory(
  given?: string,
  env: Record<string, string | undefined> = { HOME: os.homedir(), ...process.env },
  system: string = process.platform,
): string | undefined {
  const chosen = given || env['SLUICE_CACHE'];
  if (chosen) return chosen === 'none' ? undefined : chosen;
  const below = (root: string | undefined, path: string): string | undefined =>
    root ? root + path : undefined;
  if (system === 'win32') return below(env['LOCALAPPDATA'], '\\sluice\\cache');
  if (system === 'darwin') return below(env['HOME'], '/Library/Caches/sluice');
  // XDG: a path that is not absolute is ignored.
  if (env['XDG_CACHE_HOME']?.startsWith('/')) return `${env['XDG_CACHE_HOME']}/sluice`;
  return below(env['HOME'], '/.cache/sluice');
}

/**
 * Most bytes of the cache, from a text such as "50G" (powers of 1024). Infinity, as for "0" and "":
 * no limit. Throws INVALID_ARGUMENT for what is no size.
 */
export function cacheSize(text = ''): number {
  const bytes = text && byteSize(text);
  if (Number.isNaN(bytes))
    invalid(`SLUICE_CACHE_SIZE: "${text.slice(0, 32)}" is not a size such as 64M or 1.5G`);
  return bytes || Infinity;
}
