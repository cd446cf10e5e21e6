// Rendering prompts without an engine.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { renderer } from './chat-template.mjs';
import { importWeb } from './helpers.mjs';

const { unmarked } = await importWeb('protocol/literal-spans');

test('a model without a template gets ChatML, and a warning once', async () => {
  const warnings = [];
  const chat = renderer({ eosToken: '</s>' }, (message) => warnings.push(message));
  const messages = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
  ];
  for (let i = 0; i < 2; i++) {
    const { text, addSpecial, stop } = await chat.render(messages);
    assert.equal(
      unmarked(text),
      '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
    );
    assert.deepEqual([addSpecial, stop], [true, ['<|im_end|>']]);
  }
  assert.equal(warnings.length, 1);
});

test('the special tokens and tools reach the template, and a warning if it takes no tools', async () => {
  const warnings = [];
  const tools = [{ type: 'function', function: { name: 'f' } }];
  for (const [chatTemplate, expected] of [
    [
      '{{ bos_token }}{{ tools[0].function.name if tools }}{{ pad_token is defined }}',
      '<s>fFalsex',
    ],
    ['{{ bos_token }}{{ pad_token is defined }}', '<s>Falsex'],
  ]) {
    const source = `${chatTemplate}{{ messages[0].content }}`;
    const info = { chatTemplate: source, bosToken: '<s>' };
    const chat = renderer(info, (message) => warnings.push(message));
    const messages = [{ role: 'user', content: 'x' }];
    for (let i = 0; i < 2; i++) {
      const { text, addSpecial, stop } = await chat.render(messages, { tools });
      assert.deepEqual([unmarked(text), addSpecial, stop], [expected, false, []]);
    }
  }
  assert.deepEqual(warnings, [
    "The model's chat template does not support tools: the model will not see them.",
  ]);
});
