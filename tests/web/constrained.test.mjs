// Constrained decoding through the package in Node, on the sample model at a temperature where it
// would generate anything. Every output matches its constraint, or the error has a code. Also stop
// tokens and the bytes of tokens, made likely by a bias.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { root } from './helpers.mjs';
import { isJsonPrefix } from './json-prefix.mjs';

const model = join(root, 'examples', 'models', 'sluice-tales-Q8_0.gguf');
const options = { memoryBudget: 64e6, contextLength: 256, threads: 1, cache: 'none' };
const wild = { temperature: 2, maxTokens: 200 };
let Engine;
let engine;

before(async () => {
  ({ Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href));
  engine = await Engine.load(model, { ...options, structuredOutput: true });
});
after(() => engine?.dispose());

const answer = (more) => engine.generate('Once upon a time', { ...wild, ...more }).result;

test('with a schema every complete output is a value of it', async () => {
  const jsonSchema = {
    type: 'object',
    required: ['mood', 'age'],
    additionalProperties: false,
    properties: {
      mood: { enum: ['glad', 'sad'] },
      age: { type: 'integer', minimum: 1, maximum: 99 },
    },
  };
  for (let seed = 1; seed <= 20; seed++) {
    const { text, finishReason } = await answer({ jsonSchema, seed });
    assert.equal(finishReason, 'stop', text);
    const { mood, age, ...rest } = JSON.parse(text);
    assert.ok(
      ['glad', 'sad'].includes(mood) && Number.isInteger(age) && age >= 1 && age <= 99,
      text,
    );
    assert.deepEqual(rest, {});
  }
});

test('choice, regex, GBNF grammar, any JSON', async () => {
  const ended = { grammar: 0, json: 0 };
  for (let seed = 1; seed <= 5; seed++) {
    assert.ok(
      ['yes', 'no', 'perhaps'].includes(
        (await answer({ choice: ['yes', 'no', 'perhaps'], seed })).text,
      ),
    );
    assert.match(
      (await answer({ regex: '[0-9]{4}-(0[1-9]|1[0-2])', seed })).text,
      /^[0-9]{4}-(0[1-9]|1[0-2])$/,
    );
    const list = await answer({ grammar: 'root ::= ("ab" | "c")+ "."', maxTokens: 100, seed });
    assert.match(list.text, list.finishReason === 'stop' ? /^(ab|c)+\.$/ : /^(ab|c)*(a|[bc]\.)?$/);
    if (list.finishReason === 'stop') ended.grammar++;
    const { text, finishReason } = await answer({ jsonSchema: true, temperature: 0.8, seed });
    if (finishReason === 'stop') {
      JSON.parse(text);
      ended.json++;
    } else {
      assert.ok(isJsonPrefix(text), text);
    }
  }
  assert.ok(ended.grammar > 0 && ended.json > 0, JSON.stringify(ended));
});

test('isJsonPrefix() accepts beginnings of JSON and rejects other text', () => {
  for (const text of ['', '{"a": [1, "b', '[tru', '{"a":', '"\\u00', '{"a": {"b": -'])
    assert.ok(isJsonPrefix(text), text);
  for (const text of ['Once', '{"a" 1', '[1 2', '{]', '{"a": 1} x', '{"a": tur', '[01'])
    assert.ok(!isJsonPrefix(text), text);
});

test('unconstrained output is unchanged after constrained and abandoned generations', async () => {
  const free = () => engine.generate('Once upon a time', { temperature: 0, maxTokens: 20 }).text();
  const expected = await free();
  await answer({ choice: ['yes'] });
  assert.equal(await free(), expected);
  for await (const piece of engine.generate('Once', { ...wild, jsonSchema: true }))
    if (piece) break;
  assert.equal(await free(), expected);
});

test('invalid constraints are errors with a code, and the engine still works', async () => {
  for (const [more, code] of [
    [{ grammar: 'root ::= (' }, 'GRAMMAR_SYNTAX'],
    [{ grammar: 'root ::= root "a"' }, 'GRAMMAR_LEFT_RECURSION'],
    [{ regex: '(a' }, 'GRAMMAR_SYNTAX'],
    [
      { jsonSchema: { type: 'array', items: { type: 'number' }, uniqueItems: true } },
      'SCHEMA_UNSUPPORTED',
    ],
  ]) {
    await assert.rejects(answer(more), { code }, JSON.stringify(more));
  }
  for (const more of [
    { regex: 'a', choice: ['a'] },
    { grammar: 5 },
    { choice: 'a' },
    { jsonSchema: false },
  ]) {
    await assert.rejects(
      async () => answer(more),
      { code: 'INVALID_ARGUMENT' },
      JSON.stringify(more),
    );
  }
  assert.equal((await answer({ choice: ['yes'] })).text, 'yes');
});

