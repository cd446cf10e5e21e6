// Readers of the tables that C++ includes (*.def), for bundles and tests, and the esbuild plugin
// that gives a bundle a table as JSON. Each reader throws for a row that it cannot read.
import { readFileSync } from 'node:fs';

const string = '"(?:[^"\\\\]|\\\\.)*"';
const strings = new RegExp(string, 'g');
/** The value of a C string, which may be written in several pieces. */
const valueOf = (text) =>
  text
    .match(strings)
    .map((piece) => JSON.parse(piece))
    .join('');

function rowsOf(text, row, begin) {
  const rows = [...text.matchAll(row)];
  const begun = text.match(begin)?.length ?? 0;
  if (rows.length !== begun || begun === 0)
    throw new Error(`${rows.length} of ${begun} rows of a table can be read`);
  return rows.map((found) => found.slice(1));
}

const optionRow = new RegExp(
  `^\\{(${string}), (${string}),\\s*(${string}),\\s*Type::k(\\w+),\\s*([^,]+),\\s*([^,]+),` +
    `\\s*(${string}),\\s*((?:${string}\\s*)+)\\}`,
  'gm',
);
/** Rows of src/options/options.def. Limits that are no plain numbers are NaN. */
export const optionsOf = (text) =>
  rowsOf(text, optionRow, /Type::k\w+,/g).map(
    ([name, js, cli, type, least, most, otherwise, help]) => ({
      name: valueOf(name),
      js: valueOf(js),
      cli: valueOf(cli).split(',').filter(Boolean),
      type,
      least: Number(least),
      most: Number(most),
      otherwise: valueOf(otherwise),
      help: valueOf(help),
    }),
  );

const spellingRow = new RegExp(`^SLUICE_SPELLING\\(k(\\w+), (${string}), (${string})\\)$`, 'gm');
/** Rows of src/cli/spellings.def. */
export const spellingsOf = (text) =>
  rowsOf(text, spellingRow, /^SLUICE_SPELLING\(/gm).map(([kind, names, what]) => ({
    kind,
    names: valueOf(names).split(' '),
    what: valueOf(what),
  }));

/**
 * Rows of kernels/types.def: SLUICE_…_TYPE(NAME, [name,] id, [values,] bytes). Element types have
 * one value.
 */
export const typesOf = (text) =>
  rowsOf(
    text,
    /^SLUICE_(\w+)_TYPE\((\w+),(?: [a-z]\w*,)? ([\d, ]+)\)$/gm,
    /^SLUICE_\w+_TYPE\(/gm,
  ).map(([kind, name, numbers]) => {
    const [id, ...size] = numbers.split(',').map(Number);
    const [values, bytes] = kind === 'ELEMENT' ? [1, ...size] : size;
    return { name, kind, id, values, bytes };
  });

const readers = { options: optionsOf, spellings: spellingsOf, types: typesOf };
export const def = {
  name: 'def',
  setup(build) {
    build.onLoad({ filter: /\.def$/ }, ({ path }) => {
      const [, name] = /(\w+)\.def$/.exec(path);
      return {
        contents: JSON.stringify(readers[name](readFileSync(path, 'utf8'))),
        loader: 'json',
      };
    });
  },
};
