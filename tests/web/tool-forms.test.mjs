// The tool call formats of real chat templates: rendered calls are parsed back with name and
// arguments intact, however the text is split. Also gpt-oss channels and partial JSON values.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { importWeb, root } from './helpers.mjs';
import { everyCut, read, rendered } from './tool-rounds.mjs';

const { ToolCallFilter } = await importWeb('chat/tool-calls');
const { HarmonyReader } = await importWeb('chat/harmony');
const { PartialJson } = await importWeb('chat/partial-json');
const { toolForm, formsToRead, isHarmony } = await importWeb('chat/tool-forms');
const { parametersOf } = await importWeb('chat/tool-schema');

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

const fixtures = join(root, '..', 'shared', 'fixtures', 'templates');
const skip = existsSync(fixtures) ? false : 'no ../shared/fixtures/templates';
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

test('calls rendered by real templates are parsed back', { skip }, async (t) => {
  let whole = 0;
  for (const file of readdirSync(fixtures)
    .filter((name) => name.endsWith('.jinja'))
    .sort()) {
    const source = readFileSync(join(fixtures, file), 'utf8');
    const form = toolForm(source);
    const make = isHarmony(source)
      ? () => new HarmonyReader()
      : () => new ToolCallFilter(tools, formsToRead(form));
    for (const calls of [simple, hard, two]) {
      let text = null;
      for (const asText of [false, true]) {
        try {
          text ??= (await rendered(source, tools, calls, asText))?.text ?? null;
        } catch {} // raises without some variable, or without arguments as an object
      }
      if (text === null) continue;
      assert.ok(form || isHarmony(source), `${file} renders calls: ${text}`);
      if (kFlatAlone.test(file) && calls === hard) continue;
      const single = calls === two && !text.includes('get_time') ? calls.slice(0, 1) : calls;
      for (const cuts of calls === simple ? everyCut(text.length, 11) : [[], [text.length >> 1]]) {
        assert.deepEqual(read(make, text, cuts).calls, single, `${file}, cut at ${cuts}: ${text}`);
      }
      whole++;
    }
  }
  t.diagnostic(`${whole} calls`);
  assert.ok(whole >= 150, `${whole}`);
});

const written = {
  'LFM2, of Python': [
    '<|tool_list_start|>',
    `So: <|tool_call_start|>[get_weather(city='a "b" \\'c\\' \\u00e9)]', days=-3, ok=True, at={'x': [1, None, (2.5, "y")]}), get_time()]<|tool_call_end|>`,
    'So: ',
    [
      [
        'get_weather',
        { city: `a "b" 'c' é)]`, days: -3, ok: true, at: { x: [1, null, [2.5, 'y']] } },
      ],
      ['get_time', {}],
    ],
  ],
  'LFM2, of JSON': [
    '<|tool_list_start|>',
    '<|tool_call_start|>[{"name": "get_time", "arguments": {}}]<|tool_call_end|>',
    '',
    [['get_time', {}]],
  ],
  'LFM2, code that is not a call': [
    '<|tool_list_start|>',
    '<|tool_call_start|>[a + b]',
    '<|tool_call_start|>[a + b]',
    [],
  ],
  'Granite 3': [
    '<|tool_call|>',
    '<|tool_call|>[{"name": "get_time", "arguments": {"city": "<|tool_call|>"}}]',
    '',
    [['get_time', { city: '<|tool_call|>' }]],
  ],
  'Command-R+': [
    'Action: tool_name',
    'Plan.\nAction:\n```json\n[\n    {\n        "tool_name": "get_time",\n        "parameters": {}\n    }\n]\n```',
    'Plan.\n',
    [['get_time', {}]],
  ],
  'Functionary 3.2': [
    '>>>${recipient}',
    '>>>all\nLet me see.\n>>>get_time\n{}',
    'Let me see.\n',
    [['get_time', {}]],
  ],
  Kimi: [
    '<|tool_calls_section_begin|>',
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:12<|tool_call_argument_begin|>{"city": "<|tool_call_end|>"}<|tool_call_end|><|tool_calls_section_end|>',
    '',
    [['get_time', { city: '<|tool_call_end|>' }]],
  ],
  'Qwen3-Coder, a call in the middle': [
    '<function=<parameter=',
    'I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n\n two\nlines \n\n</parameter>\n<parameter=days>\n5\n</parameter>\n</function>\n</tool_call>',
    'I look.\n',
    [['get_weather', { city: '\n two\nlines \n', days: 5 }]],
  ],
  'Qwen3-Coder, not closed': [
    '<function=<parameter=',
    '<tool_call>\n<function=get_weather>\n<parameter=city>\nOs',
    '<tool_call>\n<function=get_weather>\n<parameter=city>\nOs',
    [],
  ],
  'GLM, text that looks like one': [
    '<arg_key>',
    '<tool_call>is what I would write',
    '<tool_call>is what I would write',
    [],
  ],
  'gemma 4': [
    '<|tool_call>call:',
    '<|tool_call>call:get_weather{city:<|"|>a}<tool_call|>"b"<|"|>,at:{x:[1,<|"|>y<|"|>]}}<tool_call|>',
    '',
    [['get_weather', { city: 'a}<tool_call|>"b"', at: { x: [1, 'y'] } }]],
  ],
};
for (const [label, [template, text, content, calls]] of Object.entries(written)) {
  test(`${label}, in pieces of any size`, () => {
    const make = () => new ToolCallFilter(tools, formsToRead(toolForm(`tools ${template}`)));
    for (const cuts of everyCut(text.length))
      assert.deepEqual(read(make, text, cuts), { reasoning: '', content, calls }, `cut at ${cuts}`);
  });
}

