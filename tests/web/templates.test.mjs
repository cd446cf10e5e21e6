// Chat templates in chat.wasm: what the build for WebAssembly and its glue add to src/chat, whose
// own tests have the rest. Real templates are rendered if the shared fixtures exist.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { render, renderer } from './chat-template.mjs';
import { bundleOf, importWeb, random, root } from './helpers.mjs';

const { jsonText } = await importWeb('chat/json');
const { afterUnmarked, marked, unmarked } = await importWeb('protocol/literal-spans');
const fixtures = new URL('../../../shared/fixtures/templates/', import.meta.url);
const failed = { code: 'CHAT_TEMPLATE' };

test(
  '70 real templates, five conversations each',
  { skip: !existsSync(fixtures) && 'no ../shared/fixtures/templates' },
  async () => {
    const { conversations, cases } = JSON.parse(
      readFileSync(new URL('expected.json', fixtures), 'utf8'),
    );
    assert.equal(cases.length, 350);
    for (const { template, conversation, text } of cases) {
      const source = readFileSync(new URL(`${template}.jinja`, fixtures), 'utf8');
      const tokens = { bos_token: '<BOS>', eos_token: '<EOS>', add_generation_prompt: true };
      // src/chat may write calls, and what jinja2 rejects, in another way (templates_test.cpp).
      if (text === undefined || conversation === 'tool-turn') continue;
      const made = await render(source, { ...tokens, ...conversations[conversation] });
      assert.equal(made, text, `${template}: ${conversation}`);
    }
  },
);

test("templates render as Python's jinja2 renders them", async () => {
  const { messages, variables, cases } = JSON.parse(
    readFileSync(`${root}/tests/data/jinja.json`, 'utf8'),
  );
  assert.ok(cases.length >= 230, `${cases.length} cases`);
  for (const { source, expected } of cases) {
    const made = render(source, { messages, ...variables });
    if (expected === undefined) await assert.rejects(made, failed, source);
    else assert.equal(await made, expected, source);
  }
});

test('floating point, letters and powers, which JavaScript provides', async () => {
  const cases = [
    [
      "{{ 'aé日٣'.isalnum() }} {{ 'a€'.isalnum() }} {{ ['\\u200b\\u00a0é€\\t~!\\x7f\\u0378'] }}",
      "True False ['\\u200b\\xa0é€\\t~!\\x7f\\u0378']",
    ],
    ["{{ '\\u2003 \\x85x\\u3000'.strip() }} {{ 'd’été'.title() }}", 'x D’Été'],
    [
      '{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 5e-324 }} {{ -2.5e-7 }} {{ 0.0 }}',
      '0.30000000000000004 1e+16 1000000000000000.0 5e-324 -2.5e-07 0.0',
    ],
    [
      "{{ '%.0f %.0f %.2f %.3e %E' % (0.5, 1.5, 2.675, 1234.5, 0) }}",
      '0 2 2.67 1.234e+03 0.000000E+00',
    ],
    [
      "{{ '%.1f' % 1e22 }} {{ 2.5|round }} {{ 3.14159|round(2) }} {{ '1.5x'|float }} {{ '0x10'|float }}",
      '10000000000000000000000.0 2.0 3.14 0.0 0.0',
    ],
    [
      "{{ 2 ** 0.5 }} {{ 2.0 ** 3 }} {{ 'inf'|float }} {{ x }}",
      '1.4142135623730951 8.0 inf 1e+300',
    ],
    [
      "{{ 'straße ÉCOLE ǆ'|upper }} {{ 'ÉCOLE İ'|lower }} {{ 'élan vital'|title }}",
      'STRASSE ÉCOLE Ǆ école i̇ Élan Vital',
    ],
  ];
  for (const [source, expected] of cases)
    assert.equal(await render(source, { x: 1e300 }), expected, source);
  const next = random(7);
  const numbers = Array.from(
    { length: 500 },
    () => (next() - 0.5) * 10 ** Math.floor(next() * 45 - 30),
  );
  const printed = await render('{% for n in n %}{{ n }};{% endfor %}', {
    n: numbers.map((n) => n + 0.1),
  });
  assert.deepEqual(
    printed.split(';').slice(0, -1).map(Number),
    numbers.map((n) => n + 0.1),
  );
});

test("strftime_now is the caller's local time, in English", async () => {
  const all =
    "{{ strftime_now('%A %a %B %b %d %e %-m %Y %y %H:%I:%M:%S %p %j %w %u %U %W %V %G %F %T %D %c %%|%z%Z|%Q') }}";
  assert.equal(
    await render(all),
    'Friday Fri July Jul 26 26 7 2024 24 12:12:00:00 PM 208 5 5 29 30 30 2024 ' +
      '2024-07-26 12:00:00 07/26/24 Fri Jul 26 12:00:00 2024 %||%Q',
  );
  const weeks = [];
  for (const day of [new Date(2021, 0, 1), new Date(2024, 11, 30), new Date(2023, 0, 1, 23, 59)])
    weeks.push(await render("{{ strftime_now('%G-%V %U %W %j %I%p') }}", {}, { now: day }));
  assert.deepEqual(weeks, [
    '2020-53 00 00 001 12AM',
    '2025-01 52 53 365 12AM',
    '2022-52 01 00 001 11PM',
  ]);
});

