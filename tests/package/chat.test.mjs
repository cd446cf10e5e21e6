// Chat completions, completions and sessions on the sample model: the OpenAI-compatible API, prefix
// reuse in a second turn, several sessions on one engine, and rejected parameters.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';

const { Engine, SluiceError } = await import(inRoot('dist', 'node.js'));
const model = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');
const greedy = { temperature: 0, max_tokens: 24 };
const story = [{ role: 'user', content: 'Tell me a story about a fox.' }];
let engine;
before(async () => (engine = await Engine.load(model, { contextLength: 512 })));
after(() => engine.dispose());

test("a chat completion has OpenAI's fields; a second turn computes only new tokens", async () => {
  const first = await engine.chat.completions.create({ ...greedy, messages: story });
  assert.match(first.id, /^chatcmpl-[0-9a-f]{24}$/);
  assert.equal(first.object, 'chat.completion');
  const [choice] = first.choices;
  assert.ok(choice.message.content.length > 0);
  assert.equal(choice.message.role, 'assistant');
  assert.ok(['stop', 'length'].includes(choice.finish_reason));
  assert.equal(first.usage.total_tokens, first.usage.prompt_tokens + first.usage.completion_tokens);
  assert.ok(first.timings.prompt_ms >= 0);
  const turns = [...story, choice.message, { role: 'user', content: 'And then?' }];
  const second = await engine.chat.completions.create({ ...greedy, messages: turns });
  const { cached_tokens } = second.usage.prompt_tokens_details;
  assert.ok(
    cached_tokens >= first.usage.prompt_tokens,
    `${cached_tokens} of ${first.usage.prompt_tokens}`,
  );
  assert.ok(cached_tokens < second.usage.prompt_tokens);
  const stats = engine.stats();
  assert.deepEqual(
    [stats.promptTokens, stats.cachedTokens],
    [second.usage.prompt_tokens, cached_tokens],
  );
});

test('a stream carries the same text, the role first, the finish reason last, usage when asked', async () => {
  const whole = await engine.chat.completions.create({ ...greedy, messages: story });
  const stream = await engine.chat.completions.create({
    ...greedy,
    messages: story,
    stream: true,
    stream_options: { include_usage: true },
    logprobs: true,
    top_logprobs: 2,
  });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.equal(
    chunks.map((c) => c.choices[0]?.delta.content ?? '').join(''),
    whole.choices[0].message.content,
  );
  assert.ok(chunks.some((c) => c.choices[0]?.logprobs?.content[0].top_logprobs.length === 2));
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(chunks.at(-2).choices[0].finish_reason, whole.choices[0].finish_reason);
  assert.ok(chunks.at(-2).timings.predicted_per_second >= 0);
  assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
});

test('a text completion, complete and streamed, with log-probabilities', async () => {
  const params = { prompt: 'Once upon a time', temperature: 0, max_tokens: 8, logprobs: 1 };
  const whole = await engine.completions.create(params);
  assert.equal(whole.object, 'text_completion');
  assert.equal(whole.choices[0].logprobs.tokens.length, 8);
  let text = '';
  let reason = null;
  for await (const chunk of await engine.completions.create({ ...params, stream: true })) {
    text += chunk.choices[0].text;
    reason = chunk.choices[0].finish_reason;
  }
  assert.equal(text, whole.choices[0].text);
  assert.equal(reason, 'length');
  const plain = await engine.generate('Once upon a time', { temperature: 0, maxTokens: 8 }).text();
  assert.equal(text, plain);
});

test('unsupported parameters are errors with a code', async () => {
  const refused = [
    { n: 2 },
    { functions: [{}] },
    { tool_choice: 'required' },
    { messages: [] },
    { messages: [{ content: 'x' }] },
    { messages: [{ role: 'user', content: [{ type: 'strange' }] }] },
  ];
  for (const params of refused) {
    await assert.rejects(
      engine.chat.completions.create({ messages: story, ...params }),
      (e) => e instanceof SluiceError && e.code === 'INVALID_ARGUMENT',
      JSON.stringify(params),
    );
  }
  const picture = [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }];
  await assert.rejects(engine.chat.completions.create({ messages: picture }), {
    code: 'NOT_SUPPORTED',
  });
  await assert.rejects(
    engine.chat.completions.create({
      messages: story,
      chat_template: "{{ raise_exception('no') }}",
    }),
    (e) => e.code === 'CHAT_TEMPLATE' && /no/.test(e.message),
  );
});

