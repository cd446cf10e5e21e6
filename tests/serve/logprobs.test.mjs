// Log-probabilities and probabilities of structured output: the same numbers from the native server,
// the server in Node and the package.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inRoot } from '../../web/scripts/lib.mjs';
import { context, model, Server } from './server.mjs';

const { Engine } = await import(inRoot('dist', 'node.js'));
const schema = {
  type: 'object',
  properties: { animal: { enum: ['fox', 'owl', 'fog'] }, big: { type: 'boolean' } },
  required: ['animal', 'big'],
  additionalProperties: false,
};
const ask = {
  messages: [{ role: 'user', content: 'Tell me of a fox.' }],
  max_tokens: 60,
  temperature: 0,
  logprobs: true,
  top_logprobs: 20,
};
const bound = {
  ...ask,
  response_format: { type: 'json_schema', json_schema: { name: 'a', schema } },
};

let servers;
let engine;
before(async () => {
  const options = ['--ctx', `${context}`];
  servers = [
    // These kernels round as those of WebAssembly do.
    await Server.start(...options, '--kernels', 'scalar'),
    await Server.startInNode(...options),
  ];
  engine = await Engine.load(model, {
    contextLength: context,
    threads: 1,
    structuredOutput: true,
  });
});
after(async () => {
  await engine?.dispose();
  for (const child of Server.running) child.kill('SIGKILL');
});

/** The choice of a chat completion from each server and from the package. */
async function chats(params) {
  const answers = await Promise.all(
    servers.map((server) => server.json('/v1/chat/completions', params)),
  );
  for (const { status, error } of answers) assert.equal(status, 200, error?.message);
  answers.push(await engine.chat.completions.create(params));
  const choices = answers.map(({ choices: [choice] }) => choice);
  assert.deepEqual(choices[1].logprobs, choices[2].logprobs); // the same engine
  return choices;
}

/** Asserts that two JSON values are equal, numbers as they are printed. */
function same(a, b, at = '') {
  if (typeof a === 'number' && !Number.isInteger(a))
    assert.ok(Math.abs(a - b) < 1e-5, `${at}: ${a} and ${b}`);
  else if (typeof a === 'object' && a !== null) {
    assert.deepEqual(Object.keys(b), Object.keys(a), at);
    for (const key of Object.keys(a)) same(a[key], b[key], `${at}.${key}`);
  } else assert.equal(b, a, at);
}

/** Without the order of tokens that are equally likely, up to rounding. */
const numbers = ({ content }, value, top) =>
  content.map((entry) => ({
    token: entry.token,
    [value]: entry[value],
    [top]: entry[top].map((one) => one[value]),
  }));

test('logprobs of structured output are those of the unconstrained model', async () => {
  const [free] = await chats({ ...ask, max_tokens: 1 });
  const choices = await chats(bound);
  const { content } = choices[0].logprobs;
  assert.ok(content.length > 8);
  assert.deepEqual(Object.keys(JSON.parse(choices[0].message.content)), ['animal', 'big']);
  for (const { message, logprobs } of choices) {
    assert.equal(message.content, choices[0].message.content);
    for (const { logprob, top_logprobs: top } of logprobs.content) {
      assert.equal(top.length, 20);
      assert.ok([logprob, ...top.map((one) => one.logprob)].every(Number.isFinite));
      assert.ok(top.reduce((sum, one) => sum + Math.exp(one.logprob), 0) < 1.0001);
    }
    same(
      numbers(choices[0].logprobs, 'logprob', 'top_logprobs'),
      numbers(logprobs, 'logprob', 'top_logprobs'),
    );
    // The first token, which the schema forces, is not the one that the model would have chosen.
    same(
      free.logprobs.content[0].top_logprobs.map((one) => one.logprob),
      logprobs.content[0].top_logprobs.map((one) => one.logprob),
    );
    assert.ok(logprobs.content[0].logprob < free.logprobs.content[0].logprob - 1);
  }
});

