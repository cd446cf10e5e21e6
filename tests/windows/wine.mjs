// Wine, which runs programs for Windows.
import { existsSync, mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const prefix = fileURLToPath(new URL('../../build/wine', import.meta.url));

/**
 * Path of the program, which Debian's package wine64 installs outside of PATH. Throws if it is
 * missing.
 */
export function wine() {
  const program = ['/usr/lib/wine/wine64', '/usr/bin/wine64', '/usr/bin/wine'].find(existsSync);
  if (!program) throw new Error('wine is not installed; in Debian it is the package wine64');
  return program;
}

/**
 * Environment of wine: a prefix of the tests' own, which the first program creates, without a
 * display and without warnings.
 */
export function wineEnvironment() {
  mkdirSync(prefix, { recursive: true });
  return {
    WINEPREFIX: prefix,
    WINEDEBUG: '-all',
    WINEDLLOVERRIDES: 'mscoree,mshtml=',
    DISPLAY: '',
    LC_ALL: 'C.UTF-8',
  };
}
