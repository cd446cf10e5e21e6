// Reading responses in chat.wasm, in Node: the cases of tests/data/chat/answers.json, calls that
// real templates render, and the memory of responses that are closed, abandoned or too large.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { opened } from './chat-template.mjs';
import { importWeb, root } from './helpers.mjs';
import { everyCut, read, readTokens, rendered } from './tool-rounds.mjs';

const { Answer } = await importWeb('chat/answer-wasm');
const { ChatWasm } = await importWeb('chat/chat-wasm');

const data = JSON.parse(readFileSync(join(root, 'tests', 'data', 'chat', 'answers.json'), 'utf8'));

/** The control tokens of a case, and its pieces: characters and control tokens. */
function tokensOf({ controls = [], text }, hidden) {
  const names = [...new Set([...controls, ...text.flatMap(({ token }) => token ?? [])])];
  const pieces = text.flatMap((piece) =>
    typeof piece === 'string'
      ? [...piece].map((char) => ({ text: char, token: -1 }))
      : [{ text: hidden ? '' : piece.token, token: names.indexOf(piece.token) }],
  );
  return { controls: JSON.stringify(names.flatMap((name, i) => [i, name])), pieces };
}

const requestOf = ({ tools, tool_choice, inline }) => ({
  tools: tools && JSON.stringify(data.tools[tools]),
  toolChoice: tool_choice && JSON.stringify(tool_choice),
  separateReasoning: !inline,
});

test('every case is read as in C++, with the texts of control tokens or without', async () => {
  for (const one of data.cases) {
    for (const hidden of [false, true]) {
      const { controls, pieces } = tokensOf(one, hidden);
      const answer = await opened(one.template, requestOf(one), { controls, prompt: one.prompt });
      const { reasoning, content, calls } = readTokens(answer, pieces);
      assert.deepEqual(
        [reasoning, content, calls.map((call) => [call.name, call.arguments])],
        [one.reasoning, one.content, one.calls.map((call) => [call.name, call.arguments])],
        one.name,
      );
      for (const [i, { id }] of one.calls.entries()) if (id) assert.equal(calls[i].id, id);
    }
  }
});

test('a call that is begun in the prompt is read as a whole', async () => {
  let forced = 0;
  for (const one of data.cases) {
    const [call] = one.calls;
    const [text] = one.text;
    if (one.calls.length !== 1 || one.text.length > 1 || one.prompt) continue;
    const request = { ...requestOf(one), toolChoice: '"required"' };
    const answer = await opened(one.template, request).catch((error) => error);
    if (answer instanceof Error) {
      assert.match(answer.message, /does not support tools/, one.name);
      continue;
    }
    const { opening } = answer;
    if (!text.startsWith(opening)) {
      answer.close();
      continue;
    }
    const rest = [{ text: text.slice(opening.length), token: -1 }];
    const { calls } = readTokens(answer, rest);
    assert.deepEqual([calls[0].name, calls[0].arguments], [call.name, call.arguments]);
    forced++;
  }
  assert.ok(forced >= 5, `${forced}`);
});

test('text that cannot be a call or reasoning is not held back', async () => {
  const request = { tools: JSON.stringify(data.tools.weather) };
  for (const text of [
    'Well, ',
    'a < b',
    '{"city"',
    '{"name": "Anna"',
    '{"name": "weather", "temperature"',
    '<|python_tag|>print',
  ]) {
    const answer = await opened('', request);
    assert.equal(answer.push({ text, token: -1 }).content, text);
    answer.close();
  }
  const answer = await opened('', request);
  const { reasoning } = answer.push({ text: '<think>Hm, a < b', token: -1 });
  assert.equal(reasoning, 'Hm, a < b');
  answer.close();
});

// --- calls that templates render ----------------------------------------------------------------

const parameters = {
  type: 'object',
  required: ['city'],
  properties: {
    city: { type: 'string', description: 'C' },
    days: { type: 'integer', description: 'D' },
    ok: { type: 'boolean', description: 'O' },
    at: { type: 'object', description: 'A', properties: {} },
    note: { type: ['string', 'null'], description: 'N' },
  },
};
const tools = ['get_weather', 'get_time'].map((name) => ({
  type: 'function',
  function: { name, description: 'D', parameters },
}));
const simple = [['get_weather', { city: 'Oslo' }]];
const hard = [
  [
    'get_weather',
    {
      city: 'Øslo "x"\nline <b> 5',
      days: 3,
      ok: true,
      at: { lat: 1.5, list: [1, 'a'] },
      note: '7',
    },
  ],
];
const two = [
  ['get_weather', { city: 'Oslo' }],
  ['get_time', { city: '5' }],
];

/** MiniMax M3 writes lists and objects in tags of their own, which are parsed as text. */
const kFlatAlone = /^MiniMax-M3/;
const fixtures = join(root, '..', 'shared', 'fixtures', 'templates');
const skip = existsSync(fixtures) ? false : 'no ../shared/fixtures/templates';

test('calls rendered by real templates are parsed back', { skip }, async (t) => {
  let whole = 0;
  for (const file of readdirSync(fixtures)
    .filter((name) => name.endsWith('.jinja'))
    .sort()) {
    const source = readFileSync(join(fixtures, file), 'utf8');
    const make = () => opened(source, { tools: JSON.stringify(tools) });
    for (const calls of [simple, hard, two]) {
      let text = null;
      for (const asText of [false, true]) {
        try {
          text ??= (await rendered(source, tools, calls, asText))?.text ?? null;
        } catch {} // raises without some variable, or without arguments as an object
      }
      if (text === null) continue;
      if (kFlatAlone.test(file) && calls === hard) continue;
      const single = calls === two && !text.includes('get_time') ? calls.slice(0, 1) : calls;
      for (const cuts of calls === simple ? everyCut(text.length, 11) : [[], [text.length >> 1]]) {
        const found = (await read(make, text, cuts)).calls;
        assert.deepEqual(found, single, `${file}, cut at ${cuts}: ${text}`);
      }
      whole++;
    }
  }
  t.diagnostic(`${whole} calls`);
  assert.ok(whole >= 150, `${whole}`);
});

// --- memory -------------------------------------------------------------------------------------

const text = `<think>${'Hm. '.repeat(4000)}</think>Yes.`;
const begin = (wasm) =>
  wasm.use((instance) => new Answer(instance, instance.formats('<think>', '[]'), '', {}, false));
const bytes = (wasm) => wasm.use(({ memory }) => memory.buffer.byteLength);

test('a response that is closed or abandoned is freed, whatever was read of it', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  const wasm = new ChatWasm(readFile);
  const first = await bytes(wasm);
  for (let i = 0; i < 3000; i++) {
    const answer = await begin(wasm);
    if (i % 3) answer.push({ text, token: -1 });
    if (i % 2) answer.close();
    if (i % 50 !== 0) continue;
    collect();
    await new Promise((next) => setImmediate(next)); // finalizers run
  }
  assert.ok((await bytes(wasm)) - first < 8 << 20, `${await bytes(wasm)} bytes`);
});

test('after a response that needs too much memory, others are read', async () => {
  const wasm = new ChatWasm(readFile);
  const large = await begin(wasm);
  assert.throws(() => large.push({ text: 'x'.repeat(120 << 20), token: -1 }), {
    code: 'OUT_OF_MEMORY',
  });
  large.close();
  const answer = await begin(wasm);
  const { reasoning, content } = readTokens(answer, [{ text, token: -1 }]);
  assert.deepEqual([reasoning, content], ['Hm. '.repeat(4000).trimEnd(), 'Yes.']);
  assert.ok((await bytes(wasm)) < 32 << 20);
});
