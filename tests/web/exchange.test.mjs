// Requests and responses in chat.wasm, in Node: what the engine is asked to do, errors, and memory.
// What each field may be, and what responses look like, is in tests/serve/requests.json.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { renderer } from './chat-template.mjs';
import { importWeb } from './helpers.mjs';

const { ChatCompletions, Completions } = await importWeb('chat/completions');
const { unmarked } = await importWeb('protocol/literal-spans');

const messages = [{ role: 'user', content: 'Hi' }];
const chatTemplate =
  '{{ tools | length if tools else 0 }}{% for m in messages %}[{{ m.role }}]{{ m.content }}' +
  '{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}';
const info = { name: 'script', chatTemplate, vocabSize: 1000 };
const prompts = renderer(info);
const paths = { chat: '/v1/chat/completions', text: '/v1/completions' };

/** The generations that a body asks for. */
async function jobs(kind, body) {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const exchange = await prompts.open(paths[kind], text, 'm');
  try {
    return await prompts.plan(exchange, true);
  } finally {
    exchange.close();
  }
}

const counts = {
  usage: { promptTokens: 7, cachedTokens: 2, completionTokens: 1, totalTokens: 8 },
  timings: { promptMs: 3, generateMs: 4 },
};
const ended = { ...counts, text: '', finishReason: 'stop' };

test('each field reaches the engine', async () => {
  const [{ prompt, options, extra }, ...others] = await jobs('chat', {
    messages,
    ...{ temperature: 0.5, top_k: 3, top_p: 0.25, min_p: 0.125, repeat_penalty: 1.5 },
    ...{ frequency_penalty: 0.75, presence_penalty: 2, repeat_last_n: -1, max_tokens: 9 },
    ...{ seed: 5, stop: 'x', stop_token_ids: [8, 9], logit_bias: { 7: 1.5, 6: false } },
    ...{ ignore_eos: true, cache_prompt: false, post_sampling_probs: true, n_probs: 4 },
    ...{ timings_per_token: true, grammar: 'root ::= "a"' },
  });
  assert.equal(others.length, 0);
  assert.equal(unmarked(prompt), '0[user]Hi[assistant]');
  assert.deepEqual(options, {
    ...{ temperature: 0.5, topK: 3, topP: 0.25, minP: 0.125, repeatPenalty: 1.5 },
    ...{ frequencyPenalty: 0.75, presencePenalty: 2, penaltyLastN: -1, maxTokens: 9 },
    ...{ seed: 5n, stop: ['x'], stopTokenIds: [8, 9], logitBias: { 7: 1.5, 6: -Infinity } },
    ...{ ignoreEos: true, cachePrompt: false, postSamplingProbs: true, logprobs: 4 },
    ...{ skipSpecialTokens: true, literalSpans: true, addSpecial: false },
  });
  assert.deepEqual(extra, { constraint: { kind: 0, text: 'root ::= "a"' }, reportCounts: true });
});

test('seeds have 64 bits, and each further choice adds one', async () => {
  const list = await jobs('text', '{"prompt":["a",[5,6]],"seed":18446744073709551615,"n":2}');
  assert.deepEqual(
    list.map(({ prompt, options }) => [prompt, options.seed]),
    [
      ['a', 2n ** 64n - 1n],
      ['a', 0n],
      [[5, 6], 2n ** 64n - 1n],
      [[5, 6], 0n],
    ],
  );
  const random = new Set();
  for (let i = 0; i < 3; i++) random.add((await jobs('text', { prompt: 'a' }))[0].options.seed);
  assert.equal(random.size, 3);
});

test('a schema is the text of the request', async () => {
  const schema = '{"const": 1234567890123456789}';
  const [{ extra }] = await jobs('text', `{"prompt":"a","json_schema":${schema}}`);
  assert.deepEqual(extra, { constraint: { kind: 4, text: schema } });
});

test('the end of the prompt is what the fields ask for', async () => {
  const turns = [...messages, { role: 'assistant', content: 'Well' }];
  for (const [fields, end] of [
    [{ add_generation_prompt: false }, 'Well'],
    [{ continue_final_message: true }, 'Well'],
    [{}, '[assistant]'],
  ]) {
    const [{ prompt }] = await jobs('chat', { messages: turns, ...fields });
    assert.ok(unmarked(prompt).endsWith(end), prompt);
  }
});

test('an error is described as the API does, whoever found it', async () => {
  await assert.rejects(jobs('chat', { messages, temperature: 'x' }), {
    code: 'INVALID_ARGUMENT',
    status: 400,
    param: 'temperature',
  });
  await assert.rejects(jobs('text', { prompt: 'a', logit_bias: { 1000: 1 } }), {
    param: 'logit_bias',
    body: /"param":"logit_bias"/,
  });
  await assert.rejects(prompts.open('/nowhere', '{}', 'm'), { status: 404, code: 'unknown_url' });
  for (const [error, status, code, type] of [
    [{ code: 'GRAMMAR_SYNTAX' }, 400, 'GRAMMAR_SYNTAX', 'invalid_request_error'],
    [{ code: 'PROMPT_TOO_LONG' }, 400, 'context_length_exceeded', 'invalid_request_error'],
    [{ code: 'WORKER_LOST' }, 500, 'WORKER_LOST', 'server_error'],
    [{ code: 'rate_limit_exceeded', status: 429 }, 429, 'rate_limit_exceeded', 'rate_limit_error'],
  ]) {
    const described = await prompts.describe(paths.chat, { message: 'No "x".', ...error });
    assert.deepEqual([described.status, described.code], [status, code]);
    assert.deepEqual(JSON.parse(described.body), {
      error: { message: 'No "x".', type, param: null, code },
    });
  }
});

