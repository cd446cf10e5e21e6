// The checker itself: that it finds what it should, on the right line, and nothing else.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { codeOnly, judge, mentions, scan, segmentsOf, unwrapped } from './scan.mjs';
import { allowed, directories, excluded, files, identifiers, options, phrases } from './words.mjs';

const words = (path, text, mentioned) => scan({ path, text }, mentioned).map(({ word }) => word);
const lines = (path, text) => scan({ path, text }).map(({ line }) => line);

test('identifiers are found whole', () => {
  assert.deepEqual(words('web/a.ts', 'load({ kvKeep: 4 })'), ['kvKeep']);
  assert.deepEqual(words('web/a.ts', 'load({ kvKeeper: 4, mykvKeep: 1 })'), []);
  assert.deepEqual(words('a.json', '{"code": "NOT_ON_CARD"}'), ['NOT_ON_CARD']);
  assert.deepEqual(words('src/a.h', '#include "session/weight_feed.h"'), [
    'weight_feed',
    'session/weight_feed.h',
  ]);
});

test('every identifier and option of the list is found', () => {
  for (const name of Object.keys(identifiers))
    assert.ok(words('a.cpp', `x(${name});`).includes(name), name);
  for (const name of Object.keys(options)) {
    assert.deepEqual(words('a.md', `sluice run ${name} 4`), [name]);
    assert.deepEqual(words('a.md', `sluice run ${name}-more 4`), []);
  }
});

test('words inside identifiers', () => {
  assert.deepEqual(segmentsOf('guess_by_HTTPName2'), ['guess', 'by', 'HTTP', 'Name', '2']);
  assert.deepEqual(
    words('a.ts', 'findCard(cardOf, Card, guesses_, kMostBytes, kLeastX, TimelineId)'),
    ['findCard', 'cardOf', 'Card', 'guesses_', 'kMostBytes', 'kLeastX', 'TimelineId'],
  );
  assert.deepEqual(words('a.ts', 'cardinality(nodiscard, Cardinality, kMostly, discard_all)'), []);
});

test('phrases in any case, across line breaks and comment marks', () => {
  assert.deepEqual(words('a.md', 'Held against the reference.'), ['held against']);
  assert.deepEqual(words('a.md', 'equal to the\nbit'), ['to the bit']);
  assert.deepEqual(words('a.h', '// equal to\n  // the bit'), ['to the bit']);
  assert.deepEqual(words('a.h', '/* equal to\n * the bit */'), ['to the bit']);
  assert.deepEqual(words('a.cpp', '"equal to the "\n    "bit"'), ['to the bit']);
  assert.deepEqual(words('a.ts', "'equal to the ' +\n    'bit'"), ['to the bit']);
  assert.deepEqual(words('a.md', 'it owes nothing'), ['owes']);
  assert.deepEqual(words('a.md', 'it showed nothing, withheld against all'), []);
  assert.deepEqual(lines('a.h', 'int a;\n// equal\n// to\n// the bit'), [3]);
});

test('what two patterns find is one finding', () => {
  assert.deepEqual(words('a.md', "the graphics card's memory").length, 1);
  assert.deepEqual(words('a.md', "on the card's side").length, 1);
});

test('every phrase of the list can be found', () => {
  for (const { find } of phrases) {
    // The shortest text of the pattern: no optional parts, the first of alternatives.
    let sample = find;
    let before;
    do {
      before = sample;
      sample = sample.replace(/\((?:\?[:!][^()]*|[^()]*)\)\??/, (group) =>
        group.endsWith('?') || group.startsWith('(?!') ? '' : group.slice(1, -1).split('|')[0],
      );
    } while (sample !== before);
    sample = sample.replace(/.\?/g, '').replace(/\[([^\]])[^\]]*\]/g, '$1');
    assert.ok(words('a.md', `x ${sample} x`).length > 0, `${find} (${sample})`);
  }
});

