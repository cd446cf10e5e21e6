// Tool calls: scripted outputs in the models' own formats, in pieces of any size, and the results
// of chat.completions, complete and streamed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { renderer } from './chat-template.mjs';
import { importWeb } from './helpers.mjs';

const { ToolCallFilter } = await importWeb('chat/tool-calls');
const { toolForm, formsToRead, hermes, llama, forms } = await importWeb('chat/tool-forms');
const { callOpening } = await importWeb('chat/tool-grammar');
const { ChatCompletions } = await importWeb('chat/completions');
const { sluice } = await importWeb('ai-sdk');
const { unmarked } = await importWeb('protocol/literal-spans');
const names = ['weather', 'time'];

const schema = {
  type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'integer' }, at: { type: 'object' } },
};
const tools = names.map((name) => ({ type: 'function', function: { name, parameters: schema } }));

function read(text, cuts, form = null) {
  const filter = new ToolCallFilter(tools, formsToRead(form));
  const out = { content: '', calls: [] };
  const add = ({ content, calls }) => {
    out.content += content;
    out.calls.push(
      ...calls.map(({ function: { name, arguments: json } }) => [name, JSON.parse(json)]),
    );
  };
  let from = 0;
  for (const to of [...cuts, text.length]) {
    add(filter.push(text.slice(from, to)));
    from = to;
  }
  add(filter.finish());
  return out;
}

/** Cuts into pieces of each size, and into two at each position. */
function* everyCut(length) {
  for (let size = 1; size <= length; size++)
    yield Array.from({ length: Math.floor((length - 1) / size) }, (_, i) => (i + 1) * size);
  for (let at = 1; at < length; at++) yield [at];
  yield [];
}

const oslo = ['weather', { city: 'Oslo' }];
const nested = ['weather', { at: { city: 'a "}" b', list: [1, { x: ']' }] } }];
const cases = {
  Hermes: [
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    '',
    [oslo],
  ],
  'Hermes, text before and two calls': [
    'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>',
    'Let me look.\n',
    [oslo, ['time', {}]],
  ],
  'Hermes, without the last tag': [
    '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}',
    '',
    [oslo],
  ],
  'Hermes, arguments in a string': [
    '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}</tool_call>',
    '',
    [oslo],
  ],
  'Hermes, broken JSON stays text': [
    '<tool_call>{"name": weather}</tool_call> sorry',
    '<tool_call>{"name": weather}</tool_call> sorry',
    [],
  ],
  'Hermes, cut off': [
    '<tool_call>{"name": "weather", "argu',
    '<tool_call>{"name": "weather", "argu',
    [],
  ],
  Llama: ['{"name": "weather", "parameters": {"city": "Oslo"}}', '', [oslo]],
  'Llama, several': [
    '{"name": "weather", "parameters": {"city": "Oslo"}}; {"name": "time", "parameters": {}}',
    '',
    [oslo, ['time', {}]],
  ],
  'Llama, with a type': [
    '\n{"type": "function", "name": "weather", "parameters": {"city": "Oslo"}}',
    '',
    [oslo],
  ],
  'Llama, python tag': [
    '<|python_tag|>{"name": "weather", "parameters": {"city": "Oslo"}}',
    '',
    [oslo],
  ],
  'python tag before code stays text': [
    '<|python_tag|>print("}{")',
    '<|python_tag|>print("}{")',
    [],
  ],
  'JSON that is an answer': ['{"name": "Anna", "age": 3}', '{"name": "Anna", "age": 3}', []],
  'JSON of another kind': ['{"city": "Oslo"} is my answer', '{"city": "Oslo"} is my answer', []],
  'JSON after text is text': [
    'Here: {"name": "time", "parameters": {}}',
    'Here: {"name": "time", "parameters": {}}',
    [],
  ],
  Mistral: [
    '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "time", "arguments": {}}]',
    '',
    [oslo, ['time', {}]],
  ],
  'Mistral, later': [
    '[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]time[CALL_ID]123456789[ARGS]{}',
    '',
    [oslo, ['time', {}]],
  ],
  'Mistral, broken stays text': ['Well. [TOOL_CALLS][{"name"', 'Well. [TOOL_CALLS][{"name"', []],
  'brackets inside strings': [
    `<tool_call>${JSON.stringify({ name: 'weather', arguments: nested[1] })}</tool_call>`,
    '',
    [nested],
  ],
  'a tag inside a string': [
    '<tool_call>{"name": "weather", "arguments": {"city": "</tool_call> <tool_call>"}}</tool_call> [TOOL_CALLS]',
    ' [TOOL_CALLS]',
    [['weather', { city: '</tool_call> <tool_call>' }]],
  ],
  'a tag inside a JSON string': [
    '{"city": "<tool_call>{\\"name\\": 1}</tool_call>"}',
    '{"city": "<tool_call>{\\"name\\": 1}</tool_call>"}',
    [],
  ],
  'a call after a broken one': [
    '<tool_call>{"name"} <tool_call>{"name": "time", "arguments": {}}</tool_call>',
    '<tool_call>{"name"} ',
    [['time', {}]],
  ],
  'text between two calls': [
    '<tool_call>{"name": "time", "arguments": {}}</tool_call> and \n<tool_call>{"name": "time", "arguments": {}}</tool_call>',
    ' and \n',
    [
      ['time', {}],
      ['time', {}],
    ],
  ],
  'an incomplete tag': ['a <tool_cal', 'a <tool_cal', []],
  'half a tag, then the tag': [
    '<tool_<tool_call>{"name": "time", "arguments": {}}</tool_call>',
    '<tool_',
    [['time', {}]],
  ],
  'Llama, a call and an answer': [
    '{"name": "time", "parameters": {}} is a call',
    '{"name": "time", "parameters": {}} is a call',
    [],
  ],
  'Llama, with an id of its own': [
    '{"id": 3, "name": "time", "parameters": {}}',
    '{"id": 3, "name": "time", "parameters": {}}',
    [],
  ],
  'Llama, a function in a function': [
    '{"type": "function", "function": {"name": "time", "parameters": {}}}',
    '',
    [['time', {}]],
  ],
  'JSON that begins as a call of a tool': [
    '{"name": "weather", "temperature": 3}',
    '{"name": "weather", "temperature": 3}',
    [],
  ],
  'a list': ['[1, 2, {"name": "time"}]', '[1, 2, {"name": "time"}]', []],
  'escapes at the end': [
    '<tool_call>{"name": "weather", "arguments": {"city": "a\\\\"}}</tool_call>',
    '',
    [['weather', { city: 'a\\' }]],
  ],
  'no call at all': ['  Just < text [TOOL and {', '  Just < text [TOOL and {', []],
  nothing: ['', '', []],
};
for (const [label, [text, content, calls]] of Object.entries(cases)) {
  test(`${label}, in pieces of any size`, () => {
    for (const cuts of everyCut(text.length))
      assert.deepEqual(read(text, cuts), { content, calls }, `cut at ${cuts}`);
  });
}

