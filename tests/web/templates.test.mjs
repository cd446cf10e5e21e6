// Chat templates: real ones against Python's jinja2 (if the shared fixtures exist), and templates
// for each point where the renderer corrects @huggingface/jinja.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { longOnly } from '../extent.mjs';
import { importWeb } from './helpers.mjs';

const { ChatTemplate, strftime } = await importWeb('chat/templates');
const fixtures = new URL('../../../shared/fixtures/templates/', import.meta.url);
const noon = new Date(2024, 6, 26, 12);
const render = (source, variables = {}) =>
  new ChatTemplate(source).render({ messages: [], ...variables }, noon);

test(
  '70 real templates, five conversations each',
  { skip: !existsSync(fixtures) && 'no ../shared/fixtures/templates' },
  async (t) => {
    const { conversations, cases } = JSON.parse(
      readFileSync(new URL('expected.json', fixtures), 'utf8'),
    );
    assert.equal(cases.length, 350);
    for (const { template, conversation, text } of cases) {
      await t.test(`${template}: ${conversation}`, () => {
        const source = readFileSync(new URL(`${template}.jinja`, fixtures), 'utf8');
        const tokens = { bos_token: '<BOS>', eos_token: '<EOS>', add_generation_prompt: true };
        const run = () =>
          new ChatTemplate(source).render({ ...tokens, ...conversations[conversation] }, noon);
        if (text === undefined) assert.throws(run);
        else assert.equal(run(), text);
      });
    }
  },
);

const python = [
  [
    '{{ d }} {{ d|string }}',
    "{'a': [1, True, None, 'it\\'s \"x\"\\n']} {'a': [1, True, None, 'it\\'s \"x\"\\n']}",
  ],
  ['{{ none }}{{ true }}{{ missing }}{{ 1.0 }}', 'NoneTrue1.0'],
  ["{{ 1 == '1' }} {{ [1, {'a': 2}] == [1, {'a': 2}] }} {{ none in [none] }}", 'False True True'],
  ["{{ '\\n x \\n'.strip('\\n') }}|{{ ' xx'.lstrip() }}|{{ 'axa'.rstrip('a') }}", ' x |xx|ax'],
  [
    "{% for k, v in {3: 'c', 1: 'a'} | dictsort %}{{ k + 1 }}{{ v }}{% endfor %}{{ {3: 'c'}[3] }}",
    '2a4cc',
  ],
  ['{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }};{% endfor %}{{ (1, 2) }}', '12;34;(1, 2)'],
  ["{{ '<b>'|safe + '<i>' }} {{ '<b>' + '<i>' }}", '<b>&lt;i&gt; <b><i>'],
  ["{{ [3, 1, 2]|min }}{{ [3, 1, 2]|max }}{{ ['b ', ' a']|map('trim')|join('-') }}", '13b-a'],
  [
    "{{ none|selectattr('x')|list|length }}{% for x in missing %}!{% endfor %}{{ missing|trim }}",
    '0',
  ],
  [
    "{{ '{}-{}'.format('a', 1) }} {{ '{x}'.format(x=2) }} {{ ', '.join(['p', 'q']) }}",
    'a-1 2 p, q',
  ],
  ["{{ 'a😀b'|length }} {{ -3 % 5 }} {{ 'ab' * 2 }} {{ 'x' ~ none ~ 1 }}", '3 2 abab xNone1'],
  ["{{ e.items()|list }} {{ 'items' in e }} {{ e['items'] }}", "[['items', 1]] True 1"],
  ["{{ strftime_now('%d %b %Y %-m') }}", '26 Jul 2024 7'],
  ['a\n  {% if true %}\nb\n  {% endif %}\nc', 'a\nb\nc'],
];
for (const [source, expected] of python) {
  test(`as in Python: ${JSON.stringify(source)}`, () => {
    const variables = { d: { a: [1, true, null, 'it\'s "x"\n'] }, e: { items: 1 } };
    assert.equal(render(source, variables), expected);
  });
}

const raising = [
  "{{ raise_exception('no') }}",
  '{{ missing.name }}',
  "{{ 'a' + 1 }}",
  "{{ 'a' + {} }}",
  "{{ [{'a': 1}]|map(attribute='a')|tojson }}",
  '{{ missing|tojson }}',
  '{% for x in none %}{% endfor %}',
  '{{ [].append(1) }}',
  "{{ 'unclosed }}",
  '{% for %}',
];
for (const source of raising) {
  test(`raises: ${source}`, () => assert.throws(() => render(source)));
}

test('a hostile template is an error', () => {
  assert.throws(() => render('{% for i in range(1000000000) %}{% endfor %}'), /too many items/);
  assert.throws(() => render("{{ 'x' * 1000000000 }}"), /too much text/);
  assert.throws(() => render('x'.repeat(2 << 20)), /1 MiB/);
});

// Without a cap on the characters processed, each would take hours or all memory.
const a16m =
  '{% set a = namespace(t="0123456789abcdef") %}{% for i in range(19) %}{% set a.t = a.t + a.t %}{% endfor %}';