test('headings, scripts, files and paths', () => {
  assert.deepEqual(words('README.md', '# Title\n\n## The rooms\n'), ['The rooms', 'the rooms']);
  assert.deepEqual(words('README.md', '## Demo\n'), []);
  assert.deepEqual(words('README.md', 'npm run bench:card'), ['bench:card']);
  assert.deepEqual(words('src/open/course.h', ''), ['src/open/course.h']);
  assert.deepEqual(words('src/io/http_judgement_native.cpp', ''), [
    'src/io/http_judgement_native.cpp',
  ]);
  assert.deepEqual(words('src/cli/x_absent.cpp', ''), ['src/cli/x_absent.cpp']);
  assert.deepEqual(words('web/wire/types.ts', ''), ['web/wire/types.ts']);
  assert.deepEqual(words('a.md', 'see `web/wire/` and session/state.cpp'), [
    'web/wire',
    'session/state.cpp',
  ]);
  assert.deepEqual(words('a.md', 'see session/session_state.cpp'), []);
});

test('a bare file name is an old one only while no file has it', () => {
  assert.deepEqual(words('a.md', 'see `course.h`', mentions(['src/open/header_loader.h'])), [
    'course.h',
  ]);
  assert.deepEqual(words('a.md', 'see `course.h`', mentions(['src/x/course.h'])), []);
  assert.deepEqual(words('a.cpp', '#include <windows.h>', mentions([])), []);
});

test('old files have new names that are not old', () => {
  for (const [folder, names] of Object.entries(files)) {
    for (const name of Object.values(names))
      assert.ok(!Object.hasOwn(names, name), `${folder}/${name}`);
  }
  for (const to of Object.values(directories)) assert.ok(!Object.hasOwn(directories, to), to);
});

test('plain words count only where they are the old name', () => {
  assert.deepEqual(words('web/protocol/types.ts', 'export interface A {\n  ring: number;\n}'), [
    'ring',
  ]);
  assert.deepEqual(words('web/protocol/types.ts', '/** ring: the buffer */'), []);
  assert.deepEqual(words('web/api/a.ts', '{ ring: 1 }'), []);
  assert.deepEqual(words('src/draft/a.h', 'struct Trust {};'), ['Trust']);
  assert.deepEqual(words('src/draft/a.h', '// Trust nobody.\nconst char* s = "Trust";'), []);
  assert.deepEqual(words('src/api/sluice.h', '  int32_t wanted;'), ['wanted']);
  assert.deepEqual(words('src/api/sluice.h', '  int32_t tokens; /* wanted */'), []);
});

test('comments and strings are blanked in place', () => {
  const text = 'a = "x\\"y"; // Trust\n/* b\n */ c = \'d\'; `e`';
  const blanked = codeOnly(text);
  assert.equal(blanked.length, text.length);
  assert.equal(blanked.replace(/\s+/g, ' ').trim(), 'a = ; c = ;');
});

test('offsets of unwrapped text lead back', () => {
  const text = 'one\n// two\n//   three  four';
  const flat = unwrapped(text);
  assert.equal(flat.text, 'one two three four');
  for (const word of ['one', 'two', 'three', 'four'])
    assert.equal(flat.original(flat.text.indexOf(word)), text.indexOf(word), word);
});

test('an exception holds for its path, word and line alone', () => {
  const text = 'to the bit\nto the bit (key)\n';
  const found = scan({ path: 'a.md', text });
  const exception = { path: /^a\.md$/, word: /^to the bit$/, text: '(key)', reason: 'test' };
  const texts = new Map([['a.md', text]]);
  assert.deepEqual(
    judge(found, texts, [exception]).errors.map(({ line }) => line),
    [1],
  );
  const idle = { path: /^b\.md$/, reason: 'test' };
  assert.deepEqual(judge(found, texts, [exception, idle]).unused, [idle]);
});

test('exceptions have reasons', () => {
  for (const { path, reason } of [...allowed, ...excluded]) {
    assert.ok(path instanceof RegExp);
    assert.ok(reason.length > 10, `${path}`);
  }
});
