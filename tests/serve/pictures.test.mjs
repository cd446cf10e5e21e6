// Pictures in requests to every API: the same tokens as the reference, prompt tokens that count
// them, and what is refused. Skipped without the fixtures beside the checkout.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { inRoot } from '../../web/scripts/lib.mjs';
import { checkPictureUrls } from './picture-urls.mjs';
import { Server } from './server.mjs';

const folder = inRoot('..', 'shared', 'fixtures', 'vision');
const skip = !existsSync(folder) && `no ${folder}`;
const model = `${folder}/qwen2.5vl.gguf`; // its projector lies beside it
const file = (name) => readFileSync(`${folder}/media/${name}`);
const manifest = () => JSON.parse(readFileSync(`${folder}/manifest.json`));
const families = skip ? [] : manifest();
const entry = families.find(({ name }) => name === 'qwen2.5vl')?.cases[0];

let server;
let expected; // the reference's tokens as text
before(async () => {
  if (skip) return;
  server = await Server.startWith(model, '--parallel', '2');
  ({ content: expected } = await server.json('/detokenize', { tokens: entry.greedy }));
});
after(() => server?.stop());

const wide = skip ? '' : file('wide.png').toString('base64');
const url = `data:image/png;base64,${wide}`;
const image = (of = url) => ({ type: 'image_url', image_url: { url: of } });
const text = (said) => ({ type: 'text', text: said });
const look = (of) => [{ role: 'user', content: [text('look '), image(of), text(' what is it')] }];
const greedy = { temperature: 0, max_tokens: 16, ignore_eos: true };
const kPrompt = 41; // tokens, 12 of them of the picture

test('OpenAI: chat completions count a picture and reuse it', { skip }, async () => {
  for (const cached of [0, kPrompt - 1]) {
    const { choices, usage } = await server.json('/v1/chat/completions', {
      messages: look(),
      ...greedy,
    });
    assert.equal(choices[0].message.content, expected);
    assert.equal(usage.prompt_tokens, kPrompt);
    assert.equal(usage.prompt_tokens_details.cached_tokens, cached);
  }
  // Another picture of the same size is not taken for it.
  const { usage } = await server.json('/v1/chat/completions', {
    messages: look(`data:;base64,${file('plain.bmp').toString('base64')}`),
    ...greedy,
  });
  assert.ok(usage.prompt_tokens_details.cached_tokens < 13);
});

test('OpenAI: responses', { skip }, async () => {
  const { output, usage } = await server.json('/v1/responses', {
    input: [
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'look ' },
          { type: 'input_image', image_url: url },
          { type: 'input_text', text: ' what is it' },
        ],
      },
    ],
    temperature: 0,
    max_output_tokens: 16,
  });
  assert.equal(output[0].content[0].text, expected);
  assert.equal(usage.input_tokens, kPrompt);
});

test('Anthropic: messages, and their tokens', { skip }, async () => {
  const source = { type: 'base64', media_type: 'image/png', data: wide };
  const messages = [
    { role: 'user', content: [text('look '), { type: 'image', source }, text(' what is it')] },
  ];
  const { content, usage } = await server.json('/v1/messages', {
    messages,
    temperature: 0,
    max_tokens: 16,
  });
  assert.equal(content[0].text, expected);
  assert.equal(usage.input_tokens + usage.cache_read_input_tokens, kPrompt);
  const counted = await server.json('/v1/messages/count_tokens', { messages });
  assert.equal(counted.input_tokens, kPrompt);
});

test('Ollama: chat and generate', { skip }, async () => {
  const options = { temperature: 0, num_predict: 8 };
  const { message, prompt_eval_count: tokens } = await server.json('/api/chat', {
    messages: [{ role: 'user', content: 'what is it', images: [wide] }],
    stream: false,
    options,
  });
  const { response } = await server.json('/api/generate', {
    prompt: 'what is it',
    images: [wide],
    stream: false,
    options,
  });
  assert.ok(message.content.length > 0);
  assert.equal(response, message.content);
  assert.ok(tokens > 12 + 12);
  const shown = await server.json('/api/show', { model: 'x' });
  assert.ok(shown.capabilities.includes('vision'));
});

