// The table of options (src/options/options.def) against what is written by hand: the package's
// types, sluice.h, the messages to the worker, limits elsewhere, and the tables of docs/cli.md.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { optionsOf } from '../../web/scripts/def.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';

const read = (path) => readFileSync(inRoot(path), 'utf8');
const table = optionsOf(read('src/options/options.def'));

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
  assert.ok(table.length > 50);
  assert.throws(() => optionsOf('{"a", "", Type::kText, 0, 0, "", ""},'), /0 of 1 rows/);
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
  const names = new Set(table.flatMap(({ cli }) => cli).filter((name) => name.startsWith('--')));
  const files = readdirSync(inRoot('src/cli')).filter((file) => file.endsWith('.cpp'));
  for (const file of files) {
    const literal = read(`src/cli/${file}`).matchAll(/add_(?:option|flag)\(\s*"([^"]+)"/g);
    const twice = [...literal].flatMap(([, all]) => all.split(',')).filter((n) => names.has(n));
    assert.deepEqual(twice, [], file);
  }
});

const optionOf = (js) => table.find((option) => option.js === js);

test('both command lines have the same limits of options that only they have', () => {
  const own = /const kOwn[^]*?\n};/.exec(read('web/cli/common.ts'))[0];
  const native = ['run', 'serve'].map((file) => read(`src/cli/${file}.cpp`)).join('');
  const names = new Set(table.flatMap(({ cli }) => cli));
  const limits = [...own.matchAll(/^ {2}'?([\w-]+)'?: \[(-?\d+), (.+)\],$/gm)];
  assert.equal(limits.length, 5);
  for (const [, name, least, most] of limits) {
    assert.ok(!names.has(`--${name}`), `--${name} is in the table`);
    const option = new RegExp(`--${name}"[^]*?whole_number\\((-?\\d+), ([^;]+?)\\)\\)?;`).exec(
      native,
    );
    const maximum = option[2].includes('numeric_limits<int32_t>') ? '2 ** 31 - 1' : option[2];
    assert.deepEqual([least, most], [option[1], maximum], name);
  }
  const unnamed = ['src/cli/common.cpp', 'web/cli/common.ts'].map(
    (file) => /kUnnamed = (\w+);/.exec(read(file))[1],
  );
  assert.equal(unnamed[0], unnamed[1]);
});

test('benchmarks read every option of their README and of the usage in their heads', () => {
  const commands = JSON.parse(read('package.json')).scripts;
  const rows = [...read('tests/bench/README.md').matchAll(/^\| `npm run (\S+?)` .* \| (.*) \|$/gm)];
  assert.ok(rows.length > 12, `${rows.length} rows`);
  for (const [, script, said] of rows) {
    const source = read(commands[script].replace('node ', ''));
    const body = /\boptions: \{([^]*?)\n {2}\}/.exec(source)[1];
    const own = [...body.matchAll(/^ {4}'?([\w-]+)'?: \{(?:[^}]*?short: '(\w)')?/gm)].flatMap(
      ([, name, short]) => [`--${name}`, ...(short ? [`-${short}`] : [])],
    );
    const listed = [...said.matchAll(/--?[a-z][\w-]*/g), ...usageOf(source)].map(([name]) => name);
    assert.ok(listed.length > 0, script);
    assert.deepEqual(
      [...new Set(listed)].filter((name) => !own.includes(name)),
      [],
      `${script}: described, and not read`,
    );
  }
});

/** The options in brackets in a script's head. */
const usageOf = (source) => [
  .../^(?:\/\/.*\n)+/.exec(source)[0].matchAll(/(?<=[[|(])--?[a-z][\w-]*/g),
];

test('the benchmark in Python reads the options of its README and of its head, and no others', () => {
  const readme = read('tests/bench/README.md');
  const [, path, said] = /^\| `python3 (tests\/bench\/\S+)` .* \| (.*) \|$/m.exec(readme);
  const source = read(path);
  const names = (text) => [...text.matchAll(/--[a-z][\w-]*/g)].map(([name]) => name);
  const own = [...source.matchAll(/add_argument\("(--[\w-]+)"/g)].map(([, name]) => name).sort();
  assert.ok(own.length > 5, `${own.length} options`);
  assert.deepEqual(names(said).sort(), own);
  const usage = /^ {4}python3 [^]*?\n\n/m.exec(source)[0];
  assert.deepEqual(names(usage).sort(), own);
});

test("the package's limits are the table's", () => {
  const checks = read('web/api/options.ts');
  assert.equal(+/kMaxThreads = (\d+);/.exec(checks)[1], optionOf('threads').most);
  const parallel = /parallel >= (\d+) && parallel <= (\d+)/.exec(checks).slice(1).map(Number);
  assert.deepEqual(parallel, [optionOf('parallel').least, optionOf('parallel').most]);
  const numbers = /kNumbers = \[([^]*?)\]/.exec(read('web/api/sampling.ts'))[1];
  for (const [, name] of numbers.matchAll(/'(\w+)'/g))
    assert.match(optionOf(name).type, /^(Whole|Number)$/, name);
});

test('the binding reads every option that the worker gets, and the table has it', () => {
  const spec = members(
    'web/protocol/messages.ts',
    'export interface EngineSpec {',
    /^ {2}(\w+)\??: /gm,
  );
  const names = spec.map(([, name]) => name);
  assert.ok(names.length >= 12, `${names.length} members`);
  const reads = [
    ...read('src/bindings/load.cpp').matchAll(/(?:number_or|is_true|text_or_none)\(\w+, "(\w+)"/g),
  ].map(([, name]) => name);
  assert.deepEqual(
    names.filter((name) => !reads.includes(name)),
    [],
  );
  const known = new Set(table.map(({ js }) => js.replace(/^\w+\./, '')));
  const chosen = ['contextFrom']; // by an earlier plan
  assert.deepEqual(
    names.filter((name) => !known.has(name) && !chosen.includes(name)),
    [],
  );
  // What the worker adds.
  const added = ['held', 'minBudget', 'minThreads', 'directReads', 'storeBandwidth', 'kvOnGpu'];
  assert.deepEqual(
    [...new Set(reads)].filter((name) => !known.has(name) && ![...chosen, ...added].includes(name)),
    [],
  );
});
