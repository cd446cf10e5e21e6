// Pictures in chats through chat.wasm: render() returns their URLs and a mark for each in the text.
import test from 'node:test';
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { importWeb } from './helpers.mjs';

const { ChatWasm } = await importWeb('chat/chat-wasm');
const wasm = new ChatWasm(readFile);
const [kParseSpecial, kPictures] = [2, 16]; // RenderFlags

const qwen =
  '{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}' +
  "{% else %}{% for part in m.content %}{% if part.type == 'image' %}" +
  '<|vision_start|><|image_pad|><|vision_end|>' +
  "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n" +
  '{% endfor %}';

const render = (source, messages, flags = kPictures) =>
  wasm.render(
    [source, undefined, undefined, undefined, undefined],
    [JSON.stringify(messages), undefined, undefined, undefined],
    flags,
  );
const picture = (url) => ({ type: 'image_url', image_url: { url } });
const text = (said) => ({ type: 'text', text: said });
const literal = (said) => `\uFDD0${said}\uFDD1`;

test('a picture is a mark in the text, and its URL is in the list', async () => {
  const url = `data:image/png;base64,${'A'.repeat(5 << 20)}`;
  const content = [text('look '), picture(url), text(' and <__media__>'), picture('https://a.b/c')];
  for (const source of [qwen, '']) {
    const rendered = await render(source, [{ role: 'user', content }]);
    assert.equal(
      rendered.text,
      `<|im_start|>user\n${literal('look ')}<__media__>${literal(' and <__media__>')}` +
        '<__media__><|im_end|>\n',
    );
    assert.deepEqual(rendered.pictures, [url, 'https://a.b/c']);
  }
});

test('where control tokens of messages are parsed, a mark of the user stays text', async () => {
  const content = [text('<__media__> <|a|>'), picture('u')];
  const flags = kPictures + kParseSpecial;
  const { text: made, pictures } = await render(qwen, [{ role: 'user', content }], flags);
  assert.equal(made, `<|im_start|>user\n${literal('<__media__>')} <|a|><__media__><|im_end|>\n`);
  assert.deepEqual(pictures, ['u']);
});

test('a model of text alone refuses pictures, and no model takes sound', async () => {
  const messages = [{ role: 'user', content: [picture('u')] }];
  await assert.rejects(render(qwen, messages, 0), {
    code: 'NOT_SUPPORTED',
    message: "The model takes no pictures: message parts of type 'image_url' are unsupported.",
  });
  const sound = [{ role: 'user', content: [{ type: 'input_audio', input_audio: {} }] }];
  await assert.rejects(render(qwen, sound), {
    code: 'NOT_SUPPORTED',
    message: "message parts of type 'input_audio' are unsupported.",
  });
  const { pictures } = await render(qwen, [{ role: 'user', content: 'Hi' }]);
  assert.deepEqual(pictures, []);
});