test('abort() and break end the generation, and the engine still works', async () => {
  const controller = new AbortController();
  const stream = await engine.chat.completions.create(
    { messages: story, stream: true },
    { signal: controller.signal },
  );
  await assert.rejects(
    async () => {
      for await (const chunk of stream) if (chunk.choices[0].delta.content) controller.abort();
    },
    { name: 'AbortError' },
  );
  for await (const chunk of await engine.chat.completions.create({
    messages: story,
    stream: true,
  })) {
    if (chunk.choices[0].delta.content) break;
  }
  const after = await engine.chat.completions.create({ ...greedy, messages: story });
  assert.ok(after.choices[0].message.content);
});

test("reasoning is separated from the content unless reasoning_format is 'none'", async () => {
  // The prompt ends inside a <think> block that never closes, so all output is reasoning.
  const chat_template = '{{ messages[0].content }}<think>\n';
  const params = {
    ...greedy,
    messages: [{ role: 'user', content: 'Once upon a time ' }],
    chat_template,
  };
  const { message } = (await engine.chat.completions.create(params)).choices[0];
  assert.equal(message.content, '');
  assert.ok(message.reasoning_content.length > 0);
  const inline = (await engine.chat.completions.create({ ...params, reasoning_format: 'none' }))
    .choices[0].message;
  assert.equal(inline.reasoning_content, undefined);
  assert.ok(inline.content.includes(message.reasoning_content));
});

// --- sessions -----------------------------------------------------------------------------------

const options = { temperature: 0, maxTokens: 16 };

test('sessions alternate, and each computes only its new tokens', async () => {
  const fox = engine.session();
  const bear = engine.session();
  const alone = {};
  for (const name of ['fox', 'bear']) {
    const reference = engine.session();
    alone[name] = [
      await reference.send(`A story about a ${name}.`, options).text(),
      await reference.send('More.', options).text(),
    ];
    await reference.dispose();
  }
  assert.equal(await fox.send('A story about a fox.', options).text(), alone.fox[0]);
  const first = await bear.send('A story about a bear.', options).result;
  assert.equal(first.text, alone.bear[0]);
  await engine.generate('Something else', options).result;
  assert.equal(await fox.send('More.', options).text(), alone.fox[1]);
  const second = await bear.send('More.', options).result;
  assert.equal(second.text, alone.bear[1]);
  const held = first.usage.totalTokens - 1;
  assert.ok(second.usage.cachedTokens >= held, `${second.usage.cachedTokens} of ${held}`);
  assert.deepEqual(
    bear.messages.map((m) => m.role),
    ['user', 'assistant', 'user', 'assistant'],
  );
  await fox.dispose();
  await bear.dispose();
});

test('a session is saved, restored in another engine, and forked', async () => {
  const session = engine.session();
  await session.generate('Once upon a time', options).result;
  const saved = structuredClone(await session.save());
  const fork = await session.fork();
  const expected = await session.generate(' and', options).text();
  assert.equal(await fork.generate(' and', options).text(), expected);
  const other = await Engine.load(model, { contextLength: 512 });
  try {
    const restored = other.session();
    await restored.restore(saved);
    const { text, usage } = await restored.generate(' and', options).result;
    assert.equal(text, expected);
    assert.equal(usage.cachedTokens, saved.tokens.length - 1); // not the last generated token
  } finally {
    await other.dispose();
  }
  await fork.dispose();
  await session.dispose();
  await assert.rejects(session.send('x').result, { code: 'DISPOSED' });
});

test("a new session does not save another session's tokens", async () => {
  const secret = engine.session();
  await secret.generate('The secret word', options).result;
  const saved = await engine.session().save();
  assert.deepEqual([saved.tokens.length, saved.state.length, saved.text], [0, 0, '']);
  await secret.dispose();
});
