// Reads the faults of the *.json files beside this one, and says which suites try each.
import { readFileSync, readdirSync } from 'node:fs';

const folder = new URL('.', import.meta.url);

/**
 * { name, file, old, new, why, suites? }: replaces `old`, which occurs once in `file`, by `new`.
 */
export const faults = readdirSync(folder)
  .filter((name) => name.endsWith('.json'))
  .sort()
  .flatMap((name) => JSON.parse(readFileSync(new URL(name, folder), 'utf8')));

/** The suites that try a fault, cheapest first. */
export const suitesOf = ({ file, suites }) =>
  suites ?? (file.startsWith('web/') ? ['web', 'package', 'serve'] : ['unit', 'native', 'web']);

/** How often `part` occurs in `text`. */
export const occurrences = (text, part) => text.split(part).length - 1;
