// Tool calls through chat.completions, complete and streamed: scripted outputs, on the real
// renderer and reader. Formats are tested in chat-answers.test.mjs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { renderer } from './chat-template.mjs';
import { importWeb } from './helpers.mjs';

const { ChatCompletions } = await importWeb('chat/completions');
const { sluice } = await importWeb('ai-sdk');
const { unmarked } = await importWeb('protocol/literal-spans');

const schema = {
  type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'integer' }, at: { type: 'object' } },
};
const tools = ['weather', 'time'].map((name) => ({
  type: 'function',
  function: { name, parameters: schema },
}));
const oslo = ['weather', { city: 'Oslo' }];
const chatTemplate =
  '{{ tools | length if tools else 0 }}{% for m in messages %}{{ m.content }}{% endfor %}<tool_call>';
const messages = [{ role: 'user', content: 'Hi' }];

/** An engine that generates `text`, three characters per token, and records its calls. */
function scripted(
  text,
  { template = chatTemplate, toolTemplate, finishReason = 'stop', controls = '[]' } = {},
) {
  const asked = [];
  const warnings = [];
  const info = { name: 'script', chatTemplate: template, toolTemplate, vocabSize: 1000 };
  const usage = { promptTokens: 1, cachedTokens: 0, completionTokens: 1, totalTokens: 2 };
  const timings = { promptMs: 0, generateMs: 0 };
  const answer = (prompt, options, extra) => {
    asked.push({ prompt, options, extra });
    return {
      async *[Symbol.asyncIterator]() {
        for (let i = 0; i < text.length; i += 3) yield { text: text.slice(i, i + 3), token: i };
      },
      result: Promise.resolve({ text, finishReason, usage, timings }),
    };
  };
  const prompts = renderer(
    info,
    (message) => warnings.push(message),
    async () => controls,
  );
  const engine = {
    info,
    turn: (work) => work(),
    answer,
    prompts: async () => prompts,
  };
  return { chat: new ChatCompletions(engine), asked, warnings };
}

const thought = '<think>\nHm.\n</think>\n\n';
const called = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>';

test("a model's template for tools renders requests with tools, no others", async () => {
  const plain = '{% for m in messages %}{{ m.content }}{% endfor %}plain';
  const { chat, asked, warnings } = scripted(called, {
    template: plain,
    toolTemplate: chatTemplate,
  });
  const { message } = (await chat.create({ messages, tools })).choices[0];
  const [{ function: call }] = message.tool_calls;
  assert.deepEqual([call.name, JSON.parse(call.arguments)], oslo);
  for (const more of [{}, { tools: [] }, { tools, chat_template: plain }])
    await chat.create({ messages, ...more });
  assert.deepEqual(
    asked.map(({ prompt }) => unmarked(prompt)),
    ['2Hi<tool_call>', 'Hiplain', 'Hiplain', 'Hiplain'],
  );
  assert.equal(warnings.length, 1); // the given template shows no tools
});

test('a completion has tool_calls, no content and a finish reason', async () => {
  const { chat, asked } = scripted(`${thought}${called}\n${called}`);
  const { message, finish_reason } = (await chat.create({ messages, tools })).choices[0];
  assert.equal(finish_reason, 'tool_calls');
  assert.equal(message.content, null);
  assert.equal(message.reasoning_content, 'Hm.');
  assert.deepEqual(
    message.tool_calls.map((call) => [
      call.type,
      call.function.name,
      JSON.parse(call.function.arguments),
    ]),
    [
      ['function', ...oslo],
      ['function', ...oslo],
    ],
  );
  assert.ok(message.tool_calls.every((call) => /^call_[A-Za-z0-9]{24}$/.test(call.id)));
  assert.notEqual(message.tool_calls[0].id, message.tool_calls[1].id);
  assert.match(unmarked(asked[0].prompt), /^2Hi/);
  assert.equal(asked[0].options.skipSpecialTokens, true);
});

test('control tokens are generated as text where they are marks of the format', async () => {
  for (const [mark, skip] of [
    ['<tool_call>', false],
    ['<|other|>', true],
  ]) {
    const { chat, asked } = scripted('', { controls: JSON.stringify([-2, mark]) });
    await chat.create({ messages, tools });
    assert.equal(asked[0].options.skipSpecialTokens, skip, mark);
  }
});

