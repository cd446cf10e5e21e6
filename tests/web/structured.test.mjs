// Structured output through the package in Node, on the sample model at a temperature where it
// would generate anything: random schemas checked with Ajv, response_format, partial values, and
// tool calls with arguments of their schemas in the format of every template of the shared
// fixtures.
import assert from 'node:assert/strict';
import Ajv from 'ajv/dist/2020.js';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { opened, renderer } from './chat-template.mjs';
import { importWeb, root } from './helpers.mjs';
import { isJsonPrefix } from './json-prefix.mjs';
import { randomSchema, shrunk } from './random-schemas.mjs';
import { read, rendered } from './tool-rounds.mjs';

const { ChatCompletions } = await importWeb('chat/completions');
const { sluice } = await importWeb('ai-sdk');
const model = join(root, 'examples', 'models', 'sluice-tales-Q8_0.gguf');
const wild = { temperature: 2, topK: 0, topP: 1, minP: 0 };
const wildChat = { temperature: 2, top_k: 0, top_p: 1, min_p: 0 };
const ajv = new Ajv({ strict: false });
let engine;

before(async () => {
  const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);
  engine = await Engine.load(model, {
    memoryBudget: 64e6,
    contextLength: 512,
    threads: 1,
    cache: 'none',
    structuredOutput: true,
  });
});
after(() => engine?.dispose());

// --- random schemas -----------------------------------------------------------------------------

/**
 * What is wrong with the output for a schema: '' if nothing, 'length' if it was cut off, 'refused'
 * if the schema is unsupported.
 */
async function fault(jsonSchema, seed) {
  let answer;
  try {
    answer = await engine.generate('Once', { ...wild, jsonSchema, seed, maxTokens: 400 }).result;
  } catch (error) {
    return error.code === 'SCHEMA_UNSUPPORTED' ? 'refused' : `${error.code}: ${error.message}`;
  }
  if (answer.finishReason === 'length')
    return isJsonPrefix(answer.text) ? 'length' : `${answer.text}: not the beginning of JSON`;
  try {
    const value = JSON.parse(answer.text);
    return ajv.validate(jsonSchema, value) ? '' : `${answer.text}: ${ajv.errorsText()}`;
  } catch (error) {
    return `${answer.text}: ${error.message}`;
  }
}
const isWrong = (what) => !['', 'length', 'refused'].includes(what);

const schemas = Number(process.env.SLUICE_RANDOM_SCHEMAS ?? 40);
test(`${schemas} random schemas: every complete output is a value of its schema`, async (t) => {
  const first = Number(process.env.SLUICE_RANDOM_SEED ?? 1);
  const count = { '': 0, length: 0, refused: 0 };
  for (let seed = first; seed < first + schemas; seed++) {
    const schema = randomSchema(seed);
    const what = await fault(schema, seed);
    if (isWrong(what)) {
      const least = await shrunk(schema, async (less) =>
        isWrong(await fault(less, seed).catch(() => '')),
      );
      assert.fail(
        `seed ${seed}: ${what}\n${JSON.stringify(schema)}\nsmallest: ${JSON.stringify(least)}\n${await fault(least, seed)}`,
      );
    }
    count[what]++;
  }
  t.diagnostic(`${count['']} valid, ${count.length} cut off, ${count.refused} refused`);
  assert.ok(count[''] >= schemas * 0.8, JSON.stringify(count));
});

test('a failing schema shrinks to its failing part', async () => {
  const big = {
    type: 'object',
    properties: {
      a: { type: 'string', maxLength: 3 },
      b: { type: 'array', items: { const: 'bad' } },
    },
    required: ['a', 'b'],
  };
  const least = await shrunk(big, async (schema) => JSON.stringify(schema).includes('"bad"'));
  assert.ok(JSON.stringify(least).length <= 60, JSON.stringify(least));
});

// --- OpenAI-compatible API ----------------------------------------------------------------------

