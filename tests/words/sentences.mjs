// Prints the mean and the longest sentence of each document.
//   node tests/words/sentences.mjs [--all] [FILE…]      --all: every sentence that is too long
import { readFileSync } from 'node:fs';
import { isDocument, limits, measure } from './prose.mjs';
import { files } from './scan.mjs';

const named = process.argv.slice(2).filter((arg) => !arg.startsWith('--'));
const documents = named.length
  ? named.map((path) => ({ path, text: readFileSync(path, 'utf8') }))
  : files([]).filter(({ path }) => isDocument(path));

for (const { path, text } of documents) {
  const { mean, longest, sentences, all } = measure(text);
  console.log(`${path}: ${sentences} sentences, mean ${mean.toFixed(1)}, longest ${longest.words}`);
  const shown = process.argv.includes('--all')
    ? all.filter(({ words }) => words > limits.longest)
    : [longest];
  for (const sentence of shown) {
    if (sentence.words) console.log(`  ${sentence.line}: (${sentence.words}) ${sentence.text}`);
  }
}
