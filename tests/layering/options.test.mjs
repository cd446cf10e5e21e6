// The table of options (src/options/options.h) against what is written by hand: the package's
// types, sluice.h, and the tables of docs/cli.md.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';

const read = (path) => readFileSync(inRoot(path), 'utf8');
const string = '"(?:[^"\\\\]|\\\\.)*"';
const row = new RegExp(
  `\\{(${string}), (${string}),\\s*(${string}),\\s*Type::k(\\w+),\\s*([^,]+),\\s*([^,]+),` +
    `\\s*(${string}),\\s*((?:${string}\\s*)+)\\}`,
  'g',
);
const plain = (text) => text.replace(/"\s*"/g, '').slice(1, -1);
const source = read('src/options/options.h');
const table = [...source.matchAll(row)].map(([, name, js, cli, type, , , otherwise]) => ({
  name: plain(name),
  js: plain(js),
  cli: plain(cli).split(',').filter(Boolean),
  type,
  otherwise: plain(otherwise),
}));

/** Members of an interface or structure, with the comment before each. */
function members(path, start, pattern) {
  const text = path.endsWith('.h') ? read(path).replace(/\/\*[^]*?\*\//g, '') : read(path);
  const from = text.indexOf(start);
  assert.ok(from >= 0, `${path} has no ${start}`);
  return [...text.slice(from, text.indexOf('\n}', from)).matchAll(pattern)];
}
const fields = (path, name) =>
  members(path, `interface ${name} `, /\/\*\*([^]*?)\*\/\s*(\w+)\?: /g).map(([, doc, field]) => ({
    field,
    doc: doc.replace(/\s*\n\s*\*\s*/g, ' '),
  }));

test('all rows are read', () => {
  assert.equal(table.length, source.match(/Type::k\w+,/g).length);
  assert.ok(table.length > 50);
});

const declared = [
  ...fields('web/protocol/options.ts', 'InspectOptions'),
  ...fields('web/protocol/options.ts', 'ApproximateOptions').map(({ field, doc }) => ({
    field: `approximate.${field}`,
    doc,
  })),
  ...fields('web/protocol/options.ts', 'GenerateOptions'),
  ...fields('web/protocol/options.ts', 'TokenizeOptions'),
  ...fields('web/protocol/types.ts', 'SamplingOptions'),
];

test("every option of the package's types is in the table, and none else", () => {
  const known = new Set(table.map(({ js }) => js).filter(Boolean));
  const nested = ['approximate', 'tuning']; // members of their own; internal
  const found = declared.map(({ field }) => field).filter((name) => !nested.includes(name));
  assert.deepEqual([...known].sort(), [...new Set(found)].sort());
});

test('every field of the C options is in the table, and none else', () => {
  const known = new Set(table.map(({ name }) => name).filter(Boolean));
  const found = ['load_options', 'sampling', 'generate_options']
    .flatMap((name) => members('src/api/sluice.h', `typedef struct sluice_${name} {`, /(\w+);/g))
    .map(([, name]) => name)
    .filter((name) => !/^(size|n_(?!ctx)\w+|\w+_user)$/.test(name));
  assert.deepEqual([...known].sort(), [...new Set(found)].sort());
});

test("the package's comments have the same defaults", () => {
  let compared = 0;
  const differ = /^(memoryBudget|seed|cacheDir|draft)$/; // random seeds, other platforms
  for (const { js, otherwise } of table) {
    const word = /^(-?[\d.]+|[a-z]\w*)(?=$|[:,])/.exec(otherwise)?.[1];
    const doc = declared.find(({ field }) => field === js)?.doc ?? '';
    const said = /Default:? '?([\w.-]*\w)/.exec(doc)?.[1];
    if (!word || word === 'chosen' || !said || differ.test(js)) continue;
    if (otherwise.startsWith('0: chosen')) continue;
    assert.equal(said, word, `the default of ${js}`);
    compared++;
  }
  assert.ok(compared >= 9, `${compared} compared`);
});

test('docs/cli.md has the same defaults', () => {
  const rows = [...read('docs/cli.md').matchAll(/^\| (`-.*?) \| ?(.*?) \| .* \|$/gm)].map(
    ([, names, fallback]) => ({
      names: [...names.matchAll(/-[\w-]+/g)].map(([name]) => name),
      fallback: fallback.replaceAll('`', ''),
    }),
  );
  let compared = 0;
  for (const { cli, otherwise } of table) {
    for (const name of cli) {
      const said = rows.find(({ names }) => names.includes(name));
      assert.ok(said, `docs/cli.md has no row of ${name}`);
      const theirs = said.fallback.replace(/ \(.*/, '');
      const ours = [otherwise, ...otherwise.split(': ')]; // "0: off" is 0, and off
      if (otherwise && theirs) assert.ok(ours.includes(theirs), `${name}: ${theirs}, ${ours}`);
      compared++;
    }
  }
  assert.ok(compared > 25, `${compared} compared`);
});

test('the command line writes no option of the table by hand', () => {
  const names = new Set(table.flatMap(({ cli }) => cli));
  for (const file of ['common', 'generation_options']) {
    const literal = read(`src/cli/${file}.cpp`).matchAll(/add_(?:option|flag)\(\s*"([^"]+)"/g);
    const twice = [...literal].flatMap(([, all]) => all.split(',')).filter((n) => names.has(n));
    assert.deepEqual(twice, [], file);
  }
});