test('text that cannot be a call is not held back', () => {
  const filter = new ToolCallFilter(tools);
  assert.equal(filter.push('Well, ').content, 'Well, ');
  assert.equal(filter.push('a < b').content, 'a < b');
  assert.equal(new ToolCallFilter(tools).push('{"city"').content, '{"city"');
  assert.equal(new ToolCallFilter(tools).push('{"name": "Anna"').content, '{"name": "Anna"');
  assert.equal(
    new ToolCallFilter(tools).push('{"name": "weather", "temperature"').content,
    '{"name": "weather", "temperature"',
  );
  assert.equal(
    new ToolCallFilter(tools).push('<|python_tag|>print').content,
    '<|python_tag|>print',
  );
});

test('a forced beginning and its completion parse as a call', () => {
  for (const [form, ends] of [
    [hermes, '}</tool_call>'],
    [llama, '}'],
    [toolForm('[TOOL_CALLS]'), '}]'],
  ]) {
    const key = form === llama ? 'parameters' : 'arguments';
    assert.deepEqual(
      read(`${callOpening(form, 'weather').join('')}{"city": "Oslo"}${ends}`, [3]).calls,
      [oslo],
      form.pre,
    );
    assert.deepEqual(
      read(`${callOpening(form).join('')}time", "${key}": {}${ends}`, [5]).calls,
      [['time', {}]],
      form.pre,
    );
  }
});

test('a forced beginning in every format', () => {
  const some = forms.filter((each) => each.body === 'params' || each.body === 'json');
  assert.ok(some.length > 5, `${some.length} forms`);
  for (const form of some) {
    const text = `${callOpening(form, 'time').join('')}${form.body === 'json' ? '{}' : ''}${form.post}${form.close ?? ''}`;
    assert.deepEqual(read(text, [1, 9], form), { content: '', calls: [['time', {}]] }, text);
  }
});

// --- through chat.completions -------------------------------------------------------------------

const chatTemplate =
  '{{ tools | length if tools else 0 }}{% for m in messages %}{{ m.content }}{% endfor %}<tool_call>';
const messages = [{ role: 'user', content: 'Hi' }];

/** An engine that generates `text`, three characters per token, and records its calls. */
function scripted(text, { template = chatTemplate, finishReason = 'stop' } = {}) {
  const asked = [];
  const warnings = [];
  const info = { name: 'script', chatTemplate: template };
  const usage = { promptTokens: 1, cachedTokens: 0, completionTokens: 1, totalTokens: 2 };
  const answer = (prompt, options) => {
    asked.push({ prompt, options });
    return {
      async *[Symbol.asyncIterator]() {
        for (let i = 0; i < text.length; i += 3) yield { text: text.slice(i, i + 3), token: i };
      },
      result: Promise.resolve({ text, finishReason, usage, timings: {} }),
    };
  };
  const engine = {
    info,
    turn: (work) => work(),
    answer,
    prompts: renderer(info, (message) => warnings.push(message)),
  };
  return { chat: new ChatCompletions(engine), asked, warnings };
}

const thought = '<think>\nHm.\n</think>\n\n';
const called = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>';

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
  assert.ok(message.tool_calls.every((call) => /^[A-Za-z0-9]{9}$/.test(call.id)));
  assert.notEqual(message.tool_calls[0].id, message.tool_calls[1].id);
  assert.match(unmarked(asked[0].prompt), /^2Hi/);
  assert.equal(asked[0].options.skipSpecialTokens, false);
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
    asked[0].prompt.endsWith('<think>\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": '),
    asked[0].prompt,
  );
  assert.equal(message.tool_calls[0].function.arguments, '{"city":"Oslo"}');
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
  assert.match(asked.at(-1).prompt, /"name": "weather", "arguments": $/);
});