const messages = [{ role: 'user', content: 'Hi' }];
const person = {
  type: 'object',
  required: ['name', 'age'],
  additionalProperties: false,
  properties: {
    name: { type: 'string', maxLength: 10 },
    age: { type: 'integer', minimum: 0, maximum: 120 },
  },
};
const named = (schema) => ({
  type: 'json_schema',
  json_schema: { name: 'person', strict: true, schema },
});
const isPerson = (text) => assert.ok(ajv.validate(person, JSON.parse(text)), text);

test('response_format: a schema, complete and streamed', async () => {
  for (let seed = 1; seed <= 5; seed++) {
    const answer = await engine.chat.completions.create({
      messages,
      response_format: named(person),
      seed,
      ...wildChat,
    });
    isPerson(answer.choices[0].message.content);
    assert.equal(answer.choices[0].finish_reason, 'stop');
    let streamed = '';
    const stream = await engine.chat.completions.create({
      messages,
      response_format: named(person),
      seed,
      stream: true,
      ...wildChat,
    });
    for await (const chunk of stream) streamed += chunk.choices[0]?.delta.content ?? '';
    assert.equal(streamed, answer.choices[0].message.content);
    const text = await engine.completions.create({
      prompt: 'x',
      response_format: named(person),
      seed,
      max_tokens: 200,
      ...wildChat,
    });
    isPerson(text.choices[0].text);
  }
});

