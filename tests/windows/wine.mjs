// Wine: programs for Windows on this machine.
import { existsSync, mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const prefix = fileURLToPath(new URL('../../build/wine', import.meta.url));

/**
 * Debian's package wine64 has the program in no directory of PATH. Throws where it is not
 * installed.
 */
export function wine() {
  const program = ['/usr/lib/wine/wine64', '/usr/bin/wine64', '/usr/bin/wine'].find(existsSync);
  if (!program) throw new Error('wine is not installed; in Debian it is the package wine64');
  return program;
}

/**
 * A Windows of the tests' own, which the first program makes, without a display and silent about
 * what it lacks.
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