const likely = (token) => ({ temperature: 0, maxTokens: 3, logitBias: { [token]: 1000 } });
const kUser = 1; // <|user|>
const kHalf = 5 + 0xc3; // the first byte of a character of two

test('a stop string that is a control token, and stop tokens, end the text', async () => {
  for (const skipSpecialTokens of [true, false])
    for (const [more, stopString] of [
      [{ stop: ['no', '<|user|>'] }, '<|user|>'],
      [{ stopTokenIds: [2, kUser] }, undefined],
    ]) {
      const options = { ...likely(kUser), skipSpecialTokens, ...more };
      const { text, finishReason, usage, ...rest } = await engine.generate('Once', options).result;
      assert.deepEqual([text, finishReason, usage.completionTokens], ['', 'stop', 0]);
      assert.equal(rest.stopString, stopString);
    }
  for (const stopTokenIds of [[-1], [1e9], ['a'], 5])
    await assert.rejects(async () => engine.generate('Once', { stopTokenIds }).result, {
      code: 'INVALID_ARGUMENT',
    });
});

test("logprobs have a token's own bytes and a control token's name", async () => {
  for (const [token, name, bytes] of [
    [kUser, '<|user|>', [...Buffer.from('<|user|>')]],
    [kHalf, '\ufffd', [0xc3]],
  ]) {
    const chat = await engine.chat.completions.create({
      messages: [{ role: 'user', content: 'Hi' }],
      logprobs: true,
      top_logprobs: 1,
      max_tokens: 1,
      temperature: 0,
      logit_bias: { [token]: 100 },
    });
    const [entry] = chat.choices[0].logprobs.content;
    assert.deepEqual([entry.token, entry.bytes], [name, bytes]);
    assert.ok(entry.top_logprobs[0].bytes.length > 0);
    for await (const piece of engine.generate('Once', { ...likely(token), logprobs: 1 })) {
      assert.deepEqual([...piece.bytes], bytes);
      assert.ok(piece.topLogprobs[0].bytes instanceof Uint8Array);
    }
  }
});

test('a constraint has its memory set aside when it is first used', async () => {
  const greedy = { maxTokens: 8, temperature: 0, ignoreEos: true };
  const { minimum } = (await Engine.inspect(model, { ...options, structuredOutput: true })).plan;
  for (const memoryBudget of [minimum, minimum + 2 ** 19, minimum + 2 ** 26]) {
    const small = await Engine.load(model, { ...options, memoryBudget });
    const before = await small.generate('Once', greedy).text();
    assert.equal(small.memory().grammar, 0);
    // Calls stay in their order, and other generations run beside it.
    const [first, bound, last] = ['Once', 'x', 'Once'].map((prompt, i) =>
      small.generate(prompt, i === 1 ? { choice: ['a', 'bc'] } : greedy),
    );
    assert.match(await bound.text(), /^(a|bc)$/);
    assert.deepEqual([await first.text(), await last.text()], [before, before]);
    const { grammar, total, budget, heap } = small.memory();
    assert.ok(grammar > 1e7 && total <= budget && heap <= budget, `${grammar} ${total} ${heap}`);
    assert.match(await small.generate('x', { regex: '[0-9]{3}' }).text(), /^\d{3}$/);
    await small.dispose();
  }
});

test('a constraint that does not fit names the option and the smallest budget', async () => {
  const plan = async (structuredOutput) =>
    (await Engine.inspect(model, { ...options, structuredOutput })).plan;
  const { minimum, grammar } = await plan(true);
  const { minimum: memoryBudget } = await plan(false);
  const small = await Engine.load(model, { ...options, memoryBudget });
  const greedy = { maxTokens: 8, temperature: 0 };
  const before = await small.generate('Once', greedy).text();
  for (let i = 0; i < 2; i++)
    await assert.rejects(small.generate('x', { choice: ['a'] }).result, {
      code: 'BUDGET_TOO_SMALL',
      message: new RegExp(
        `smallest that works is ${minimum} bytes, ${grammar} of .*structuredOutput`,
      ),
    });
  assert.equal(await small.generate('Once', greedy).text(), before);
  await small.dispose();
  const off = await Engine.load(model, { ...options, structuredOutput: false });
  await assert.rejects(off.generate('x', { choice: ['a'] }).result, {
    code: 'BUDGET_TOO_SMALL',
    message: /structuredOutput: false/,
  });
  const schema = { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'null' } } };
  const messages = [{ role: 'user', content: 'x' }];
  await assert.rejects(off.chat.completions.create({ messages, response_format: schema }), {
    code: 'INVALID_ARGUMENT',
    message: /structuredOutput: false/,
  });
  await off.dispose();
});