test('logprobs have bytes of parts of a character; counts are reported with a token', async () => {
  const body = { messages, logprobs: true, top_logprobs: 1, stream: true, timings_per_token: true };
  const exchange = await prompts.open(paths.chat, JSON.stringify(body), 'm');
  await prompts.plan(exchange, true);
  const [{ choices: first }] = framesOf(exchange.begin());
  assert.deepEqual(first[0].delta, { role: 'assistant', content: '' });
  const bytes = Uint8Array.of(0xf0, 0x9f);
  const top = { token: 4, text: '�', bytes, logprob: -0.5 };
  const piece = { text: '', token: 4, bytes, logprob: -0.5, topLogprobs: [top], counts };
  const [{ choices, timings }] = framesOf(exchange.push(0, piece));
  const [entry] = choices[0].logprobs.content;
  const one = { token: '�', logprob: -0.5, bytes: [0xf0, 0x9f] };
  assert.deepEqual(entry, { ...one, top_logprobs: [one] });
  assert.deepEqual([timings.prompt_n, timings.cache_n, timings.predicted_n], [5, 2, 1]);
  const [last] = framesOf(exchange.end(0, { ...ended, finishReason: 'length' }));
  assert.equal(last.choices[0].finish_reason, 'length');
  assert.deepEqual(exchange.usage, { prompt: 7, cached: 2, completion: 1 });
  assert.equal(exchange.finishReason, 'length');
  const described = await prompts.describe(paths.chat, { code: 'INTERNAL', message: 'No.' });
  const [{ error }] = framesOf(exchange.errorFrames(described));
  assert.equal(error.message, 'No.');
  assert.equal(exchange.finish(), 'data: [DONE]\n\n');
  exchange.close();
});

const framesOf = (text) =>
  text
    .split('\n\n')
    .slice(0, -1)
    .map((frame) => JSON.parse(frame.slice('data: '.length)));

// --- the package ---------------------------------------------------------------------------------

/** An engine that generates nothing, and records what it was asked. */
function silent() {
  const asked = [];
  const engine = {
    info,
    structuredOutput: true,
    turn: (work) => work(),
    prompts: async () => prompts,
    answer(prompt, options, extra) {
      asked.push({ prompt, options, extra });
      return { async *[Symbol.asyncIterator]() {}, result: Promise.resolve(ended) };
    },
  };
  return { chat: new ChatCompletions(engine), text: new Completions(engine), asked };
}

test('the package passes on what JSON cannot express', async () => {
  const { chat, text, asked } = silent();
  const { signal } = new AbortController();
  const logit_bias = { 7: -Infinity, 8: 2 };
  await chat.create({ messages, seed: 2n ** 63n + 1n, logit_bias, signal });
  await text.create({ prompt: Int32Array.of(5, 6) });
  await text.create({ prompt: ['only'], logit_bias: [[3, false]] });
  assert.deepEqual(
    asked.map(({ prompt, options: { seed, logitBias } }) => [
      typeof prompt === 'string' ? unmarked(prompt) : prompt,
      logitBias,
      seed === 2n ** 63n + 1n,
    ]),
    [
      ['0[user]Hi[assistant]', { 7: -Infinity, 8: 2 }, true],
      [[5, 6], {}, false],
      ['only', { 3: -Infinity }, false],
    ],
  );
  for (const params of [{ temperature: NaN }, { stop: () => {} }, { metadata: { a: 1n, b: NaN } }])
    await assert.rejects(chat.create({ messages, ...params }), {
      code: 'INVALID_ARGUMENT',
      message: new RegExp(Object.keys(params)[0]),
    });
  await assert.rejects(chat.create({ messages, n: 2 }), { message: /^n must be 1/ });
  await assert.rejects(text.create({ prompt: ['a', 'b'] }), { message: /prompt one string/ });
  await assert.rejects(text.create(), { message: /takes an object/ });
});

test('fields that only servers had work in the package', async () => {
  const { chat, asked } = silent();
  const tools = ['a', 'b'].map((name) => ({ type: 'function', function: { name } }));
  const allowed = { mode: 'auto', tools: [tools[0]] };
  await chat.create({
    messages: [...messages, { role: 'assistant', content: 'Well' }],
    continue_final_message: true,
    stop_token_ids: [4],
    reasoning_effort: 'low',
    reasoning_format: 'auto',
    chat_template: '{{ reasoning_effort }}{% for m in messages %}{{ m.content }}{% endfor %}',
    tools,
    tool_choice: { type: 'allowed_tools', allowed_tools: allowed },
  });
  assert.equal(unmarked(asked[0].prompt), 'lowHiWell');
  assert.deepEqual(asked[0].options.stopTokenIds, [4]);
});

// --- memory --------------------------------------------------------------------------------------

test('an exchange that is closed or abandoned is freed', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  const body = JSON.stringify({ prompt: 'x'.repeat(20_000), max_tokens: 1 });
  const size = async () => {
    const exchange = await prompts.open(paths.text, body, 'm');
    exchange.close();
    return exchange.memoryBytes;
  };
  const before = await size();
  for (let i = 0; i < 3000; i++) {
    const exchange = await prompts.open(paths.text, body, 'm');
    if (i % 3) await prompts.plan(exchange, true);
    if (i % 2) exchange.close();
    if (i % 50 !== 0) continue;
    collect();
    await new Promise((next) => setImmediate(next)); // finalizers run
  }
  assert.ok((await size()) - before < 8 << 20, `${await size()} bytes`);
});
