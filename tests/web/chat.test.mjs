// The parts of chat that need no engine: separating reasoning from content, and rendering prompts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { renderer } from './chat-template.mjs';
import { importWeb } from './helpers.mjs';

const { ThinkFilter } = await importWeb('chat/think');
const { unmarked } = await importWeb('protocol/literal-spans');

function split(text, size, open = false) {
  const filter = new ThinkFilter(open);
  const out = { reasoning: '', content: '' };
  const add = (part) => {
    out.reasoning += part.reasoning;
    out.content += part.content;
  };
  for (let i = 0; i < text.length; i += size) add(filter.push(text.slice(i, i + size)));
  add(filter.finish());
  return out;
}

test('reasoning and content are separated in pieces of any size', () => {
  const cases = [
    ['<think>\nHm, a < b.\n</think>\n\nYes.', false, 'Hm, a < b.', 'Yes.'],
    ['Hm.\n\nWell.</think>No.', true, 'Hm.\n\nWell.', 'No.'],
    ['  plain <think>text</think>', false, '', '  plain <think>text</think>'],
    ['<think>never closed', false, 'never closed', ''],
    ['<think></think>only', false, '', 'only'],
    ['<thi', false, '', '<thi'],
    ['', false, '', ''],
    ['<think>a</thin', false, 'a</thin', ''],
  ];
  for (const [text, open, reasoning, content] of cases) {
    for (let size = 1; size <= text.length + 1; size++) {
      assert.deepEqual(split(text, size, open), { reasoning, content }, `${text} by ${size}`);
    }
  }
});

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
    ['{{ bos_token }}{{ tools|length if tools else 0 }}{{ pad_token is defined }}', '<s>1False'],
    ['{{ bos_token }}{{ pad_token is defined }}', '<s>False'],
  ]) {
    const chat = renderer({ chatTemplate, bosToken: '<s>' }, (message) => warnings.push(message));
    const messages = [{ role: 'user', content: 'x' }];
    for (let i = 0; i < 2; i++) {
      const { text, addSpecial, stop } = await chat.render(messages, { tools });
      assert.deepEqual([text, addSpecial, stop], [expected, false, []]);
    }
  }
  assert.deepEqual(warnings, [
    "The model's chat template does not support tools: the model will not see them.",
  ]);
});
