// Chat templates: real ones against what Python's jinja2 renders (where the shared fixtures are
// there), and each point where the renderer is corrected on a template of its own.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { ChatTemplate, strftime } = await importWeb('templates');
const fixtures = new URL('../../../shared/fixtures/templates/', import.meta.url);
const noon = new Date(2024, 6, 26, 12);
const render = (source, variables = {}) => new ChatTemplate(source).render({ messages: [], ...variables }, noon);

test('70 real templates, five conversations each', { skip: !existsSync(fixtures) && 'the shared fixtures are not here' }, async (t) => {
  const { conversations, cases } = JSON.parse(readFileSync(new URL('expected.json', fixtures), 'utf8'));
  assert.equal(cases.length, 350);
  for (const { template, conversation, text } of cases) {
    await t.test(`${template}: ${conversation}`, () => {
      const source = readFileSync(new URL(`${template}.jinja`, fixtures), 'utf8');
      const tokens = { bos_token: '<BOS>', eos_token: '<EOS>', add_generation_prompt: true };
      const run = () => new ChatTemplate(source).render({ ...tokens, ...conversations[conversation] }, noon);
      if (text === undefined) assert.throws(run);
      else assert.equal(run(), text);
    });
  }
});

const python = [
  ["{{ d }} {{ d|string }}", "{'a': [1, True, None, 'it\\'s \"x\"\\n']} {'a': [1, True, None, 'it\\'s \"x\"\\n']}"],
  ["{{ none }}{{ true }}{{ missing }}{{ 1.0 }}", 'NoneTrue1.0'],
  ["{{ 1 == '1' }} {{ [1, {'a': 2}] == [1, {'a': 2}] }} {{ none in [none] }}", 'False True True'],
  ["{{ '\\n x \\n'.strip('\\n') }}|{{ ' xx'.lstrip() }}|{{ 'axa'.rstrip('a') }}", ' x |xx|ax'],
  ["{% for k, v in {3: 'c', 1: 'a'} | dictsort %}{{ k + 1 }}{{ v }}{% endfor %}{{ {3: 'c'}[3] }}", '2a4cc'],
  ["{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }};{% endfor %}{{ (1, 2) }}", '12;34;(1, 2)'],
  ["{{ '<b>'|safe + '<i>' }} {{ '<b>' + '<i>' }}", '<b>&lt;i&gt; <b><i>'],
  ["{{ [3, 1, 2]|min }}{{ [3, 1, 2]|max }}{{ ['b ', ' a']|map('trim')|join('-') }}", '13b-a'],
  ["{{ none|selectattr('x')|list|length }}{% for x in missing %}!{% endfor %}{{ missing|trim }}", '0'],
  ["{{ '{}-{}'.format('a', 1) }} {{ '{x}'.format(x=2) }} {{ ', '.join(['p', 'q']) }}", 'a-1 2 p, q'],
  ["{{ 'a😀b'|length }} {{ -3 % 5 }} {{ 'ab' * 2 }} {{ 'x' ~ none ~ 1 }}", '3 2 abab xNone1'],
  ["{{ e.items()|list }} {{ 'items' in e }} {{ e['items'] }}", "[['items', 1]] True 1"],
  ["{{ strftime_now('%d %b %Y %-m') }}", '26 Jul 2024 7'],
  ["a\n  {% if true %}\nb\n  {% endif %}\nc", 'a\nb\nc'],
];
for (const [source, expected] of python) {
  test(`as in Python: ${JSON.stringify(source)}`, () => {
    const variables = { d: { a: [1, true, null, 'it\'s "x"\n'] }, e: { items: 1 } };
    assert.equal(render(source, variables), expected);
  });
}

const raising = [
  "{{ raise_exception('no') }}", "{{ missing.name }}", "{{ 'a' + 1 }}", "{{ 'a' + {} }}",
  "{{ [{'a': 1}]|map(attribute='a')|tojson }}", "{{ missing|tojson }}", "{% for x in none %}{% endfor %}",
  "{{ [].append(1) }}", "{{ 'unclosed }}", "{% for %}",
];
for (const source of raising) {
  test(`raises: ${source}`, () => assert.throws(() => render(source)));
}

test('a hostile template is cut off', () => {
  assert.throws(() => render('{% for i in range(1000000000) %}{% endfor %}'), /too far/);
  const nested = '{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}';
  assert.throws(() => render(nested), /too many steps/);
  assert.throws(() => render("{{ 'x' * 1000000000 }}"), /too much text/);
  assert.throws(() => render('x'.repeat(2 << 20)), /megabyte/);
});

test('strftime speaks English whatever the locale', () => {
  assert.equal(strftime(noon, '%A %B %d %H:%M:%S %p %j %%'), 'Friday July 26 12:00:00 PM 208 %');
});
