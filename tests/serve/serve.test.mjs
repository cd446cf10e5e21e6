// The native program's server over loopback: every endpoint by fetch and by OpenAI's client,
// clients that disconnect, malformed requests, slow readers, and shutdown. Its responses must equal
// the output of `sluice run`. serve-node.test.mjs runs the same tests against `npx sluice-llm
// serve`.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import OpenAI from 'openai';

import {
  alone,
  closeAlone,
  context,
  events,
  first,
  inNode,
  model,
  program,
  prompts,
  request,
  Server,
} from './server.mjs';

let server;
let client;
let endless; // logit biases that prevent the end of a completion

before(async () => {
  server = await Server.start('--parallel', '2', '--ctx', `${context}`);
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const { tokens } = await server.json('/tokenize', {
    content: '<|endoftext|><|end|>',
    add_special: false,
  });
  assert.equal(tokens.length, 2);
  endless = Object.fromEntries(tokens.map((token) => [token, -100]));
});
after(async () => {
  await Promise.all([server.stop(), closeAlone()]);
  for (const child of Server.running) child.kill('SIGKILL'); // left by failed tests
});

test('health, models, tokens and metrics', async () => {
  const health = await fetch(`${server.url}/health`);
  assert.deepEqual([health.status, await health.json()], [200, { status: 'ok' }]);
  const models = await client.models.list();
  assert.deepEqual(
    models.data.map(({ id }) => id),
    [server.model],
  );
  assert.equal((await client.models.retrieve(server.model)).object, 'model');
  await assert.rejects(client.models.retrieve('another'), OpenAI.NotFoundError);
  const { tokens } = await server.json('/tokenize', { content: prompts[0] });
  const { stdout } = spawnSync(program, [...first, 'tokenize', model, '--file', '-'], {
    input: prompts[0],
    encoding: 'utf8',
  });
  assert.deepEqual(tokens, JSON.parse(stdout));
  assert.equal((await server.json('/detokenize', { tokens })).content, prompts[0]);
  const metrics = await fetch(`${server.url}/metrics`);
  assert.match(metrics.headers.get('content-type'), /^text\/plain; version=0\.0\.4/);
  const text = await metrics.text();
  for (const line of text.trim().split('\n'))
    assert.match(line, /^(# (HELP|TYPE) sluice_\w+ .+|sluice_\w+(\{[^}]*\})? [\d.e+-]+)$/);
  assert.match(text, /^sluice_requests_total\{path="\/tokenize",status="200"\} [1-9]/m);
  assert.match(text, /^sluice_sessions 2$/m);
});

test('a completion equals the output of `run`, complete and streamed', async () => {
  const wanted = await alone(prompts[0], 40);
  const params = { model: 'any', prompt: prompts[0], max_tokens: 40, temperature: 0 };
  const whole = await client.completions.create(params);
  assert.equal(whole.choices[0].text, wanted);
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  let text = '';
  let usage;
  for await (const chunk of await client.completions.create({
    ...params,
    stream: true,
    stream_options: { include_usage: true },
  })) {
    text += chunk.choices[0]?.text ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, wanted);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  assert.ok(usage.prompt_tokens_details.cached_tokens > 0);
});

test('prompt_cache_key names the sequence that a request continues', async () => {
  const own = await Server.start('--parallel', '2', '--ctx', `${context}`);
  const ask = async (key, text) => {
    const { usage } = await own.json('/v1/chat/completions', {
      messages: [{ role: 'user', content: text }],
      max_tokens: 1,
      ...(key && { prompt_cache_key: key }),
    });
    return usage.prompt_tokens_details.cached_tokens / usage.prompt_tokens;
  };
  try {
    await ask('a', `${prompts[0]} A.`);
    await ask('b', `${prompts[1]} B.`);
    assert.ok((await ask('a', `${prompts[0]} A.`)) > 0.5);
    await ask('a', 'Quite another text.'); // b's sequence is the one that is idle longest
    assert.ok((await ask('b', `${prompts[1]} B.`)) > 0.5);
  } finally {
    await own.stop();
  }
});

test('options of a completion', async () => {
  const seeded = { prompt: prompts[1], max_tokens: 12, temperature: 1, seed: 7, n: 3 };
  const one = await server.json('/v1/completions', seeded);
  assert.deepEqual((await server.json('/v1/completions', seeded)).choices, one.choices);
  assert.equal(new Set(one.choices.map(({ text }) => text)).size, 3);
  const second = await server.json('/v1/completions', { ...seeded, seed: 8, n: 1 });
  assert.equal(second.choices[0].text, one.choices[1].text);
  const several = await server.json('/v1/completions', {
    prompt: prompts.slice(0, 2),
    max_tokens: 8,
    temperature: 0,
  });
  assert.deepEqual(
    several.choices.map(({ index, text }) => [index, text]),
    [
      [0, await alone(prompts[0], 8)],
      [1, await alone(prompts[1], 8)],
    ],
  );
  const stopped = await server.json('/v1/completions', {
    prompt: prompts[0],
    max_tokens: 40,
    temperature: 0,
    stop: [' was'],
  });
  assert.equal(stopped.choices[0].text, (await alone(prompts[0], 40)).split(' was')[0]);
  assert.equal(stopped.choices[0].finish_reason, 'stop');
  const {
    choices: [{ logprobs, text }],
  } = await server.json('/v1/completions', {
    prompt: prompts[0],
    max_tokens: 8,
    temperature: 0,
    logprobs: 3,
  });
  assert.equal(logprobs.tokens.join(''), text);
  assert.equal(logprobs.top_logprobs.length, logprobs.tokens.length);
  assert.ok(logprobs.tokens.length > 0);
  for (const [i, top] of logprobs.top_logprobs.entries())
    assert.equal(Math.max(...Object.values(top)), logprobs.token_logprobs[i]);
  const tokens = (await server.json('/tokenize', { content: prompts[0] })).tokens;
  const given = await server.json('/v1/completions', {
    prompt: tokens,
    max_tokens: 8,
    temperature: 0,
  });
  assert.equal(given.choices[0].text, text);
});

test('a chat completion, complete and streamed, with logprobs and structured output', async () => {
  const params = {
    model: 'any',
    messages: [{ role: 'user', content: 'Tell me of a fox.' }],
    max_completion_tokens: 24,
    temperature: 0,
  };
  const whole = await client.chat.completions.create({
    ...params,
    logprobs: true,
    top_logprobs: 2,
  });
  const { message, logprobs, finish_reason: reason } = whole.choices[0];
  assert.equal(message.role, 'assistant');
  assert.ok(message.content.length > 0);
  assert.equal(logprobs.content.map(({ token }) => token).join(''), message.content);
  assert.equal(logprobs.content[0].top_logprobs.length, 2);
  const stream = await client.chat.completions.create({
    ...params,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = '';
  let last;
  let usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    last = chunk.choices[0]?.finish_reason ?? last;
    usage = chunk.usage ?? usage;
  }
  assert.deepEqual(
    [text, last, usage.completion_tokens],
    [message.content, reason, whole.usage.completion_tokens],
  );
  const schema = {
    type: 'object',
    properties: { animal: { enum: ['fox', 'owl'] }, big: { type: 'boolean' } },
    required: ['animal', 'big'],
    additionalProperties: false,
  };
  const formed = await client.chat.completions.create({
    ...params,
    max_completion_tokens: 80,
    response_format: { type: 'json_schema', json_schema: { name: 'a', schema } },
  });
  const { animal, big } = JSON.parse(formed.choices[0].message.content);
  assert.ok(['fox', 'owl'].includes(animal) && typeof big === 'boolean');
  const again = await client.chat.completions.create({
    ...params,
    messages: [...params.messages, message, { role: 'user', content: 'And then?' }],
  });
  assert.ok(again.usage.prompt_tokens_details.cached_tokens > 0);
});

test('embeddings: float, base64 and shortened', async () => {
  const { data, usage } = await server.json('/v1/embeddings', { input: ['a fox', 'an owl'] });
  assert.equal(data.length, 2);
  assert.ok(Math.abs(Math.hypot(...data[0].embedding) - 1) < 1e-5);
  assert.ok(usage.prompt_tokens > 2);
  // The client asks for base64.
  const coded = await client.embeddings.create({ model: 'any', input: 'an owl' });
  assert.deepEqual(
    coded.data[0].embedding.map((x) => Math.fround(x)),
    data[1].embedding.map((x) => Math.fround(x)),
  );
  const short = await server.json('/v1/embeddings', { input: 'a fox', dimensions: 4 });
  assert.equal(short.data[0].embedding.length, 4);
});

test("errors map to the error classes of OpenAI's client", async () => {
  const long = 'word '.repeat(600);
  await assert.rejects(client.completions.create({ model: 'any', prompt: long }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    return error.code === 'context_length_exceeded';
  });
  await assert.rejects(
    client.chat.completions.create({ model: 'any', messages: [], temperature: 0 }),
    (error) => error.param === 'messages',
  );
});

test('a disconnecting client cancels its request', async () => {
  const params = { model: 'any', prompt: prompts[0], max_tokens: 400, n: 16, logit_bias: endless };
  const aborted = 'sluice_answers_total{finish="aborted"}';
  const before = await server.metric(aborted);
  const stream = await client.completions.create({ ...params, stream: true });
  for await (const chunk of stream) {
    assert.ok(chunk);
    break;
  }
  await server.until(aborted, (n) => n > before);
  await server.until('sluice_requests_running', (n) => n === 0);
  const between = await server.metric(aborted);
  const controller = new AbortController();
  const whole = client.completions.create(params, { signal: controller.signal });
  await server.until('sluice_requests_running', (n) => n === 1);
  controller.abort();
  await assert.rejects(whole, OpenAI.APIUserAbortError);
  await server.until(aborted, (n) => n > between);
  await server.until('sluice_requests_running', (n) => n === 0);
  assert.ok((await server.metric('sluice_generation_tokens_total')) < 2 * 16 * 400);
});

test('32 concurrent clients, some disconnecting, get the same text as one alone', async () => {
  const wanted = await Promise.all(prompts.map((prompt) => alone(prompt, 32)));
  const outcomes = await Promise.all(
    Array.from({ length: 32 }, async (_, i) => {
      const params = { model: 'any', prompt: prompts[i % 4], max_tokens: 32, temperature: 0 };
      const controller = new AbortController();
      if (i % 5 === 3) setTimeout(() => controller.abort(), (i * 13) % 40);
      try {
        if (i % 2)
          return [
            i,
            (await client.completions.create(params, { signal: controller.signal })).choices[0]
              .text,
          ];
        let text = '';
        for await (const chunk of await client.completions.create(
          { ...params, stream: true },
          { signal: controller.signal },
        ))
          text += chunk.choices[0]?.text ?? '';
        return [i, controller.signal.aborted ? null : text];
      } catch (error) {
        assert.ok(controller.signal.aborted, error.message);
        return [i, null];
      }
    }),
  );
  for (const [i, text] of outcomes) if (text !== null) assert.equal(text, wanted[i % 4]);
  assert.ok(outcomes.filter(([, text]) => text !== null).length >= 24);
});

test('eight streams in one batch, and several choices of one request', async () => {
  const wide = await Server.start('--parallel', '8', '--ctx', `${context}`);
  const wanted = await Promise.all(prompts.map((prompt) => alone(prompt, 32)));
  const ask = { max_tokens: 32, temperature: 0, stream: true };
  const streams = await Promise.all(
    Array.from({ length: 12 }, async (_, i) => {
      const params = { ...ask, prompt: prompts[i % 4] };
      if (i % 3 === 2) {
        await wide.raw(request('/v1/completions', params), {
          enough: (text) => text.includes('data: '),
        });
        return null;
      }
      const response = await wide.post('/v1/completions', params);
      return (await events(response)).map(({ choices }) => choices[0].text).join('');
    }),
  );
  for (const [i, text] of streams.entries()) if (text !== null) assert.equal(text, wanted[i % 4]);
  // Long enough that the first choice does not end before the last begins.
  const long = 160;
  const longWanted = await Promise.all(prompts.slice(0, 2).map((prompt) => alone(prompt, long)));
  const chunks = await events(
    await wide.post('/v1/completions', {
      ...ask,
      max_tokens: long,
      prompt: prompts.slice(0, 2),
      n: 3,
    }),
  );
  const order = chunks.map(({ choices }) => choices[0].index);
  assert.notDeepEqual(
    order,
    order.toSorted((a, b) => a - b),
  ); // interleaved, not one after the other
  for (let i = 0; i < 6; i++) {
    assert.equal(
      chunks
        .filter(({ choices }) => choices[0].index === i)
        .map(({ choices }) => choices[0].text)
        .join(''),
      longWanted[Math.floor(i / 3)],
    );
  }
  assert.equal(await wide.stop(), 0);
});

test('malformed requests are errors and do not affect others', async () => {
  const head = (lines, body = '') =>
    `POST /v1/completions HTTP/1.1\r\nHost: x\r\n${lines}\r\n\r\n${body}`;
  const cases = [
    ['nonsense\r\n\r\n', 400],
    ['GET / HTTP/9.9\r\n\r\n', 400],
    [`GET /${'a'.repeat(9000)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`, 414],
    [
      `GET /health HTTP/1.1\r\nX: ${'a'.repeat(inNode ? 20_000 : 9000)}\r\n\r\n`,
      inNode ? 431 : 400,
    ],
    ['GET /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc', 405],
    ['OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 405],
    [head('Content-Length: x'), 400],
    [head('Content-Length: -1'), 400],
    [head('Content-Length: 1\r\nContent-Length: 2', '{}'), 400],
    [head('Content-Length: 2\r\nTransfer-Encoding: chunked', '{}'), 400],
    [head('Transfer-Encoding: gzip', '{}'), 400],
    [head('Transfer-Encoding: chunked', 'zz\r\n{}\r\n'), 400],
    [head('Content-Length: 999999999999999999999'), inNode ? 400 : 413],
    [head('Content-Length: 5000000', '{'), 413],
    [
      head(`Transfer-Encoding: chunked`, `${(5_000_000).toString(16)}\r\n${'x'.repeat(5_000_000)}`),
      413,
    ],
    [head('Connection: close'), 400],
    [head('Origin: https://evil.example\r\nConnection: close\r\nContent-Length: 2', '{}'), 403],
  ];
  for (const [bytes, status] of cases) {
    const answer = await server.raw(bytes);
    assert.equal(
      Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1]),
      status,
      `${bytes.slice(0, 80)}\n${answer.slice(0, 300)}`,
    );
    const body = answer.slice(answer.indexOf('\r\n\r\n') + 4);
    assert.equal(typeof JSON.parse(body).error.message, 'string', answer);
  }
  let state = 1;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  for (let i = 0; i < 40; i++) {
    const bytes = Buffer.from(head('Content-Length: 20', JSON.stringify({ prompt: 'a', n: 1 })));
    for (let j = 0; j < 4; j++)
      bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
    await server.raw(bytes.subarray(0, 1 + Math.floor(random() * bytes.length)), { close: true });
  }
  assert.equal((await fetch(`${server.url}/health`)).status, 200);
});

test('the name of the transfer coding is case-insensitive', async () => {
  const body = JSON.stringify({ prompt: 'a', max_tokens: 1 });
  for (const coding of ['chunked', 'Chunked', 'CHUNKED']) {
    const answer = await server.raw(
      `POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n` +
        `Transfer-Encoding: ${coding}\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
    );
    assert.match(answer, /^HTTP\/1\.1 200/, coding);
  }
});

test('a connection takes several requests, also pipelined', async () => {
  const ask = 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n';
  const answers = await server.raw(
    ask +
      ask.replace('health', 'v1/models') +
      ask.replace('Host: x', 'Host: x\r\nConnection: close'),
  );
  assert.equal(answers.split('HTTP/1.1 200').length - 1, 3);
  const old = await server.raw(
    `POST /v1/completions HTTP/1.0\r\nContent-Length: 54\r\n\r\n${'{"prompt":"a","max_tokens":2,"stream":true}'.padEnd(54)}`,
  );
  assert.match(old, /^HTTP\/1\.1 200[^]*\r\n\r\ndata: \{[^]*data: \[DONE\]\n\n$/);
});

test('a client that does not read stalls its own stream and takes no memory', async () => {
  const memory = () =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, 'utf8'))[1]);
  const before = memory();
  const messages = [{ role: 'user', content: 'a' }];
  const response = await server.post('/v1/chat/completions', {
    messages,
    max_tokens: 480,
    n: 12,
    logprobs: true,
    top_logprobs: 20,
    stream: true,
    logit_bias: endless,
  });
  let tokens = -1;
  for (let now = 0; now !== tokens; now = await server.metric('sluice_generation_tokens_total')) {
    tokens = now;
    await sleep(200);
  }
  assert.equal(await server.metric('sluice_requests_running'), 1);
  assert.ok(memory() - before < (inNode ? 64 : 8) << 10, `${memory() - before} kB more`);
  const chunks = await events(response);
  assert.equal(chunks.filter(({ choices }) => choices[0].finish_reason).length, 12);
  assert.ok(JSON.stringify(chunks).length > 8 << 20);
});

// Slow kernels: completions must still be running when the other requests have been answered.
const slowly = inNode ? [] : ['--kernels', 'scalar'];

test('API keys, CORS origins and a full queue', async () => {
  const strict = await Server.start(
    '--api-key',
    'secret',
    '--cors-origin',
    'https://page.example',
    '--max-queue',
    '1',
    '--ctx',
    `${context}`,
    ...slowly,
  );
  try {
    const keyed = new OpenAI({ baseURL: `${strict.url}/v1`, apiKey: 'secret', maxRetries: 0 });
    const wrong = new OpenAI({ baseURL: `${strict.url}/v1`, apiKey: 'Secret', maxRetries: 0 });
    await assert.rejects(wrong.models.list(), OpenAI.AuthenticationError);
    assert.equal((await keyed.models.list()).data.length, 1);
    const authorization = 'Bearer secret';
    const preflight = await fetch(`${strict.url}/v1/completions`, {
      method: 'OPTIONS',
      headers: {
        origin: 'https://page.example',
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization, x-stainless-os, anthropic-version',
        'access-control-request-private-network': 'true',
      },
    });
    const allowed = (name) => preflight.headers.get(`access-control-allow-${name}`);
    assert.deepEqual(
      [preflight.status, ...['origin', 'headers', 'private-network'].map(allowed)],
      [
        ...[204, 'https://page.example'],
        ...['authorization, x-stainless-os, anthropic-version', 'true'],
      ],
    );
    assert.match(preflight.headers.get('vary'), /Access-Control-Request-Headers/);
    const foreign = await fetch(`${strict.url}/v1/models`, {
      headers: { authorization, origin: 'https://other.example' },
    });
    assert.deepEqual(
      [foreign.status, foreign.headers.get('access-control-allow-origin')],
      [403, null],
    );

    const controller = new AbortController();
    const params = {
      model: 'any',
      prompt: prompts[0],
      max_tokens: 400,
      n: 16,
      logit_bias: endless,
    };
    const busy = Array.from({ length: 4 }, () =>
      keyed.completions.create(params, { signal: controller.signal }).then(
        () => null,
        (error) => error,
      ),
    );
    const refusal = await Promise.race(busy);
    assert.ok(refusal instanceof OpenAI.RateLimitError, `${refusal}`);
    assert.ok(Number(refusal.headers.get('retry-after')) >= 1);
    controller.abort();
    const codes = (await Promise.all(busy)).map((error) => error?.constructor.name);
    assert.ok(codes.includes('APIUserAbortError'), `${codes}`);
  } finally {
    assert.equal(await strict.stop(), 0);
  }
  const lines = strict.log
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.ok(lines.some(({ path, status }) => path === '/v1/models' && status === 401));
  assert.ok(lines.some(({ status, error }) => status === 429 && error === 'rate_limit_exceeded'));
  assert.ok(!strict.log.includes(prompts[0]) && !strict.log.includes('secret'));
});

test('a signal lets running requests finish; a second one stops at once', async () => {
  const params = {
    prompt: prompts[0],
    max_tokens: 400,
    n: 4,
    temperature: 0,
    stream: true,
    logit_bias: endless,
  };
  const polite = await Server.start('--ctx', `${context}`, '--draft', 'ngram');
  assert.equal(
    (
      await polite.json('/v1/completions', {
        ...params,
        max_tokens: 40,
        n: 1,
        stream: false,
        logit_bias: null,
      })
    ).choices[0].text,
    await alone(prompts[0], 40),
  );
  const response = await polite.post('/v1/completions', params);
  polite.child.kill('SIGTERM');
  const chunks = await events(response);
  assert.equal(chunks.filter(({ choices }) => choices[0].finish_reason === 'length').length, 4);
  assert.equal(await polite.exit, 0);
  await assert.rejects(fetch(`${polite.url}/health`));

  const hurried = await Server.start('--ctx', `${context}`, ...slowly);
  const long = hurried.post('/v1/completions', { ...params, n: 16, stream: false }).then(
    (r) => r.status,
    () => 0,
  );
  await hurried.until('sluice_requests_running', (n) => n === 1);
  hurried.child.kill('SIGINT');
  await sleep(50);
  hurried.child.kill('SIGINT');
  assert.equal(await hurried.exit, 0);
  assert.equal(await long, 503);
});

test(
  'the prompt cache outlives the server',
  { skip: inNode && 'only the native program has one' },
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-prompts-'));
    const params = {
      prompt: `${prompts.join(' ')} ${prompts.join(' ')}`,
      max_tokens: 20,
      temperature: 0,
    };
    try {
      const answers = [];
      for (let i = 0; i < 2; i++) {
        const one = await Server.start('--ctx', `${context}`, '--prompt-cache-dir', folder);
        answers.push(await one.json('/v1/completions', params));
        assert.equal(await one.stop(), 0, one.log);
      }
      const cached = answers.map(({ usage }) => usage.prompt_tokens_details.cached_tokens);
      assert.deepEqual(cached, [0, answers[0].usage.prompt_tokens - 1]);
      assert.equal(answers[1].choices[0].text, answers[0].choices[0].text);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);

test('options that cannot work are errors', () => {
  for (const [options, says] of [
    [['--port', '70000'], /70000/],
    [['--max-body-size', '1'], /--max-body-size/],
    [['--parallel', '0'], /from 1 to/],
    [['--host', 'no.such.host.invalid', '--port', '0'], /cannot listen/],
    [['--port', `${server.port}`], /cannot listen.*\[IO\]/],
    [['--memory-budget', '1k'], /BUDGET_TOO_SMALL/],
  ]) {
    const { status, stderr } = spawnSync(program, [...first, 'serve', model, ...options], {
      encoding: 'utf8',
      timeout: 60_000,
    });
    assert.ok(status > 0, options.join(' '));
    assert.match(stderr, says);
  }
});
