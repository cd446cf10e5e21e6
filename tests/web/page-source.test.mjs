// The page's modules by themselves: linear-time parsing, separated reasoning, and sources in which
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

/** A text made of random pieces, and the same text cut at random. */
function pieces(next, alphabet, length) {
  const text = Array.from({ length }, () => alphabet[Math.floor(next() * alphabet.length)]).join(
    '',
  );
  const cut = [];
  for (let at = 0; at < text.length;) {
    const end = at + Math.floor(next() * 7);
    cut.push(text.slice(at, end));
    at = end;
  }
  return { text, cut };
}

test('the end of the last sentence is found for any split of the text', async () => {
  const { Sentences } = await importPage('sentences');
  const next = random(7);
  for (let i = 0; i < 500; i++) {
    const { cut } = pieces(next, ['a', '. ', '.', '!\n', '? ', ':', ' ', '…', '\u00a0'], 30);
    const sentences = new Sentences();
    let text = '';
    for (const piece of cut) {
      sentences.push(piece);
      text += piece;
      assert.equal(
        sentences.end,
        text.search(/[.!?:]\s(?![\s\S]*[.!?:]\s)/) + 1,
        JSON.stringify(text),
      );
    }
  }
});

test('finding sentences reads each character once', async () => {
  const { Sentences } = await importPage('sentences');
  for (const word of ['word ', 'word. ', '. ', '.']) {
    let looks = 0;
    const piece = { length: word.length, charCodeAt: (i) => (looks++, word.charCodeAt(i)) };
    const sentences = new Sentences();
    for (let i = 0; i < 20_000; i++) sentences.push(piece);
    assert.equal(looks, 20_000 * word.length);
  }
});

test('reasoning is separated from the answer', async () => {
  const { splitReasoning } = await importPage('markup');
  const slow = (text) => {
    const closed = /^\s*(?:<think>)?([\s\S]*?)<\/think>\s*([\s\S]*)$/.exec(text);
    if (closed) return { thought: closed[1].trim(), answer: closed[2] };
    const open = /^\s*<think>([\s\S]*)$/.exec(text);
    return open ? { thought: open[1].trim(), answer: '' } : { thought: '', answer: text };
  };
  const next = random(9);
  for (let i = 0; i < 2000; i++) {
    const { text } = pieces(
      next,
      ['<think>', '</think>', ' ', '\n', 'so', '<'],
      1 + Math.floor(next() * 8),
    );
    assert.deepEqual(splitReasoning(text), slow(text), JSON.stringify(text));
  }
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
