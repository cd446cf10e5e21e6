// Names that the minifier may shorten: members that TypeScript knows to be private. A minifier cannot
// tell them from what others read, so a name is on the list only when every place that has it in the
// sources or in the wasm's glue is its declaration or says `this.` before it.
import { readdirSync, readFileSync } from 'node:fs';
import { inRoot } from './lib.mjs';

const declared = /\bprivate (?:(?:static|readonly|async|get|set) )*(\w+)/g;
const own = /(?:\bthis\.|\bprivate (?:(?:static|readonly|async|get|set) )*)$/;

export function privateNames() {
  const sources = readdirSync(inRoot('web'), { recursive: true }).filter((name) => name.endsWith('.ts')).map((name) => inRoot('web', name));
  const text = [...sources, inRoot('build', 'wasm-glue', 'glue.js')]
    .map((path) => readFileSync(path, 'utf8').replace(/\/\*[^]*?\*\/|(?<!:)\/\/.*/g, '')).join('\n');
  const names = new Set([...text.matchAll(declared)].map(([, name]) => name));
  const before = (at) => text.slice(Math.max(0, at - 40), at);
  return [...names].filter((name) =>
    [...text.matchAll(new RegExp(`\\b${name}\\b`, 'g'))].every(({ index }) => own.test(before(index))));
}
