// The page's modules by themselves: sentences, merging, and sources in which
// no text can become HTML and every handler reports its failures.
import assert from 'node:assert/strict';
import { build } from 'esbuild';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { random, root } from './helpers.mjs';

const folder = join(root, 'examples', 'browser');
const sources = readdirSync(folder).filter((name) => /\.(ts|js)$/.test(name));
const read = (name) => readFileSync(join(folder, name), 'utf8');

async function importPage(name) {
  const outfile = join(root, 'build', 'web-tests', `page-${name}.mjs`);
  await build({
    entryPoints: [join(folder, `${name}.ts`)],
    outfile,
    bundle: true,
    format: 'esm',
    logLevel: 'warning',
  });
  return import(pathToFileURL(outfile).href);
}

const { Sentences } = await importPage('sentences');

/** The text up to the end of the last sentence, pushed as a whole and cut in any way. */
function sentencesOf(text, next = random(7)) {
  const ends = Array.from({ length: 4 }, (_, i) => {
    const sentences = new Sentences();
    for (let at = 0; at < text.length;) {
      const end = i === 0 ? text.length : at + 1 + Math.floor(next() * 4);
      sentences.push(text.slice(at, end));
      at = end;
    }
    return sentences.end;
  });
  assert.equal(new Set(ends).size, 1, `${ends} of ${JSON.stringify(text)}`);
  return text.slice(0, ends[0]);
}

test('a sentence ends where a listener expects it', () => {
  for (const [text, spoken] of [
    ['One. Two', 'One.'],
    ['Really?! Yes', 'Really?!'],
    ['He said "Go." Then', 'He said "Go."'],
    ['"Go!" she said. Then', '"Go!" she said.'],
    ['**Done.** Next', '**Done.**'],
    ['Wait... what', ''],
    ['Wait… What', 'Wait…'],
    ['See Dr. Smith, e.g. today', ''],
    ['It costs 3.50 today', ''],
    ['1. First item', ''],
    ['In 1999. Then', 'In 1999.'],
    ['Note: this goes on', ''],
    ['A heading\nText', 'A heading'],
    ['你好。今天', '你好。'],
    ['A dot at the end.', ''],
    ['', ''],
  ])
    assert.equal(sentencesOf(text), spoken, JSON.stringify(text));
});

test('the end of the last sentence does not depend on how the text is cut', () => {
  const next = random(7);
  const alphabet = ['a', 'B', '. ', '.', '!\n', '? ', ':', ' ', '… ', '"', '。', '1. ', 'Dr. '];
  for (let i = 0; i < 200; i++) {
    const letters = Array.from(
      { length: 30 },
      () => alphabet[Math.floor(next() * alphabet.length)],
    );
    sentencesOf(letters.join(''), next);
  }
});

test('finding sentences reads each character once', () => {
  for (const word of ['word ', 'word. ', '. ', '.']) {
    let looks = 0;
    const piece = { length: word.length, charAt: (i) => (looks++, word.charAt(i)) };
    const sentences = new Sentences();
    for (let i = 0; i < 20_000; i++) sentences.push(piece);
    assert.equal(looks, 20_000 * word.length);
  }
});

test('the cache of experts is shown for the last tokens', async () => {
  const { ExpertMeter } = await importPage('expert-meter');
  const meter = new ExpertMeter();
  const read = (expertHits, expertMisses, expertBytesRead, tokens) =>
    meter.read({ expertHits, expertMisses, expertBytesRead, tokens });
  assert.deepEqual(read(0, 0, 0, 0), ['–', '']);
  assert.deepEqual(read(30, 10, 8000, 10), ['75 % hits', '800 B read per token']);
  assert.deepEqual(read(30, 10, 8000, 10), ['75 % hits', '800 B read per token'], 'idle');
  // Every token hits 9 of 10 experts and reads 2000 bytes: soon the first ones no longer count.
  for (let i = 1; i <= 20; i++) read(30 + 9 * i, 10 + i, 8000 + 2000 * i, 10 + i);
  assert.deepEqual(read(210, 30, 48000, 30), ['90 % hits', '2.00 kB read per token']);
  assert.deepEqual(read(1, 3, 400, 1), ['25 % hits', '400 B read per token'], 'another engine');
});

test('changes of two tabs are merged, and deleted turns stay deleted', async () => {
  const { Marks, adopt, newTalk, newTurn, readTalk } = await importPage('conversation');
  const copy = (talk) => readTalk(structuredClone(talk));
  const a = { ...newTalk('chat'), title: 'One' };
  const pair = [newTurn('user', 'q'), newTurn('assistant', 'a')];
  a.turns.push(...pair);
  let stored = copy(a);
  const b = copy(stored);

  const ofB = new Marks();
  b.turns.push(newTurn('user', 'q2'), newTurn('assistant', 'a2'));
  ofB.add(...b.turns.slice(-2));
  b.system = 'Not marked.';
  const ofA = new Marks();
  Object.assign(a, { title: 'Two' }).turns.splice(0, 2);
  ofA.fields.add('title');
  ofA.drop(...pair);
  const late = new Marks();
  late.change(pair[1]); // written by a tab that has not seen the deletion

  stored = copy(ofB.merge(stored, b));
  stored = copy(ofA.merge(stored, a));
  stored = copy(late.merge(stored, { ...a, turns: pair }));
  assert.deepEqual(
    [stored.title, stored.system, stored.turns.map(({ content }) => content)],
    ['Two', '', ['q2', 'a2']],
  );
  const own = b.turns.at(-1);
  assert.equal(adopt(b, stored), true);
  assert.equal(adopt(b, copy(stored)), false);
  assert.equal(
    b.turns.at(-1),
    own,
    'the same object, because an answer is still being written into it',
  );

  const failed = new Marks(); // the next write repeats a failed one
  failed.add(own);
  const again = new Marks();
  again.drop(own);
  again.join(failed);
  assert.deepEqual(again.merge({ ...stored, turns: [] }, b).turns, []);
});

test('no source can turn text into HTML or code', () => {
  const sinks =
    /innerHTML|outerHTML|insertAdjacentHTML|setHTML|parseHTML|document\.write|DOMParser|createContextualFragment|srcdoc|javascript:|\beval\b|new Function|\.on\w+ = [`'"]|href:/;
  assert.ok(sources.length > 15);
  for (const name of sources) assert.doesNotMatch(read(name), sinks, name);
});

test('every handler of the page uses on() and run(), which report failures', () => {
  const modules = sources.filter((name) => name.endsWith('.ts') && name !== 'dom.ts');
  assert.ok(modules.length > 15);
  for (const name of modules) {
    for (const line of read(name).split('\n')) {
      assert.doesNotMatch(line, /(?<!channel\?)\.addEventListener\(/, name);
      if (/\bvoid [\w.]+\(/.test(line))
        assert.match(line, /\.catch\(|elements\.push|trouble\(\)/, name);
    }
  }
});
