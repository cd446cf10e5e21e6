// A session without an engine: with which tokens its next turn begins.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { Session } = await importWeb('api/session');
const { marked, unmarked } = await importWeb('protocol/literal-spans');

const kVocabulary = ['a', 'b', 'c', 'ab', 'bc'];
const ids = (...texts) => texts.map((text) => kVocabulary.indexOf(text));
const textsOf = (tokens) => Array.from(tokens, (token) => kVocabulary[token]);

/** The longest tokens, from the left. */
function tokenize(given) {
  const text = unmarked(given);
  const found = [];
  for (let at = 0; at < text.length; at += found.at(-1).length)
    found.push(
      kVocabulary.findLast((entry) => text.startsWith(entry, at)) ?? assert.fail(`token at ${at}`),
    );
  return Int32Array.from(ids(...found));
}

/** 'ab' and 'bc' are reasoning. */
const parts = (text) =>
  text.length > 1 ? { content: '', reasoning: text } : { content: text, reasoning: '' };

/** A session whose turns generate what `turns` lists, and the prompts of these turns. */
function scripted(turns) {
  const prompts = [];
  const engine = {
    waits: false,
    turn: (work) => work(),
    prompts: async () => ({
      render: async (messages) => ({
        text: messages.map(({ content }) => marked(content)).join(''),
        literalSpans: true,
        stop: [],
      }),
      answer: async () => ({
        push: ({ token }) => parts(kVocabulary[token]),
        finish: () => ({ content: '', reasoning: '' }),
        close() {},
      }),
    }),
    ask: async (method, text) =>
      method === 'tokenize' ? tokenize(text) : { state: Uint8Array.of(1) },
    start(prompt, options, { heard }) {
      const answer = async () => {
        prompts.push(textsOf(await prompt()));
        const { tokens, text = tokens.join(''), stopString } = turns.shift();
        const pieces = ids(...tokens).map((token) => ({ token }));
        heard(pieces);
        return { text, stopString, pieces };
      };
      return { result: answer() };
    },
  };
  return { session: new Session(engine, {}), engine, prompts };
}

test('a turn continues with the generated tokens, also where the tokenizer has others', async () => {
  const { session, prompts } = scripted([{ tokens: ['a', 'b'] }, { tokens: ['c'] }]);
  await session.generate('b').result;
  await session.generate('c').result;
  assert.deepEqual(prompts, [['b'], ['b', 'a', 'b', 'c']]);
  assert.equal(session.text, 'babcc');
});

test('a turn of a chat continues with the generated tokens, though the template marks them', async () => {
  const { session, prompts } = scripted([{ tokens: ['a', 'b'] }, { tokens: ['c'] }]);
  await session.send('b').result;
  await session.send('c').result;
  assert.deepEqual(prompts, [['b'], ['b', 'a', 'b', 'c']]);
  assert.deepEqual(
    session.messages.map(({ content }) => content),
    ['b', 'ab', 'c', 'c'],
  );
});

test('tokens and result of a message have content and reasoning apart', async () => {
  const { session } = scripted([{ tokens: ['ab', 'c'] }, { tokens: ['ab'] }]);
  const { text, content, reasoning, pieces } = await session.send('b').result;
  assert.deepEqual([text, content, reasoning], ['abc', 'c', 'ab']);
  assert.deepEqual(
    pieces.map((piece) => [piece.content, piece.reasoning]),
    [
      ['', 'ab'],
      ['c', ''],
    ],
  );
  assert.deepEqual(session.messages.at(-1), { role: 'assistant', content: 'c' });
  assert.equal('content' in (await session.generate('b').result), false, 'no message');
});

test('after a stop string inside of a token, a turn continues with the tokens of the text', async () => {
  const cut = { tokens: ['a', 'bc'], text: 'ab', stopString: 'c' };
  const whole = { tokens: ['a', 'b'] };
  const { session, engine, prompts } = scripted([cut, whole, { tokens: ['c'] }, { tokens: ['c'] }]);
  await session.generate('b').result;
  const saved = await session.save();
  await session.generate('a').result;
  await session.generate('c').result;
  const restored = new Session(engine, {});
  await restored.restore(saved);
  await restored.generate('a').result;
  assert.deepEqual(prompts, [
    ['b'],
    ['b', 'ab', 'a'], // not 'bc', of which the text has only the beginning
    ['b', 'ab', 'a', 'a', 'b', 'c'], // the second output is complete
    ['b', 'ab', 'a'],
  ]);
});

test('a turn with pictures passes the tokens on that it continues', async () => {
  const { session, engine } = scripted([]);
  const given = [];
  const answers = [['a'], ['ab', 'c']];
  engine.start = (prompt, options, { heard, read, extra }) => {
    const answer = async () => {
      const text = await prompt();
      given.push({ text, options, ...extra });
      read(Int32Array.of(...ids('c'), 2 ** 30 + given.length));
      const tokens = answers.shift();
      heard(ids(...tokens).map((token) => ({ token })));
      return { text: tokens.join('') };
    };
    return { result: answer() };
  };
  const [one, two] = [1, 2].map((value) => Uint8Array.of(value));
  await session.generate('c<__media__>', { images: [one] }).result;
  const image = (bytes) => ({ type: 'image', image: bytes });
  await session.generate([{ type: 'text', text: 'b<__media__>' }, image(two)]).result;
  const literal = marked('<__media__>');
  assert.deepEqual(
    given.map(({ text, images, known }) => ({ text, images, known })),
    [
      { text: 'c<__media__>', images: [one], known: undefined },
      {
        text: `c<__media__>ab${literal}<__media__>`,
        images: [one, two],
        known: {
          tokens: Int32Array.of(...ids('c'), 2 ** 30 + 1, ...ids('a')),
          images: 1,
          rest: `b${literal}<__media__>`,
        },
      },
    ],
  );
  assert.ok(given.every(({ options }) => options.literalSpans && options.images === undefined));
  assert.deepEqual((await session.save()).images, [one, two]);
});

test('a signal prevents a restore or comes too late: the session is never half of both', async () => {
  const { session, engine } = scripted([{ tokens: ['a'] }]);
  await session.generate('b').result;
  const saved = await session.save();
  const other = new Session(engine, {});
  const restores = [];
  const ask = engine.ask;
  engine.ask = (method, ...given) =>
    method === 'restoreState'
      ? new Promise((resolve) => restores.push({ resolve, state: given[1] }))
      : ask(method, ...given);

  const early = new AbortController();
  const prevented = other.restore(saved, { signal: early.signal });
  early.abort();
  await assert.rejects(prevented, { name: 'AbortError' });
  assert.deepEqual([restores.length, other.text], [0, '']);

  const late = new AbortController();
  const restored = other.restore(saved, { signal: late.signal });
  saved.state.fill(77); // the call has a copy
  await new Promise(setImmediate);
  late.abort();
  const [{ resolve, state }] = restores;
  assert.deepEqual(state, Uint8Array.of(1));
  resolve();
  await restored;
  assert.equal(other.text, 'ba');
});