const harmony = {
  'reasoning and content': [
    '<|channel|>analysis<|message|>Hm < 3.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>',
    'Hm < 3.',
    'Yes.',
    [],
  ],
  'reasoning and a call': [
    '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{"city": "<|call|>"}<|call|>',
    'Hm.',
    '',
    [['get_time', { city: '<|call|>' }]],
  ],
  'a call as templates write it': [
    ' to=functions.get_time<|channel|>commentary json<|message|>{}',
    '',
    '',
    [['get_time', {}]],
  ],
  'a preamble': [
    '<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.get_time<|channel|>commentary json<|message|>{}<|call|>',
    '',
    'I look.',
    [['get_time', {}]],
  ],
  'invalid arguments': [
    '<|channel|>commentary to=functions.get_time<|message|>now<|call|>',
    '',
    'now',
    [],
  ],
  'plain text': ['Just <|text, and <|end|>', '', 'Just <|text, and <|end|>', []],
  'cut off': ['<|channel|>analysis<|message|>Hm', 'Hm', '', []],
};
for (const [label, [text, reasoning, content, calls]] of Object.entries(harmony)) {
  test(`channels: ${label}, in pieces of any size`, () => {
    for (const cuts of everyCut(text.length))
      assert.deepEqual(
        read(() => new HarmonyReader(), text, cuts),
        { reasoning, content, calls },
        `cut at ${cuts}`,
      );
  });
}

test('parametersOf(): parameters as text, as JSON, and unsupported ones', () => {
  const schema = (properties, more = {}) => ({
    type: 'object',
    properties,
    required: ['a'],
    ...more,
  });
  const of = (own, more) =>
    parametersOf(schema({ a: own }, more), true).map(({ texts, values }) => ({ texts, values }))[0];
  assert.deepEqual(of({ type: 'string' }), { texts: true, values: [] });
  assert.deepEqual(of({ type: ['string', 'null'] }), { texts: true, values: [{ type: ['null'] }] });
  assert.deepEqual(of({ enum: ['x', 5, null] }), {
    texts: ['x'],
    values: [{ const: undefined, enum: [5, null] }],
  });
  assert.deepEqual(of({ type: 'integer', minimum: 3, description: 'x' }), {
    texts: [],
    values: [{ type: ['integer'], minimum: 3, description: 'x' }],
  });
  assert.deepEqual(of({ anyOf: [{ type: 'string' }, { type: 'boolean' }] }), {
    texts: true,
    values: [{ type: ['boolean'] }],
  });
  const $defs = { e: { enum: ['x'] } };
  assert.deepEqual(of({ $ref: '#/$defs/e' }, { $defs }), { texts: ['x'], values: [] });
  const bad = [
    [{ $ref: '#/$defs/e', minimum: 1 }, { $defs }],
    [{ $ref: '#' }],
    [{ type: 'string', format: 'date' }],
    [{ type: 'string' }, { minProperties: 1 }],
    [{ type: 'string' }, { required: ['b'] }],
    [false],
  ];
  for (const [own, more] of bad)
    assert.throws(() => of(own, more), { code: 'SCHEMA_UNSUPPORTED' }, JSON.stringify([own, more]));
});

test('PartialJson: every prefix gives its certain values, the end gives all', () => {
  const value = {
    name: 'A "q" \n é 😀 \\',
    list: [1, -2.5e3, true, null, [], {}],
    deep: { a: { b: 'x' } },
    last: 12,
  };
  for (const text of [
    JSON.stringify(value),
    JSON.stringify(value, null, 2),
    JSON.stringify(value).replace('é', '\\u00e9').replace('😀', '\\ud83d\\ude00'),
  ]) {
    const partial = new PartialJson();
    let last;
    let changes = 0;
    for (const char of text) {
      const changed = partial.push(char);
      if (!changed) continue;
      last = changed.value;
      changes++;
      assert.ok(value.name.startsWith(last.name ?? ''), JSON.stringify(last));
      assert.ok(last.last === undefined || last.last === 12, JSON.stringify(last));
      for (const [i, item] of (last.list ?? []).entries()) assert.deepEqual(item, value.list[i]);
    }
    last = partial.push(undefined)?.value ?? last;
    assert.deepEqual(last, value);
    assert.ok(changes > 20);
  }
  for (const [text, wanted] of [
    ['12', 12],
    ['"a', 'a'],
    ['true', true],
    ['[1, 2', [1, 2]],
  ]) {
    const partial = new PartialJson();
    const before = partial.push(text)?.value;
    assert.deepEqual(partial.push(undefined)?.value ?? before, wanted);
  }
  const nothing = new PartialJson();
  assert.equal(nothing.push('Once upon'), null);
  assert.equal(nothing.push(undefined), null);
});
