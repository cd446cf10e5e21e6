// docs/errors.md is generated from the comments beside the codes. Every code that C++ or TypeScript
// uses has such a comment.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import {
  documented,
  errorCodes,
  errorsPage,
  numbers,
  serverCodes,
  warningCodes,
} from '../../web/scripts/errors.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';

const read = (path) => readFileSync(inRoot(path), 'utf8');
const sources = (folder, name) =>
  readdirSync(inRoot(folder), { recursive: true })
    .filter((file) => name.test(file))
    .map((file) => `${folder}/${file}`);
const names = (entries) => entries.map(({ code }) => code);

test('docs/errors.md is up to date (node web/scripts/errors.mjs --write)', () => {
  assert.equal(read('docs/errors.md'), errorsPage());
});

test('sluice.h has the codes of the engine in the same order', () => {
  const codes = [...read('src/base/status.cpp').matchAll(/return "([A-Z_]+)";/g)].map(([, c]) => c);
  const c = numbers(read('src/api/sluice.h'));
  assert.deepEqual(
    Object.keys(c).sort(),
    [...new Set(codes)].filter((code) => code !== 'OK').sort(),
  );
  assert.deepEqual(
    Object.values(c),
    Object.keys(c).map((_, i) => i + 1),
  );
});

/** The codes that `patterns` match in files, as "code in file". */
function used(files, patterns) {
  return files.flatMap((file) => {
    const text = read(file);
    return patterns.flatMap((pattern) =>
      [...text.matchAll(pattern)].map(([, code]) => ({ code, file })),
    );
  });
}

test("every code of the package's errors, warnings and responses is documented", () => {
  const found = used(sources('web', /(?<!\.d)\.ts$/), [
    /\b(?:SluiceError|warn)\(\s*'([A-Z_]+)'/gi,
    /\bcode: '([A-Z_]+)'/g,
    /\bHttpError\(\s*\d+,\s*'(\w+)'/g,
  ]);
  assert.ok(found.length > 60, `${found.length} codes`);
  const known = names([...errorCodes(), ...warningCodes(), ...serverCodes()]);
  assert.deepEqual(
    found.filter(({ code }) => !known.includes(code)),
    [],
  );
  for (const { code } of warningCodes())
    assert.ok(
      found.some((each) => each.code === code),
      `no warning has the code ${code}`,
    );
});

test("every code of the native server's responses is documented", () => {
  const found = used(
    ['serve', 'openai', 'endpoints'].flatMap((name) => sources(`src/${name}`, /\.cpp$/)),
    [
      /\.",\s*"\w*",\s*"(\w+)"\}/g, // {status, "Message.", param, code}
      /\.code = "(\w+)"/g,
    ],
  );
  assert.ok(found.length > 10, `${found.length} codes`);
  const known = names([...errorCodes(), ...serverCodes()]);
  assert.deepEqual(
    found.filter(({ code }) => !known.includes(code)),
    [],
  );
  const web = names(used(sources('web/serve', /\.ts$/), [/\bHttpError\(\s*\d+,\s*'(\w+)'/g]));
  for (const code of names(serverCodes()))
    assert.ok([...names(found), ...web].includes(code), `no server returns the code ${code}`);
});

test('a code without a meaning or a fix is an error', () => {
  const union = (comment) => `export type Some =\n  // Group\n${comment}  | 'A';\n`;
  assert.deepEqual(documented(union('  /** It is bad. Fix: mend it. */\n'), 'Some'), [
    { code: 'A', meaning: 'It is bad.', fix: 'Mend it.', group: 'Group' },
  ]);
  for (const comment of ['', '  /** It is bad. */\n', '  /** Fix: mend it. */\n'])
    assert.throws(() => documented(union(comment), 'Some'), /^Error: A needs a comment/);
  assert.throws(() => documented(union(''), 'Other'), /no union type Other/);
});