test('a stream, and requests with and without pictures side by side', { skip }, async () => {
  const ask = (messages) =>
    server
      .json('/v1/chat/completions', { messages, ...greedy, max_tokens: 40 })
      .then(({ choices }) => choices[0].message.content);
  const words = (i) => [{ role: 'user', content: `tell me ${i}` }];
  const alone = [await ask(look()), await ask(words(0)), await ask(words(1))];
  const kinds = Array.from({ length: 18 }, (_, i) => i % 3);
  const answers = await Promise.all(kinds.map((i) => ask(i === 0 ? look() : words(i - 1))));
  assert.deepEqual(
    answers,
    kinds.map((i) => alone[i]),
  );
  const stream = await server.post('/v1/chat/completions', {
    messages: look(),
    ...greedy,
    stream: true,
  });
  const parts = (await stream.text())
    .split('\n\n')
    .filter((frame) => frame.startsWith('data: {'))
    .map((frame) => JSON.parse(frame.slice(6)).choices[0]?.delta.content ?? '');
  assert.equal(parts.join(''), expected);
});

test('what is refused, and that the server goes on', { skip }, async () => {
  const refused = async (of, status, code) => {
    const { error, ...got } = await server.json('/v1/chat/completions', {
      messages: look(of),
      ...greedy,
    });
    assert.deepEqual([got.status, error?.code], [status, code], of.slice(0, 80));
  };
  await refused('http://127.0.0.1:1/a.png', 400, 'NOT_SUPPORTED');
  await refused('https://example.com/a.png', 400, 'NOT_SUPPORTED');
  await refused('file:///etc/passwd', 400, 'NOT_SUPPORTED');
  await refused('data:image/png;base64,aGVsbG8=', 400, 'INVALID_ARGUMENT');
  await refused('data:image/png,x', 400, 'INVALID_ARGUMENT');
  await refused(url.slice(0, -100), 400, 'INVALID_ARGUMENT');
  // A mark in a text is no picture.
  const { usage } = await server.json('/v1/chat/completions', {
    messages: [{ role: 'user', content: 'a <__media__> b' }],
    ...greedy,
  });
  assert.ok(usage.prompt_tokens > 0);
  const { choices } = await server.json('/v1/chat/completions', { messages: look(), ...greedy });
  assert.equal(choices[0].message.content, expected);
});

test('several completions of a prompt with pictures', { skip }, async () => {
  const ask = (more) =>
    server.json('/v1/chat/completions', { messages: look(), ...greedy, ...more });
  for (const cachePrompt of [true, false]) {
    const { choices, usage } = await ask({ n: 3, cache_prompt: cachePrompt });
    assert.deepEqual(
      choices.map(({ message }) => message.content),
      [expected, expected, expected],
    );
    assert.equal(usage.prompt_tokens, kPrompt);
  }
  // Each choice is that of its own seed, whatever ends first.
  const drawn = { temperature: 1, seed: 7, max_tokens: 12 };
  const wanted = [];
  for (let i = 0; i < 4; i++) {
    const { choices } = await ask({ ...drawn, seed: 7 + i });
    wanted.push(choices[0].message.content);
  }
  const { choices } = await ask({ ...drawn, n: 4 });
  assert.deepEqual(
    choices.map(({ message }) => message.content),
    wanted,
  );
  const short = await ask({ n: 4, max_tokens: 1 });
  assert.equal(short.choices.length, 4);
});

test('what the server says about its model', { skip }, async () => {
  const props = await (await fetch(`${server.url}/props`)).json();
  assert.deepEqual(props.modalities, { vision: true, audio: false });
  const { data } = await (await fetch(`${server.url}/v1/models`)).json();
  assert.deepEqual(data[0].architecture.input_modalities, ['text', 'image']);
});

test('pictures from other servers need an option, private ones a second', { skip }, () =>
  checkPictureUrls((...options) => Server.startWith(model, ...options), {
    messages: look,
    picture: file('wide.png'),
    expected,
  }),
);

test('without projector, a picture is an error that names it', { skip }, async () => {
  const blind = await Server.startWith(model, '--projector', 'off');
  try {
    const { status, error } = await blind.json('/v1/chat/completions', {
      messages: look(),
      ...greedy,
    });
    assert.deepEqual([status, error.code], [400, 'NOT_SUPPORTED']);
    assert.match(error.message, /takes no pictures/);
    const props = await (await fetch(`${blind.url}/props`)).json();
    assert.equal(props.modalities.vision, false);
  } finally {
    await blind.stop();
  }
});
