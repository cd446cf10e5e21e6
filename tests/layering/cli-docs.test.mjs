// docs/cli.md lists every command, option, JSON key, endpoint and metric that the sources declare,
// and no option that they lack.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { optionsOf, spellingsOf } from '../../web/scripts/def.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';

const read = (path) => readFileSync(inRoot(path), 'utf8');
const page = read('docs/cli.md');
const spans = [...page.matchAll(/`([^`\n]+)`/g)].map(([, span]) => span);
const words = new Set(spans.flatMap((span) => span.split(/[\s,]+/)));
const sources = readdirSync(inRoot('src/cli'))
  .filter((name) => /(?<!_stub)\.cpp$/.test(name))
  .map((name) => read(`src/cli/${name}`));
const all = (texts, pattern) =>
  texts.flatMap((text) => [...text.matchAll(pattern)].map((m) => m[1] ?? m[2]));

/** Options of the native program and of `npx sluice-llm`. */
const native = [
  ...all(sources, /add_(?:option|flag)\(\s*"([^"]+)"/g),
  ...optionsOf(read('src/options/options.def')).flatMap(({ cli }) => cli),
]
  .flatMap((names) => names.split(','))
  .filter((name) => name.startsWith('-'));
const spellings = [
  ...all([read('src/cli/spellings.cpp')], /name == "(-[\w-]+)"/g),
  ...spellingsOf(read('src/cli/spellings.def')).flatMap(({ names }) => names),
];
const node = all(
  [read('web/cli.ts')],
  /[{, ]'?([a-z][a-z-]+)'?: (?:(?:text|flag)\b|\{ \.\.\.(?:text|flag)\b)/g,
).map((name) => `--${name}`);

test('every command has a section', () => {
  const commands = all(
    sources,
    /add_subcommand\(\s*"(\w+)"|add(?:_cache)?_command\(\s*app, \w+,\s*"(\w+)"/g,
  );
  assert.ok(commands.length > 14, `${commands.length} commands`);
  for (const name of commands) assert.match(page, new RegExp(`^## ${name}$`, 'm'), name);
});

test('every option is described', () => {
  assert.ok(native.length > 80 && node.length > 20, `${native.length}, ${node.length} options`);
  assert.deepEqual(
    [...new Set([...native, ...node])].filter((name) => name !== '--help' && !words.has(name)),
    [],
  );
});

test('every described option exists', () => {
  const others = ['--help', '--install', '--prefix', '--save-all-logits', '--no-repack'];
  const known = new Set([...native, ...node, ...spellings, ...others]);
  const used = [...words].filter((word) => /^--[a-z]/.test(word)).map((word) => word.split('=')[0]);
  assert.ok(used.length > 80, `${used.length} options`);
  assert.deepEqual(
    used.filter((name) => !known.has(name)),
    [],
  );
});

test('every JSON key of run, info, bench and cache is described', () => {
  const printed = ['run', 'bench', 'bench_speculative', 'cache'].map((n) =>
    read(`src/cli/${n}.cpp`),
  );
  const keys = [
    ...all(printed, /\{"([a-z]\w+)",/g),
    ...all([read('src/session/report.cpp')], /\b(?:number\(|sink\(nullptr, )"(\w+)", (?!plan)/g),
  ];
  assert.ok(keys.length > 70, `${keys.length} keys`);
  assert.deepEqual(
    [...new Set(keys)].filter((key) => !words.has(key)),
    [],
  );
});

test('every endpoint and metric of both servers is described', () => {
  const paths = all(
    [
      ...['serve/service.cpp', 'endpoints/endpoints.cpp', 'bindings/chat/exchange.cpp'].map(
        (name) => read(`src/${name}`),
      ),
      read('web/serve/routes.ts'),
    ],
    /[{ ]["'](\/\w[\w/]*)["'][:,]/g,
  );
  const metrics = [
    ...all([read('src/serve/metrics.cpp')], /"(sluice_\w+)"/g),
    ...all([read('web/serve/metrics.ts'), read('web/serve/server.ts')], /^ +(sluice_\w+):/gm),
  ];
  assert.ok(paths.length >= 16 && metrics.length > 30, `${paths.length}, ${metrics.length}`);
  const plain = spans.map((span) => span.replace(/\{.*/, ''));
  const named = new Set(plain.flatMap((span) => span.split(/[\s,]+/)));
  assert.deepEqual(
    [...new Set([...paths, ...metrics])].filter((name) => !named.has(name)),
    [],
  );
});
