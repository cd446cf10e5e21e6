// Lists old names and phrases in the tree, and what to write instead.
//   node tests/words/check.mjs [--summary] [PATH…]      --summary: only how often each occurs, most first
import { scanTree } from './scan.mjs';

const summary = process.argv.includes('--summary');
const only = process.argv.slice(2).filter((arg) => !arg.startsWith('--'));
const { errors, unused } = scanTree();
const chosen = only.length
  ? errors.filter(({ path }) => only.some((prefix) => path.startsWith(prefix)))
  : errors;

if (summary) {
  const counts = new Map();
  for (const { kind, word, instead } of chosen) {
    const key = `${kind.padEnd(10)} ${word}`;
    const entry = counts.get(key) ?? { n: 0, instead };
    entry.n++;
    counts.set(key, entry);
  }
  for (const [key, { n, instead }] of [...counts].sort((a, b) => b[1].n - a[1].n))
    console.log(`${String(n).padStart(5)}  ${key} → ${instead}`);
} else {
  for (const { path, line, word, instead } of chosen)
    console.log(`${path}:${line}: '${word}', write: ${instead}`);
}
for (const { path, word, reason } of only.length ? [] : unused)
  console.log(`exception that nothing needs: ${path} ${word ?? ''} (${reason})`);
console.log(`${chosen.length} findings`);
process.exitCode = chosen.length || (!only.length && unused.length) ? 1 : 0;