test('a stream has the calls as deltas with an index', async () => {
  const { chat } = scripted(`Wait.${called}${called}`);
  const chunks = [];
  for await (const chunk of await chat.create({ messages, tools, stream: true }))
    chunks.push(chunk.choices[0]);
  assert.equal(chunks.map(({ delta }) => delta.content ?? '').join(''), 'Wait.');
  const calls = chunks.flatMap(({ delta }) => delta.tool_calls ?? []);
  assert.deepEqual(
    calls.map((call) => [call.index, call.function.name]),
    [
      [0, 'weather'],
      [1, 'weather'],
    ],
  );
  assert.equal(chunks.at(-1).finish_reason, 'tool_calls');
});

test('a completion that was cut off has finish reason length', async () => {
  const { chat } = scripted(`${called}and`, { finishReason: 'length' });
  assert.equal((await chat.create({ messages, tools })).choices[0].finish_reason, 'length');
});

test("without tools, or with tool_choice 'none', calls stay text", async () => {
  for (const params of [{}, { tools, tool_choice: 'none' }, { tools: [] }]) {
    const { chat, asked } = scripted(called);
    const { message, finish_reason } = (await chat.create({ messages, ...params })).choices[0];
    assert.deepEqual(
      [message.content, message.tool_calls, finish_reason],
      [called, undefined, 'stop'],
    );
    assert.match(unmarked(asked[0].prompt), /^0Hi/);
    assert.equal(asked[0].options.skipSpecialTokens, true);
  }
});

test('a call can be forced after the end of the reasoning', async () => {
  const template = `${chatTemplate}<think>`;
  const { chat, asked } = scripted('{"city": "Oslo"}}\n</tool_call>', { template });
  const choice = { type: 'function', function: { name: 'weather' } };
  const { message } = (await chat.create({ messages, tools, tool_choice: choice })).choices[0];
  assert.ok(
    unmarked(asked[0].prompt).endsWith(
      '<think>\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": ',
    ),
    asked[0].prompt,
  );
  assert.equal(message.tool_calls[0].function.arguments, '{"city": "Oslo"}');
  const any = scripted('time", "arguments": {}}</tool_call>');
  assert.equal(
    (await any.chat.create({ messages, tools, tool_choice: 'required' })).choices[0].message
      .tool_calls[0].function.name,
    'time',
  );
});

test('invalid tools are errors, and tools that the template ignores are a warning', async () => {
  const bad = [
    { tools: [{ type: 'function' }] },
    { tools: [{ type: 'custom', custom: { name: 'x' } }] },
    { tool_choice: 'required' },
    { tools, tool_choice: { type: 'function', function: { name: 'other' } } },
    { tools, tool_choice: 'sometimes' },
    { tools, tool_choice: 'required', chat_template: '{{ messages[0].content }}' },
  ];
  for (const params of bad) {
    await assert.rejects(
      scripted('').chat.create({ messages, ...params }),
      { code: 'INVALID_ARGUMENT' },
      JSON.stringify(params),
    );
  }
  const { chat, warnings } = scripted('', { template: '{{ messages[0].content }}' });
  for (let i = 0; i < 2; i++) await chat.create({ messages, tools });
  assert.equal(warnings.length, 1);
});

test('the AI SDK provider returns calls as parts', async () => {
  const { chat, asked } = scripted(`Wait.${called}`);
  const language = sluice({ info: { name: 'script' }, chat: { completions: chat } });
  const options = {
    prompt: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }],
    tools: [{ type: 'function', name: 'weather', inputSchema: { type: 'object' } }],
  };
  const { content, finishReason, warnings } = await language.doGenerate(options);
  assert.deepEqual(
    content.map((part) => part.type),
    ['text', 'tool-call'],
  );
  assert.deepEqual([content[1].toolName, JSON.parse(content[1].input)], oslo);
  assert.deepEqual([finishReason.unified, warnings], ['tool-calls', []]);
  const parts = [];
  for await (const part of (await language.doStream(options)).stream) parts.push(part);
  assert.equal(parts.find((part) => part.type === 'tool-call').toolName, 'weather');
  assert.equal(parts.at(-1).finishReason.unified, 'tool-calls');
  await language.doGenerate({ ...options, toolChoice: { type: 'tool', toolName: 'weather' } });
  assert.match(unmarked(asked.at(-1).prompt), /"name": "weather", "arguments": $/);
});