const loops = '{% for i in range(90000) %}{% for j in range(90000) %}';
const hostile = {
  'nested loops': `${loops}x{% endfor %}{% endfor %}`,
  'nested loops of nothing': `${loops}{% endfor %}{% endfor %}`,
  'loops over a long string': `${a16m}{% for i in range(9000) %}{% for c in a.t %}{% endfor %}{% endfor %}`,
  'string doubling':
    '{% set a = namespace(t="x") %}{% for i in range(99) %}{% set a.t = a.t ~ a.t %}{% endfor %}',
  'list doubling':
    '{% set a = namespace(t=[1]) %}{% for i in range(99) %}{% set a.t = a.t + a.t %}{% endfor %}',
  'a list of itself, printed':
    '{% set a = namespace(t=[1]) %}{% for i in range(60) %}{% set a.t = [a.t, a.t] %}{% endfor %}{{ a.t }}',
  'a list of itself, as JSON':
    '{% set a = namespace(t=[1]) %}{% for i in range(60) %}{% set a.t = [a.t, a.t] %}{% endfor %}{{ a.t|tojson }}',
  'a list of itself, compared':
    '{% set a = namespace(t=[1]) %}{% for i in range(60) %}{% set a.t = [a.t, a.t] %}{% endfor %}{{ a.t == a.t }}',
  'a list of itself, in a namespace':
    '{% set a = namespace(t=[1]) %}{% for i in range(60) %}{% set a.t = [a.t, a.t] %}{% endfor %}{{ a }}',
  'a namespace in itself': '{% set a = namespace() %}{% set a.t = a %}{{ a }}',
  replace: `${a16m}{% for i in range(9000) %}{% set b = a.t.replace("q", "") %}{% endfor %}`,
  'the filter replace': `${a16m}{% for i in range(9000) %}{% set b = a.t|replace("q", "") %}{% endfor %}`,
  'replace that grows': `${a16m}{{ a.t.replace("0", a.t) }}`,
  'replace of nothing': `${a16m}{{ a.t.replace("", a.t) }}`,
  'a filter block': `${a16m}{% filter replace("0", a.t) %}{{ a.t }}{% endfilter %}`,
  'join that grows': `${a16m}{{ range(90000)|join(a.t) }}`,
  'join as a method': `${a16m}{% for i in range(9000) %}{% set b = a.t.join(["a", "b", "c", "d"]) %}{% endfor %}`,
  split: `${a16m}{% for i in range(9000) %}{% set b = a.t.split("0") %}{% endfor %}`,
  'split at white space': `${a16m}{% set b = a.t.replace("0", " ") %}{% for i in range(9000) %}{% set c = b.split() %}{% endfor %}`,
  format: `${a16m}{{ ("{0}" * 100000).format(a.t) }}`,
  'a method kept': `${a16m}{% set f = a.t.startswith %}{% for i in range(9000) %}{% if f(a.t) %}{% endif %}{% endfor %}`,
  'a method of a dictionary kept':
    '{% set f = {"a": 1, "b": 2}.items %}{% for i in range(90000) %}{% for j in range(900) %}{% set b = f() %}{% endfor %}{% endfor %}',
  searching: `${a16m}{% for i in range(9000) %}{% if "nothing" in a.t or a.t == a.t + "" %}{% endif %}{% endfor %}`,
  slices: `${a16m}{% for i in range(9000) %}{% set b = a.t[1:] %}{% endfor %}`,
  'upper case': `${a16m}{% for i in range(9000) %}{% set b = a.t|upper %}{% set c = a.t.lower() %}{% endfor %}`,
  trimming: `${a16m}{% for i in range(9000) %}{% set b = a.t|trim %}{% endfor %}`,
  ranges: '{% for i in range(90000) %}{% set b = range(90000) %}{% endfor %}',
  'a wide indent': '{{ "a\nb"|indent(500000000) }}',
  'a wide indent of JSON': '{{ [1]|tojson(indent=500000000) }}',
  'indent many times': `${a16m}{% set b = a.t.replace("0", "\n") %}{{ b|indent(900) }}`,
  sorting: `${a16m}{% set b = [a.t + "1", a.t + "2"] %}{% for i in range(9000) %}{% set c = b|sort %}{% endfor %}`,
  'a path of attributes': `${a16m}{% set p = a.t.replace("0", ".") %}{% for i in range(9000) %}{% set c = [{"a": 1}]|map(attribute=p)|list %}{% endfor %}`,
  'a macro without end': '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}',
  'macros that double':
    '{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}',
  'a deep expression': `{{ ${'('.repeat(200000)}1 }}`,
  'white space': `{{ 1 }}${' '.repeat(1 << 19)}x`,
  'deep lists': `{{ ${'['.repeat(200000)} }}`,
};
for (const [i, [name, source]] of Object.entries(hostile).entries()) {
  test(`a hostile template is stopped: ${name}`, { skip: i % 2 === 1 && longOnly }, () => {
    assert.throws(() => render(source), /too (much|many|far)|call stack|not a function/);
  });
}

test('strftime_now uses English in every locale', () => {
  assert.equal(strftime(noon, '%A %B %d %H:%M:%S %p %j %%'), 'Friday July 26 12:00:00 PM 208 %');
});
