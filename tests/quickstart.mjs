// docs/quickstart.md as data, so that tests run the commands that it shows.
import { readFileSync } from 'node:fs';
import { inRoot } from '../web/scripts/lib.mjs';

/** Code blocks of the section with this title, in order: { language, code }. */
export function section(title) {
  const text = readFileSync(inRoot('docs', 'quickstart.md'), 'utf8');
  const found = text.split(/^## /m).find((part) => part.startsWith(`${title}\n`));
  if (!found) throw new Error(`docs/quickstart.md has no section '${title}'`);
  const blocks = [...found.matchAll(/^```(\w+)\n(.*?)^```$/gms)];
  return blocks.map(([, language, code]) => ({ language, code }));
}

/** The first block that contains `words`, and that nothing else took. */
export function take(blocks, words) {
  const at = blocks.findIndex(({ code }) => code.includes(words));
  if (at < 0) throw new Error(`docs/quickstart.md has no block with '${words}'`);
  return blocks.splice(at, 1)[0].code;
}