test('values reach the template as JSON, or are an error that names them', async () => {
  const show = (value) => render('{{ v|tojson }}', { v: value });
  assert.equal(await show(1234567890123456789n), '1234567890123456789');
  assert.equal(await show('a\ud800b\udc00 😀'), '"a\ufffdb\ufffd 😀"');
  assert.equal(
    await show({ '\ud800': [undefined, null, 1.5], gone: undefined }),
    '{"\ufffd": [null, null, 1.5]}',
  );
  assert.equal(await show(new Date(0)), '"1970-01-01T00:00:00.000Z"');
  const itself = {};
  itself.itself = itself;
  for (const [value, message] of [
    [() => 1, 'v must not contain a function.'],
    [[Symbol('x')], 'v must not contain a symbol.'],
    [{ x: NaN }, 'v must not contain NaN.'],
    [-Infinity, 'v must not contain -Infinity.'],
    [itself, 'v must not be nested this deeply, nor contain itself.'],
  ])
    assert.throws(() => jsonText('v', value), { code: 'INVALID_ARGUMENT', message });
});

test('errors have the code and the message of src/chat, as a sentence', async () => {
  await assert.rejects(renderer({ chatTemplate: '{% if %}' }).render([{ role: 'user' }]), failed);
  const bad = renderer({ chatTemplate: "a\n{{ raise_exception('no') }}" });
  await assert.rejects(bad.render([{ role: 'user', content: 'x' }]), {
    ...failed,
    message: 'The chat template failed: no (line 2).',
  });
  for (const messages of [undefined, [], {}, 'x', [null], [{ content: 'x' }]])
    await assert.rejects(bad.render(messages), { code: 'INVALID_ARGUMENT' }, String(messages));
});

test('a hostile template is stopped, and the next one renders', async () => {
  const deep = (open, n) => `{{ ${open.repeat(n)} }}`;
  for (const source of [
    '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}',
    '{% macro f(x) %}{% if true %}{% for a in [1] %}{{ f([f(x)]) }}{% endfor %}{% endif %}{% endmacro %}{{ f(1) }}',
    '{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}',
    deep('(', 200_000),
    deep('[', 200_000),
    deep('-', 200_000),
    `${'{% if 1 %}'.repeat(20_000)}`,
    `{{ 1${' if 1 else 1'.repeat(20_000)} }}`,
    '{% set a = namespace(t=[1]) %}{% for i in range(60) %}{% set a.t = [a.t, a.t] %}{% endfor %}{{ a.t }}',
    "{% set a = namespace(t='0123456789abcdef') %}{% for i in range(99) %}{% set a.t = a.t + a.t %}{% endfor %}",
    'x'.repeat(2 << 20),
  ]) {
    await assert.rejects(render(source), failed, source.slice(0, 80));
    assert.equal(await render('{{ messages[0].content }}'), 'Hello');
  }
});

test('a prompt that needs too much memory is an error, and the next one renders', async () => {
  const part = 'x'.repeat(50 << 20);
  const messages = [{ role: 'user', content: part }];
  const large = { messages, tools: [part], documents: [part], a: part };
  await assert.rejects(render('{{ messages[0].content|length }}', large), {
    code: 'OUT_OF_MEMORY',
  });
  assert.equal(await render('{{ messages[0].content }}'), 'Hello');
});

test('many templates in turn', async () => {
  for (let i = 0; i < 100; i++)
    assert.equal(await render(`${i}{{ messages[0].role }}`), `${i}user`);
});

test('what follows a part of a prompt keeps its marks', () => {
  const text = `a${marked('bc')}d${marked('')}${marked('e\uFDD0')}f`;
  assert.equal(unmarked(text), 'abcde\uFFFDf');
  const rest = ['abcde\uFFFDf'.length, 0].map((n) => afterUnmarked(text, n));
  assert.deepEqual(rest, ['f'.slice(1), text]);
  for (let n = 0; n <= 7; n++)
    assert.equal(unmarked(afterUnmarked(text, n)), unmarked(text).slice(n), n);
  assert.equal(afterUnmarked(text, 2), `\uFDD0c\uFDD1d\uFDD0\uFDD1\uFDD0e\uFFFD\uFDD1f`);
});

test('a chat.wasm that cannot be read is an error, and is read again at the next call', async () => {
  const fresh = await import(`${bundleOf('chat-wasm')}?fresh`);
  let missing = true;
  const chat = new fresh.ChatWasm(async (path) => {
    if (missing) throw new Error('no such file');
    return readFileSync(path);
  });
  const go = () =>
    chat.render(
      ['{{ messages[0].role }}', '', '', undefined, undefined],
      [jsonText('messages', [{ role: 'user' }]), undefined, undefined, undefined],
      { addGenerationPrompt: true, parseSpecialInContent: true },
    );
  await assert.rejects(go(), {
    code: 'MODULE_LOAD',
    message: 'chat.wasm cannot be loaded: no such file; copy it beside templates.js.',
  });
  missing = false;
  const both = await Promise.all([go(), go()]);
  assert.deepEqual(
    both.map(({ text }) => text),
    ['user', 'user'],
  );
});
