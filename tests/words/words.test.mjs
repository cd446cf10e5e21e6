// The tree speaks the field's language: no old name or phrase of words.mjs, documents in short
// sentences, and the terms that readers search for are in them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faults, isDocument } from './prose.mjs';
import { files, scanTree } from './scan.mjs';
import { fieldTerms } from './words.mjs';

const tree = files();

test('no old names and phrases', () => {
  assert.ok(tree.length > 500, `only ${tree.length} files`);
  const { errors } = scanTree(tree);
  const shown = errors
    .slice(0, 40)
    .map(({ path, line, word, instead }) => `${path}:${line}: '${word}', write: ${instead}`);
  if (errors.length > shown.length) shown.push(`and ${errors.length - shown.length} more`);
  assert.equal(errors.length, 0, `\n${shown.join('\n')}\n(all: node tests/words/check.mjs)`);
});

test('every exception is needed', () => {
  const { unused } = scanTree(tree);
  assert.deepEqual(
    unused.map(({ path, word }) => `${path} ${word ?? ''}`),
    [],
  );
});

test('documents have short sentences', () => {
  const documents = tree.filter(({ path }) => isDocument(path));
  assert.ok(documents.length >= 10, `only ${documents.length} documents`);
  const messages = documents.flatMap(({ path, text }) => faults(path, text));
  assert.equal(messages.length, 0, `\n${messages.join('\n')}`);
});

test('README and docs have the terms of the field', () => {
  const guides = tree.filter(({ path }) => /^(README\.md|docs\/[^/]+\.md)$/.test(path));
  const text = guides.map((file) => file.text).join('\n');
  const missing = Object.keys(fieldTerms).filter((term) => !fieldTerms[term].test(text));
  assert.deepEqual(missing, []);
});