test('response_format: any object', async () => {
  const ended = { stop: 0, length: 0 };
  const [brace] = await engine.tokenize('}', { addSpecial: false });
  for (let seed = 1; seed <= 8; seed++) {
    const any = await engine.chat.completions.create({
      messages,
      response_format: { type: 'json_object' },
      seed,
      max_tokens: 200,
      ...wildChat,
      logit_bias: seed % 2 ? { [brace]: 12 } : undefined,
    });
    const {
      message: { content },
      finish_reason,
    } = any.choices[0];
    ended[finish_reason]++;
    assert.match(content, /^\s*\{/);
    if (finish_reason === 'stop') assert.equal(typeof JSON.parse(content), 'object');
    else assert.ok(isJsonPrefix(content), content);
  }
  assert.ok(ended.stop >= 3, JSON.stringify(ended));
});

test('an invalid response_format is an error with a code', async () => {
  const create = (response_format) => engine.chat.completions.create({ messages, response_format });
  for (const format of [
    { type: 'xml' },
    { type: 'json_schema' },
    { type: 'json_schema', json_schema: { name: 'x', schema: 5 } },
  ]) {
    await assert.rejects(create(format), { code: 'INVALID_ARGUMENT' }, JSON.stringify(format));
  }
  const unique = { type: 'array', items: { type: 'number' }, uniqueItems: true };
  await assert.rejects(create(named(unique)), {
    code: 'SCHEMA_UNSUPPORTED',
    message: /uniqueItems/,
  });
  assert.equal((await create({ type: 'text' })).choices[0].message.role, 'assistant');
});

test('schema libraries: by Standard Schema, by toJSONSchema(), and one with neither', async () => {
  const standard = {
    '~standard': {
      version: 1,
      vendor: 'x',
      jsonSchema: { input: ({ target }) => (assert.equal(target, 'draft-2020-12'), person) },
    },
  };
  const own = {
    '~standard': { version: 1, vendor: 'x' },
    toJSONSchema: ({ io }) => (assert.equal(io, 'input'), person),
  };
  const callable = Object.assign(() => {}, standard);
  for (const schema of [standard, own, callable]) {
    isPerson(await engine.generate('Once', { jsonSchema: schema, ...wild, seed: 2 }).text());
    const answer = await engine.chat.completions.create({
      messages,
      response_format: named(schema),
      ...wildChat,
      seed: 2,
    });
    isPerson(answer.choices[0].message.content);
  }
  const silent = { '~standard': { version: 1, vendor: 'x' } };
  await assert.rejects(engine.generate('Once', { jsonSchema: silent }).result, {
    code: 'INVALID_ARGUMENT',
    message: /JSON schema/,
  });
});

test('a JSON schema is used as it is, with a hidden schema object of its library too', async () => {
  const fox = { ...person, properties: { ...person.properties, name: { enum: ['fox'] } } };
  const other = () => ({ type: 'array' });
  const value = { version: 1, vendor: 'zod', jsonSchema: { input: other, output: other } };
  Object.defineProperty(fox, '~standard', { enumerable: false, value });
  const text = await engine.generate('Once', { jsonSchema: fox, ...wild, seed: 2 }).text();
  const answer = await engine.chat.completions.create({
    messages,
    response_format: named(fox),
    ...wildChat,
    seed: 2,
  });
  for (const each of [text, answer.choices[0].message.content]) {
    isPerson(each);
    assert.equal(JSON.parse(each).name, 'fox');
  }
});

test('partial values grow to the final value', async () => {
  const generation = engine.generate('Once', { jsonSchema: person, ...wild, seed: 3 });
  const seen = [];
  for await (const partial of generation.partials()) seen.push(partial);
  const value = JSON.parse(await generation.text());
  assert.deepEqual(seen.at(-1), value);
  assert.ok(seen.length >= 3, JSON.stringify(seen));
  for (const partial of seen)
    assert.ok(value.name.startsWith(partial.name ?? ''), JSON.stringify(partial));
  const endless = { type: 'array', items: { type: 'string', maxLength: 9 }, minItems: 100 };
  const left = engine.generate('Once', { jsonSchema: endless, ...wild, seed: 3 });
  for await (const partial of left.partials()) if (partial !== undefined) break;
  assert.equal((await left.result).finishReason, 'cancelled');
});

test('the AI SDK provider returns objects and strict tool calls', async () => {
  const language = sluice(engine);
  const prompt = [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }];
  const { content, warnings } = await language.doGenerate({
    prompt,
    temperature: 2,
    responseFormat: { type: 'json', schema: person },
  });
  isPerson(content[0].text);
  assert.deepEqual(warnings, []);
  const calls = await language.doGenerate({
    prompt,
    temperature: 2,
    toolChoice: { type: 'required' },
    providerOptions: { sluice: { chat_template: hermesTemplate } },
    tools: [{ type: 'function', name: 'save', inputSchema: person, strict: true }],
  });
  assert.ok(calls.content.length > 0);
  assert.deepEqual(
    calls.content.map((part) => [part.type, part.toolName]),
    Array(calls.content.length).fill(['tool-call', 'save']),
  );
  for (const part of calls.content) isPerson(part.input);
});

// --- tools --------------------------------------------------------------------------------------

const hermesTemplate =
  '{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson }}<tool_call>';
const parameters = {
  type: 'object',
  required: ['unit', 'days'],
  additionalProperties: false,
  properties: {
    unit: { type: 'string', enum: ['C', 'F'] },
    days: { type: 'integer', minimum: 0, maximum: 99 },
    wind: { anyOf: [{ type: 'boolean' }, { type: 'null' }] },
    mood: { type: 'string', enum: ['"', 'so so'] },
  },
};
const tools = ['weather', 'time_of-day'].map((name) => ({
  type: 'function',
  function: { name, description: 'D', parameters, strict: true },
}));

/**
 * Chat on the engine with a minimal prompt in place of the real one: the output has the same
 * constraint, but for reasoning, which the sample model would never end.
 */
