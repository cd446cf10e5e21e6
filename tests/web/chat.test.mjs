// The parts of chat that need no engine: separating reasoning from content, and rendering prompts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { ThinkFilter } = await importWeb('chat/think');
const { PromptRenderer } = await importWeb('chat/renderer');

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
  const renderer = new PromptRenderer({ eosToken: '</s>' }, (message) => warnings.push(message));
  const messages = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
  ];
  for (let i = 0; i < 2; i++) {
    const { text, addSpecial, stop } = await renderer.render(messages);
    assert.equal(
      text,
      '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
    );
    assert.deepEqual([addSpecial, stop], [true, ['<|im_end|>']]);
  }
  assert.equal(warnings.length, 1);
});

test("a tool call's arguments reach the template as an object", async () => {
  const chatTemplate =
    '{{ bos_token }}{{ messages[0].tool_calls[0].function.arguments.city }}{{ tools is none }}';
  const renderer = new PromptRenderer({ chatTemplate, bosToken: '<s>' }, assert.fail);
  const tool_calls = [{ function: { name: 'f', arguments: '{"city": "Oslo"}' } }];
  const { text, addSpecial } = await renderer.render([
    { role: 'assistant', content: null, tool_calls },
  ]);
  assert.deepEqual([text, addSpecial], ['<s>OsloTrue', false]);
});
