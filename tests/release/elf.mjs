// What a program or library for Linux needs from the system, as readelf prints it.
import { execFileSync } from 'node:child_process';

const readelf = (option, file) =>
  execFileSync('readelf', [option, '--wide', file], { encoding: 'utf8' });

/** Names of the shared libraries. */
export const neededBy = (file) =>
  [...readelf('--dynamic', file).matchAll(/\(NEEDED\).*\[(.*)\]/g)].map(([, name]) => name);

/** The latest version of glibc whose symbols it uses, as '2.34'. */
export function glibcOf(file) {
  const versions = readelf('--version-info', file).matchAll(/Name: GLIBC_2\.(\d+)/g);
  return `2.${Math.max(...[...versions].map(([, minor]) => Number(minor)))}`;
}