function shortPrompts() {
  const asked = [];
  const answer = (prompt, options, { constraint }) => {
    asked.push({ prompt, options, constraint });
    const text = constraint?.text.replace(/^(thought ::=) %until \[.*?"\] /m, '$1 "Hm." ');
    const own = constraint?.kind === 4 ? { jsonSchema: JSON.parse(text) } : { grammar: text };
    return engine.generate('Once', { ...options, ...own, literalSpans: false });
  };
  const prompts = renderer(
    engine.info,
    () => {},
    () => engine.ask('controlTokens'),
  );
  const chat = new ChatCompletions({
    info: engine.info,
    structuredOutput: true,
    answer,
    turn: (work) => work(),
    prompts: async () => prompts,
  });
  return { chat, asked };
}

const isCall = ({ function: { name, arguments: json } }, names = ['weather', 'time_of-day']) => {
  assert.ok(names.includes(name), name);
  assert.ok(ajv.validate(parameters, JSON.parse(json)), json);
};

test('tool_choice: a required call, a named one, several or only one, with valid arguments', async () => {
  const { chat } = shortPrompts();
  let most = 0;
  for (let seed = 1; seed <= 8; seed++) {
    const params = {
      messages,
      tools,
      chat_template: hermesTemplate,
      max_tokens: 400,
      seed,
      ...wildChat,
    };
    const { message, finish_reason } = (await chat.create({ ...params, tool_choice: 'required' }))
      .choices[0];
    assert.deepEqual([finish_reason, message.content], ['tool_calls', null]);
    message.tool_calls.forEach((call) => isCall(call));
    most = Math.max(most, message.tool_calls.length);
    const choice = { type: 'function', function: { name: 'weather' } };
    const one = (await chat.create({ ...params, tool_choice: choice, parallel_tool_calls: false }))
      .choices[0].message.tool_calls;
    assert.equal(one.length, 1);
    isCall(one[0], ['weather']);
  }
  assert.ok(most > 1);
});

test('text before a call is free, and a call that begins is always completed', async () => {
  const { chat, asked } = shortPrompts();
  const params = { messages, tools, chat_template: hermesTemplate, max_tokens: 20, ...wildChat };
  const { message } = (await chat.create({ ...params, seed: 1 })).choices[0];
  assert.ok(message.content.length > 10 && !message.tool_calls, JSON.stringify(message));
  const { text: grammar } = asked[0].constraint;
  const text = (ending) =>
    engine
      .generate('Once', {
        grammar: `${grammar.replace(/^root ::= .*/, '')}\nroot ::= "${ending}" answer`,
        ...wild,
        seed: 1,
        maxTokens: 60,
      })
      .text();
  assert.ok((await text('Hm. <tool_')).startsWith('Hm. <tool_'));
  // After the tag the grammar allows only a call, whatever the model prefers.
  const call = await engine
    .generate('Once', {
      grammar: grammar.replace('%until ["<tool_call>"]', '"So: "').replace('( calls )?', 'calls'),
      ...wild,
      seed: 1,
      maxTokens: 300,
    })
    .text();
  assert.match(call, /^So: <tool_call>\n\{"name": "(weather|time_of-day)", "arguments": /);
});

test('reasoning comes first, then a call or a value', async () => {
  const { chat, asked } = shortPrompts();
  const chat_template = `${hermesTemplate}<think>`;
  await chat.create({ messages, tools, tool_choice: 'required', chat_template, max_tokens: 2 });
  await chat.create({ messages, response_format: named(person), chat_template, max_tokens: 2 });
  for (const [
    {
      constraint: { text: grammar },
    },
    ends,
  ] of [
    [asked[0], /^<tool_call>/],
    [asked[1], /^\{"name":"/],
  ]) {
    const short = grammar.replace('%until ["</think>"]', '"Hm."');
    const text = await engine
      .generate('Once', { grammar: short, ...wild, seed: 4, maxTokens: 300 })
      .text();
    assert.ok(text.startsWith('Hm.</think>'), text);
    assert.match(text.slice(11).trimStart(), ends);
  }
});

test('an unsupported keyword is an error that names it, and structuredOutput: false refuses strict', async () => {
  const { chat } = shortPrompts();
  const xml = '{{ messages[0].content }}{{ tools }}<tool_call><function=x><parameter=y>';
  const create = (properties, more = {}) =>
    chat.create({
      messages,
      chat_template: xml,
      tool_choice: 'required',
      ...more,
      tools: [
        {
          type: 'function',
          function: { name: 'f', strict: true, parameters: { type: 'object', properties } },
        },
      ],
    });
  for (const own of [
    { type: 'string', pattern: 'a' },
    { type: 'string', maxLength: 3 },
    { $ref: '#/properties/b' },
    { minimum: 3 },
    { allOf: [{}] },
  ]) {
    await assert.rejects(create({ a: own }), { code: 'SCHEMA_UNSUPPORTED' }, JSON.stringify(own));
  }
  await assert.rejects(
    chat.create({ messages, tools, tool_choice: 'auto', chat_template: '{{ messages }}' }),
    { code: 'INVALID_ARGUMENT', message: /strict/ },
  );
  const without = new ChatCompletions({
    info: engine.info,
    structuredOutput: false,
    turn: (work) => work(),
    answer: assert.fail,
    prompts: () => engine.prompts(),
  });
  await assert.rejects(without.create({ messages, tools, chat_template: hermesTemplate }), {
    code: 'INVALID_ARGUMENT',
    message: /structuredOutput: false/,
  });
});

const fixtures = join(root, '..', 'shared', 'fixtures', 'templates');
/**
 * Templates that list tools but render no calls, one that takes arguments only as text, and two that
 * jinja2's sandbox stops at a call. Calls become text for some of them.
 */
const kSilent =
  /^(LFM2-8B|LFM2\.5-Instruct|ibm-granite-granite-3\.3|deepseek-ai-DeepSeek-R1-Distill-Llama|Kimi-K2-)/;
const skip = existsSync(fixtures) ? false : 'no ../shared/fixtures/templates';
test(
  'every tool call format of the templates: generated, parsed, valid, rendered again',
  { skip },
  async (t) => {
    const { chat } = shortPrompts();
    const done = [];
    for (const file of readdirSync(fixtures)
      .filter((name) => name.endsWith('.jinja'))
      .sort()) {
      const chat_template = readFileSync(join(fixtures, file), 'utf8');
      const params = {
        messages,
        tools,
        tool_choice: 'required',
        parallel_tool_calls: false,
        chat_template,
        max_tokens: 400,
        seed: 5,
        ...wildChat,
      };
      let answer;
      try {
        answer = await chat.create(params);
      } catch (error) {
        const unsupported =
          error.code === 'INVALID_ARGUMENT' && /support tools/.test(error.message);
        assert.ok(unsupported || error.code === 'CHAT_TEMPLATE', `${file}: ${error.message}`);
        continue;
      }
      const { message, finish_reason } = answer.choices[0];
      assert.equal(finish_reason, 'tool_calls', `${file}: ${JSON.stringify(message)}`);
      assert.equal(message.tool_calls.length, 1, file);
      isCall(message.tool_calls[0]);
      const [{ function: called }] = message.tool_calls;
      const call = [called.name, JSON.parse(called.arguments)];
      const make = () =>
        opened(chat_template, { tools: JSON.stringify(tools), canConstrain: true });
      // Templates take arguments as an object or as text. Some raise on the other, some on missing
      // variables.
      const back = [];
      for (const asText of [false, true]) {
        try {
          const { text, result } = await rendered(chat_template, tools, [call], asText);
          back.push({ calls: (await read(make, text, [])).calls, text, result });
        } catch {} // see above
      }
      if (back.length === 0 && !kSilent.test(file)) continue;
      done.push(file);
      if (kSilent.test(file)) continue;
      assert.ok(
        back.some(({ calls, result }) => result && isDeepStrictEqual(calls, [call])),
        `${file}: ${JSON.stringify([call, ...back])}`,
      );
    }
    t.diagnostic(`${done.length} templates`);
    assert.ok(done.length >= 50, `${done.length}`);
  },
);
