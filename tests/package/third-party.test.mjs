// dist/THIRD_PARTY.md names every bundled package with its licence. The source maps list these
// packages independently of the build's own record. Needs dist/ (npm run build).
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { recording, thirdParty } from '../../web/scripts/third-party.mjs';

const metafile = (output, inputs) => ({
  metafile: {
    outputs: {
      [output]: {
        inputs: Object.fromEntries(
          Object.entries(inputs).map(([path, bytesInOutput]) => [path, { bytesInOutput }]),
        ),
      },
    },
  },
});

test("the record has every package with bytes in a bundle, and the bundle's file", async () => {
  const results = [
    metafile('dist/qsf.js', { 'web/io/qsf.ts': 9, 'node_modules/fzstd/esm/index.mjs': 5 }),
    metafile('dist/worker.js', {
      'node_modules/@huggingface/tokenizers/dist/index.js': 1,
      'node_modules/openai/index.mjs': 0,
    }),
  ];
  const asked = [];
  const esbuild = recording({
    build: async (options) => {
      asked.push(options);
      return results.shift();
    },
  });
  await esbuild.build({ outdir: 'dist' });
  await esbuild.build({ write: false });
  assert.deepEqual(asked, [
    { outdir: 'dist', metafile: true },
    { write: false, metafile: true },
  ]);
  assert.deepEqual(
    [...esbuild.bundled].map(([name, files]) => [name, ...files]),
    [
      ['fzstd', 'qsf.js'],
      ['@huggingface/tokenizers', 'inline.js'],
    ],
  );
});

test('a bundled package without a licence file is an error', () => {
  assert.throws(() => thirdParty(new Map([['no-such-package', ['index.js']]])), /no-such-package/);
});

test('every package in the bundles is listed, with the text of its licence', () => {
  const listed = readFileSync(inRoot('dist', 'THIRD_PARTY.md'), 'utf8');
  const found = new Map();
  for (const file of readdirSync(inRoot('dist')).filter((name) => name.endsWith('.js.map'))) {
    const { sources } = JSON.parse(readFileSync(inRoot('dist', file), 'utf8'));
    for (const source of sources) {
      const [, name] = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(source) ?? [];
      if (name) found.set(name, [...(found.get(name) ?? []), file.replace('.map', '')]);
    }
  }
  assert.ok(found.size > 0);
  for (const [name, files] of found) {
    const [row] = listed.split('\n').filter((line) => line.startsWith(`| ${name} | `));
    assert.ok(row, name);
    for (const file of files) assert.ok(row.split(/[ ,|]+/).includes(file), `${name} in ${file}`);
    const [licence] = readdirSync(inRoot('node_modules', name)).filter((n) => /^licen/i.test(n));
    const text = readFileSync(inRoot('node_modules', name, licence), 'utf8');
    assert.ok(listed.includes(text.trim()), name);
  }
});

test('every WebAssembly file has its components listed', () => {
  const listed = readFileSync(inRoot('dist', 'THIRD_PARTY.md'), 'utf8');
  for (const file of readdirSync(inRoot('dist')).filter((name) => name.endsWith('.wasm')))
    assert.ok(listed.includes(file.replace(/^engine\..*\./, 'engine.*.')), file);
});