test('post_sampling_probs are those of the tokens that could be drawn', async () => {
  const drawn = {
    temperature: 1,
    top_p: 1,
    top_k: 0,
    min_p: 0,
    seed: 5,
    post_sampling_probs: true,
  };
  const [free] = await chats({ ...bound, ...drawn, post_sampling_probs: false });
  const choices = await chats({ ...bound, ...drawn });
  for (const { message, logprobs } of choices) {
    assert.equal(message.content, choices[0].message.content);
    assert.ok('animal' in JSON.parse(message.content));
    for (const entry of logprobs.content) {
      assert.deepEqual(Object.keys(entry).toSorted(), [
        'bytes',
        'id',
        'prob',
        'token',
        'top_probs',
      ]);
      const { prob, top_probs: top } = entry;
      assert.ok(top.length > 0 && top.length <= 20);
      assert.ok(prob > 0 && prob <= 1);
      assert.ok(top.every((one, i) => i === 0 || one.prob <= top[i - 1].prob));
      const sum = top.reduce((all, one) => all + one.prob, 0);
      assert.ok(top.length < 20 ? Math.abs(sum - 1) < 1e-5 : sum < 1 + 1e-5, `${sum}`);
      for (const one of top) {
        assert.deepEqual(Object.keys(one).toSorted(), ['bytes', 'id', 'prob', 'token']);
        assert.equal(typeof one.id, 'number');
      }
    }
    same(numbers(choices[0].logprobs, 'prob', 'top_probs'), numbers(logprobs, 'prob', 'top_probs'));
  }
  // Only what the schema allows, in proportion to the model's own probabilities.
  const [{ top_probs: top }] = choices[0].logprobs.content;
  const [{ top_logprobs: all }] = free.logprobs.content;
  assert.ok(top.every(({ token }) => /^\s*\{/.test(token)));
  assert.ok(all.some(({ token }) => !/^\s*\{/.test(token)));
});

test('post_sampling_probs after top-k and temperature, and of greedy sampling', async () => {
  const params = { ...ask, max_tokens: 4, top_k: 3, top_p: 1, min_p: 0, seed: 5 };
  const [own] = await chats({ ...params, temperature: 0.5 });
  for (const { logprobs } of await chats({
    ...params,
    temperature: 0.5,
    post_sampling_probs: true,
  })) {
    const [{ top_probs: top }] = logprobs.content;
    const weights = own.logprobs.content[0].top_logprobs
      .slice(0, 3)
      .map(({ logprob }) => Math.exp(logprob / 0.5));
    const sum = weights.reduce((a, b) => a + b);
    same(
      weights.map((weight) => weight / sum),
      top.map(({ prob }) => prob),
    );
  }
  for (const { logprobs } of await chats({
    ...params,
    temperature: 0,
    post_sampling_probs: true,
  })) {
    for (const { id, prob, top_probs: top } of logprobs.content)
      assert.deepEqual([prob, top.map((one) => [one.id, one.prob])], [1, [[id, 1]]]);
  }
});

test('completions have post_sampling_probs in the format of llama-server', async () => {
  const params = {
    prompt: 'Once upon a time',
    max_tokens: 6,
    temperature: 1,
    seed: 3,
    logprobs: 4,
    post_sampling_probs: true,
  };
  const answers = await Promise.all(servers.map((s) => s.json('/v1/completions', params)));
  answers.push(await engine.completions.create(params));
  const [first] = answers.map(({ choices: [choice] }) => choice);
  for (const {
    choices: [choice],
  } of answers) {
    assert.deepEqual(Object.keys(choice.logprobs), ['content']);
    assert.equal(choice.logprobs.content.map(({ token }) => token).join(''), choice.text);
    same(
      numbers(first.logprobs, 'prob', 'top_probs'),
      numbers(choice.logprobs, 'prob', 'top_probs'),
    );
  }
  for (const server of servers) {
    const response = await server.post('/v1/completions', { ...params, stream: true });
    const text = await response.text();
    const chunks = text
      .split('\n\n')
      .filter((frame) => frame.startsWith('data: {'))
      .map((frame) => JSON.parse(frame.slice(6)).choices[0].logprobs)
      .filter(Boolean);
    same(
      numbers(first.logprobs, 'prob', 'top_probs'),
      numbers({ content: chunks.flatMap(({ content }) => content) }, 'prob', 'top_probs'),
    );
  }
});
