// The names that llama.cpp and ollama use, from the table of the native program, and the nearest
// name to a wrong one.

import table from '../../src/cli/spellings.def';
import { UsageError } from './output.js';

type Kind = 'Command' | 'OtherCommand' | 'Renamed' | 'Other' | 'Fulfilled';

const spellings = new Map<string, string>();
for (const { kind, names, what } of table)
  for (const name of names) spellings.set(`${kind} ${name}`, what);

const kNative = /\bsluice(?= (?:run|chat|serve|--))/g;
const kMaxDistance = 2;

/** Our name, or what to use. */
export const spelling = (kind: Kind, name: string): string | undefined =>
  spellings.get(`${kind} ${name}`)?.replaceAll(kNative, 'sluice-llm');

/** Throws for a command that this program does not have. */
export function otherCommand(name: string): void {
  const answer = spelling('OtherCommand', name);
  if (answer) throw new UsageError(`sluice-llm has no ${name}: ${answer}`);
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}

/** ": did you mean NAME", or "". */
export function didYouMean(given: string, names: readonly string[]): string {
  let best = '';
  let least = kMaxDistance + 1;
  if (given.length < 2 || given.length > 32) return best;
  for (const name of names) {
    const far = name.startsWith(given) ? 0 : distance(given, name);
    if (far >= least || far + 1 >= given.length) continue;
    least = far;
    best = `: did you mean ${name}`;
  }
  return best;
}
