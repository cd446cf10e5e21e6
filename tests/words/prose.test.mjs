// The measure of sentences itself: what counts as one, and what as a word.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countWords, faults, isDocument, limits, measure, sentencesOf } from './prose.mjs';

const texts = (markdown) => sentencesOf(markdown).map(({ text }) => text);
const counts = (markdown) => sentencesOf(markdown).map(({ words }) => words);
const long = (n) => `${Array.from({ length: n }, (_, i) => `word${i}`).join(' ')}.`;

test('sentences end at marks, items, cells and paragraphs', () => {
  assert.deepEqual(texts('One two. Three four! Five?'), ['One two.', 'Three four!', 'Five?']);
  assert.deepEqual(texts('One\ntwo.\n\nThree'), ['One two.', 'Three']);
  assert.deepEqual(texts('- one\n- two\n  goes on\n1. three'), ['one', 'two goes on', 'three']);
  assert.deepEqual(texts('| a b | c |\n|---|---|\n| d. E | f |'), ['a b', 'c', 'd.', 'E', 'f']);
  assert.deepEqual(texts('He said "stop." Then went.'), ['He said "stop."', 'Then went.']);
});

test('points inside of words and abbreviations end nothing', () => {
  assert.deepEqual(counts('Use llama.cpp 0.1.2, e.g. for GGUF files (v. 3).'), [9]);
  assert.deepEqual(counts('One, two ... and three.'), [4]);
});

test('code, headings, images, HTML and comments are no prose', () => {
  assert.deepEqual(texts('# Title\n\n```\ncode here.\n```\n\n~~~ts\nmore\n~~~\nText.'), ['Text.']);
  assert.deepEqual(texts('![a picture](x.svg)\n<p align="center">Text.</p>'), ['Text.']);
  assert.deepEqual(texts('<!-- a\ncomment -->\nText.'), ['Text.']);
  assert.deepEqual(texts('> Quoted text\n> goes on.'), ['Quoted text goes on.']);
});

test('a link is its text and inline code one word', () => {
  assert.deepEqual(counts('See [the long guide](docs/a_(b).md) now.'), [5]);
  assert.deepEqual(counts('Run `sluice run MODEL -p "a. B"` twice.'), [3]);
  assert.equal(countWords('a — b → c = 4'), 4);
});

test('documents that are too long fail', () => {
  assert.deepEqual(faults('docs/a.md', long(limits.mean)), []);
  assert.equal(faults('docs/a.md', long(limits.mean + 1)).length, 1); // the mean
  assert.equal(faults('docs/a.md', `${long(limits.longest + 1)} Short. Short. Short.`).length, 1);
  assert.equal(faults('docs/a.md', `| ${long(limits.longest + 1)} |\n\nShort.`).length, 1);
  assert.equal(faults('README.md', 'Short.\n\n'.repeat(126)).length, 1);
  assert.deepEqual(faults('docs/a.md', 'Short.\n\n'.repeat(126)), []);
});

test('cells do not lower the mean', () => {
  assert.equal(measure(`| a | b | c |\n\n${long(24)}`).mean, 24);
});

test('documents by path', () => {
  const yes = ['README.md', 'docs/cli.md', 'CHANGELOG.md', 'src/cli/README.md'];
  const no = ['tests/data/x.md', 'docs/page.svg', 'src/readme.txt', 'docs/a/b.md'];
  assert.deepEqual([...yes, ...no].filter(isDocument), yes);
});
