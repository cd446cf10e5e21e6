// Pictures in requests to Node's server: the tokens of the reference through data URLs, what it says
// about the model, and that it fetches nothing, or what its options allow.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';

process.env.SLUICE_SERVE = 'node';
const { Server } = await import('./server.mjs');
const { checkPictureUrls } = await import('./picture-urls.mjs');

const folder = inRoot('..', 'shared', 'fixtures', 'vision');
const skip = !existsSync(folder) && `no ${folder}`;
const model = `${folder}/qwen2.5vl.gguf`;
const entry = skip
  ? null
  : JSON.parse(readFileSync(`${folder}/manifest.json`)).find(({ name }) => name === 'qwen2.5vl')
      .cases[0];

let server;
before(async () => {
  if (!skip)
    server = await Server.startWith(
      model,
      ...['--projector', `${folder}/qwen2.5vl.mmproj.gguf`, '--parallel', '2'],
    );
});
after(() => server?.stop());

const look = (url) => [
  {
    role: 'user',
    content: [
      { type: 'text', text: 'look ' },
      { type: 'image_url', image_url: { url } },
      { type: 'text', text: ' what is it' },
    ],
  },
];

test('a picture in a request gives the tokens of the reference', { skip }, async () => {
  const { content } = await server.json('/detokenize', { tokens: entry.greedy });
  const url = `data:image/png;base64,${readFileSync(`${folder}/media/wide.png`).toString('base64')}`;
  const ask = { messages: look(url), temperature: 0, max_tokens: 16, ignore_eos: true };
  for (const cachePrompt of [true, true, false]) {
    const { choices, usage } = await server.json('/v1/chat/completions', {
      ...ask,
      cache_prompt: cachePrompt,
    });
    assert.equal(choices[0].message.content, content);
    assert.equal(usage.prompt_tokens, 41);
  }
});

test('pictures count in counted tokens', { skip }, async () => {
  const data = readFileSync(`${folder}/media/wide.png`).toString('base64');
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data } };
  for (const content of [[image], [image, { type: 'text', text: 'x' }], [image, image]]) {
    const ask = { model: 'x', messages: [{ role: 'user', content }] };
    const { usage } = await server.json('/v1/messages', { ...ask, max_tokens: 1 });
    const { input_tokens: counted } = await server.json('/v1/messages/count_tokens', ask);
    assert.equal(counted, usage.input_tokens + usage.cache_read_input_tokens);
  }
});

test(
  'a large picture passes, and data that is no base64 is a wrong request',
  { skip },
  async () => {
    const png = readFileSync(`${folder}/media/wide.png`);
    const large = Buffer.concat([png, Buffer.alloc(6 << 20)]); // bytes behind the picture
    const options = { temperature: 0, max_tokens: 16, ignore_eos: true };
    const ask = (data) =>
      server.json('/v1/chat/completions', {
        messages: look(`data:image/png;base64,${data}`),
        ...options,
      });
    const { content } = await server.json('/detokenize', { tokens: entry.greedy });
    assert.equal((await ask(large.toString('base64'))).choices[0].message.content, content);
    const { status, error } = await ask('%%%');
    assert.deepEqual([status, error.code], [400, 'INVALID_ARGUMENT']);
  },
);

test('several completions, beside requests without pictures', { skip }, async () => {
  const { content } = await server.json('/detokenize', { tokens: entry.greedy });
  const url = `data:image/png;base64,${readFileSync(`${folder}/media/wide.png`).toString('base64')}`;
  const options = { temperature: 0, max_tokens: 16, ignore_eos: true };
  const told = { messages: [{ role: 'user', content: 'tell me' }], ...options };
  const text = (await server.json('/v1/chat/completions', told)).choices[0].message.content;
  const [{ choices, usage }, ...others] = await Promise.all([
    server.json('/v1/chat/completions', { messages: look(url), n: 3, ...options }),
    server.json('/v1/chat/completions', told),
    server.json('/v1/chat/completions', told),
  ]);
  assert.deepEqual(
    choices.map(({ message }) => message.content),
    [content, content, content],
  );
  assert.equal(usage.prompt_tokens, 41);
  for (const other of others) assert.equal(other.choices[0].message.content, text);
});

test('the server says that the model takes pictures, and fetches none', { skip }, async () => {
  const props = await (await fetch(`${server.url}/props`)).json();
  assert.deepEqual(props.modalities, { vision: true, audio: false });
  for (const url of [`${server.url}/x.png`, 'https://example.invalid/x.png', 'sluice-image:0']) {
    const { error } = await server.json('/v1/chat/completions', { messages: look(url) });
    assert.equal(error.code, 'NOT_SUPPORTED');
    assert.match(error.message, /must be a data URL/);
  }
});

test('pictures from other servers need an option, private ones a second', { skip }, async () => {
  const { content: expected } = await server.json('/detokenize', { tokens: entry.greedy });
  const start = (...options) =>
    Server.startWith(model, '--projector', `${folder}/qwen2.5vl.mmproj.gguf`, ...options);
  const picture = readFileSync(`${folder}/media/wide.png`);
  await checkPictureUrls(start, { messages: look, picture, expected });
});
