// What a caller may do with a call: stop reading at any moment, read it twice, abort it from either
// side, pass unsupported options. Over the fake engine in Node. Streams are compared with those of
// OpenAI's client.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { setEnvironmentData } from 'node:worker_threads';
import OpenAI from 'openai';
import { eventually } from './eventually.mjs';
import { buildFakePackage, fakeModel, importWeb } from './helpers.mjs';

const dist = await buildFakePackage();
const { Engine } = await import(join(dist, 'node.js'));
const { seedText } = await importWeb('api/sampling');
const directory = mkdtempSync(join(tmpdir(), 'sluice-calls-'));
const path = join(directory, 'model.gguf');
writeFileSync(path, fakeModel());
const greedy = { maxTokens: 12, temperature: 0 };
const endless = { temperature: 0, maxTokens: 1e5 };
const messages = [{ role: 'user', content: 'x' }];
let engine;

before(
  async () => (engine = await Engine.load(path, { contextLength: 1e5, onProgress: () => {} })),
);
after(async () => {
  await engine.dispose();
  rmSync(directory, { recursive: true, force: true });
});

/**
 * An engine that takes `msPerToken` ms for each token of a unit, and a counter of computed units.
 */
async function slowEngine(msPerToken) {
  const units = new Int32Array(new SharedArrayBuffer(4));
  const script = join(directory, 'probe.mjs');
  writeFileSync(
    script,
    `import { getEnvironmentData } from 'node:worker_threads';
    globalThis.sluiceProbe = getEnvironmentData('probe');
    await import(${JSON.stringify(pathToFileURL(join(dist, 'worker-node.js')).href)});`,
  );
  setEnvironmentData('probe', { units, msPerToken });
  const loaded = await Engine.load(path, {
    workerUrl: pathToFileURL(script),
    contextLength: 2000,
    ioWorker: false,
    onProgress: () => {},
  });
  setEnvironmentData('probe', undefined);
  return { loaded, computed: () => Atomics.load(units, 0) };
}

// --- stopping early ------------------------------------------------------------------------------

test('a chat stream stops computing after a break at any chunk (counted in units)', async () => {
  const { loaded, computed } = await slowEngine(1);
  for (const chunks of [1, 2, 4]) {
    const stream = await loaded.chat.completions.create({ messages, stream: true, temperature: 0 });
    let seen = 0;
    for await (const _ of stream) if (++seen === chunks) break;
    assert.ok(stream.controller.signal.aborted);
    const left = computed();
    // Waits until the engine is idle.
    await loaded.generate([5], { ...greedy, maxTokens: 0 }).result;
    // A few tokens, while the page is busy; not the 2000 of the context.
    assert.ok(computed() - left <= 200, `${computed() - left} units after chunk ${chunks}`);
  }
  await loaded.dispose();
});

test('cancelling a stream during prefill stops at once (counted in units)', async () => {
  const { loaded, computed } = await slowEngine(0.2);
  const prompt = new Int32Array(900).fill(9); // 180 ms a unit
  const template = `{{ messages[0].content }}{{ '${'x'.repeat(900)}' }}`;
  const streams = {
    generation: async () => loaded.generate(prompt, greedy).toReadableStream(),
    chat: async () =>
      (
        await loaded.chat.completions.create({ messages, stream: true, chat_template: template })
      ).toReadableStream(),
    completion: async () =>
      (await loaded.completions.create({ prompt, stream: true })).toReadableStream(),
  };
  for (const [name, open] of Object.entries(streams)) {
    const begun = computed();
    const reader = (await open()).getReader();
    if (name === 'chat') await reader.read(); // the role comes before prefill
    const pending = reader.read().catch(() => ({ done: true }));
    await eventually(() => computed() >= begun + 2, `${name} computes two units`);
    const left = computed();
    await reader.cancel();
    assert.ok(
      computed() - left <= 2,
      `${name}: ${computed() - left} units until cancel() resolved`,
    );
    assert.equal((await pending).done, true);
    const over = loaded.generate([5], { ...greedy, maxTokens: 0, cachePrompt: false });
    await over.result;
    assert.ok(computed() - left <= 200, `${name}: ${computed() - left} units after cancel()`);
  }
  await loaded.dispose();
});

// --- reading twice -------------------------------------------------------------------------------

test('each reader of a generation gets all of it, during and after generation', async () => {
  const generation = engine.generate('hello', greedy);
  const read = async (from) => {
    let text = '';
    for await (const piece of from) text += piece.text ?? piece;
    return text;
  };
  const both = await Promise.all([
    read(generation),
    read(generation),
    read(generation.toReadableStream()),
  ]);
  const { text } = await generation.result;
  assert.deepEqual(both, [text, text, text]);
  assert.equal(await read(generation), text);
});

test('a generation is cancelled when all of its readers have stopped', async () => {
  const generation = engine.generate('hello', { ...endless, maxTokens: 200 });
  const staying = (async () => {
    let n = 0;
    for await (const _ of generation) n++;
    return n;
  })();
  for await (const _ of generation) break;
  assert.equal(await staying, 200);
  const left = engine.generate('hello', endless);
  await Promise.all(
    [1, 2].map(async () => {
      for await (const _ of left) break;
    }),
  );
  assert.equal((await left.result).finishReason, 'cancelled');
});

test('an iterator can be returned before it begins and while it waits', async () => {
  for (const begin of [false, true]) {
    const generation = engine.generate('hello', endless);
    const iterator = generation[Symbol.asyncIterator]();
    const ahead = begin ? Array.from({ length: 50 }, () => iterator.next()) : [];
    await iterator.return();
    assert.equal((await iterator.next()).done, true);
    assert.equal((await Promise.all(ahead)).filter(({ done }) => done).length > 0, begin);
    assert.equal((await generation.result).finishReason, 'cancelled');
  }
});

// --- like OpenAI's client ------------------------------------------------------------------------

/** OpenAI's client with a server that streams for a while. */
async function openaiClient(t) {
  const chunk = `data: ${JSON.stringify({ id: 'x', choices: [{ index: 0, delta: { content: 'a' } }] })}\n\n`;
  const server = createServer((_, response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    let n = 0;
    const timer = setInterval(
      () => (++n < 8 ? response.write(chunk) : response.end('data: [DONE]\n\n')),
      5,
    );
    response.on('close', () => clearInterval(timer));
  });
  await new Promise((ok) => server.listen(0, '127.0.0.1', ok));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return new OpenAI({ apiKey: 'x', baseURL: `http://127.0.0.1:${server.address().port}` });
}

test("a stream behaves like that of OpenAI's client at its end, on break and on a second read", async (t) => {
  const openai = await openaiClient(t);
  const create = {
    ours: (options) =>
      engine.chat.completions.create(
        { messages, stream: true, max_tokens: 8, temperature: 0 },
        options,
      ),
    text: (options) =>
      engine.completions.create(
        { prompt: 'x', stream: true, max_tokens: 8, temperature: 0 },
        options,
      ),
    theirs: (options) =>
      openai.chat.completions.create({ model: 'm', messages, stream: true }, options),
  };
  const read = async (stream, until = () => {}) => {
    let n = 0;
    for await (const _ of stream) if (until(++n) === 'leave') break;
    return n > 0 ? 'ends' : 'is empty';
  };
  const cases = {
    'to its end': async (open) => {
      const s = await open();
      return [await read(s), s.controller.signal.aborted];
    },
    left: async (open) => {
      const s = await open();
      return [await read(s, () => 'leave'), s.controller.signal.aborted];
    },
    'aborted by its controller': async (open) => {
      const s = await open();
      return read(s, (n) => {
        if (n === 3) s.controller.abort();
      });
    },
    'aborted before it is read': async (open) => {
      const s = await open();
      s.controller.abort();
      return read(s);
    },
    'read twice': async (open) => {
      const s = await open();
      await read(s);
      return read(s);
    },
    'left and read again': async (open) => {
      const s = await open();
      await read(s, () => 'leave');
      return read(s);
    },
    'read twice at once': async (open) => {
      const s = await open();
      return (await Promise.allSettled([read(s), read(s)])).map(({ status }) => status);
    },
    'read and made a stream': async (open) => {
      const s = await open();
      await read(s);
      await s.toReadableStream().getReader().read();
      return 'ends';
    },
    'with a signal that has aborted': (open) => open({ signal: AbortSignal.abort() }),
  };
  const outcomes = {};
  for (const [name, work] of Object.entries(cases)) {
    const [theirs, ours, text] = await Promise.all(
      ['theirs', 'ours', 'text'].map((who) => work(create[who]).catch(() => 'throws')),
    );
    assert.deepEqual({ ours, text }, { ours: theirs, text: theirs }, name);
    outcomes[name] = theirs;
  }
  assert.deepEqual(outcomes, {
    'to its end': ['ends', false],
    left: ['ends', true],
    'aborted by its controller': 'ends',
    'aborted before it is read': 'is empty',
    'read twice': 'throws',
    'left and read again': 'throws',
    'read twice at once': ['fulfilled', 'rejected'],
    'read and made a stream': 'throws',
    'with a signal that has aborted': 'throws',
  });
});

test("the caller's signal rejects a stream with its reason", async () => {
  for (const reason of [undefined, new Error('enough')]) {
    const control = new AbortController();
    const stream = await engine.chat.completions.create({
      messages,
      stream: true,
      signal: control.signal,
    });
    await assert.rejects(
      async () => {
        for await (const _ of stream) control.abort(reason);
      },
      reason ?? { name: 'AbortError' },
    );
  }
});

test('a streamed completion reports usage in a last chunk without choices', async () => {
  const params = { prompt: 'x', stream: true, max_tokens: 3, temperature: 0 };
  const chunks = [];
  for await (const chunk of await engine.completions.create({
    ...params,
    stream_options: { include_usage: true },
  }))
    chunks.push(chunk);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, 3);
  assert.equal(chunks.at(-2).choices[0].finish_reason, 'length');
  assert.ok(
    chunks.slice(0, -1).every((chunk) => chunk.usage === null && chunk.choices.length === 1),
  );
  let plain = 0;
  for await (const chunk of await engine.completions.create(params)) {
    assert.equal(chunk.usage, undefined);
    plain++;
  }
  assert.ok(plain > 1);
});

test('the listener on a signal is removed when the call ends in any way', async () => {
  const session = engine.session();
  const { completions } = engine.chat;
  const calls = {
    generate: (signal) => engine.generate('x', { ...greedy, signal }).result,
    'generate, left': async (signal) => {
      for await (const _ of engine.generate('x', { ...endless, signal })) break;
    },
    'generate, refused': (signal) => engine.generate('', { signal }).result,
    send: (signal) => session.send('x', { ...greedy, signal }).result,
    chat: (signal) => completions.create({ messages, max_tokens: 3 }, { signal }),
    'chat, in params': (signal) => completions.create({ messages, max_tokens: 3, signal }),
    'chat, refused': (signal) => completions.create({ messages: [] }, { signal }),
    'chat, refused later': (signal) => completions.create({ messages, stop: 5 }, { signal }),
    'chat, its template failing': (signal) =>
      completions.create({ messages, chat_template: '{{ raise_exception("no") }}' }, { signal }),
    'chat stream': async (signal) => {
      for await (const _ of await completions.create(
        { messages, stream: true, max_tokens: 3 },
        { signal },
      ));
    },
    'chat stream, left': async (signal) => {
      for await (const _ of await completions.create({ messages, stream: true }, { signal })) break;
    },
    'chat stream, its controller': async (signal) => {
      const stream = await completions.create({ messages, stream: true }, { signal });
      for await (const _ of stream) stream.controller.abort();
    },
    'chat stream, never read': async (signal) => {
      await completions.create({ messages, stream: true, max_tokens: 3 }, { signal });
      await engine.generate('x', greedy).result;
    },
    text: (signal) => engine.completions.create({ prompt: 'x' }, { signal }),
    'text, refused': (signal) => engine.completions.create({}, { signal }),
    save: (signal) => session.save({ signal }),
    logits: (signal) => engine.logits([5], { signal }),
    inspect: (signal) => Engine.inspect(path, { signal }),
    load: async (signal) => (await Engine.load(path, { signal })).dispose(),
  };
  let added = 0;
  for (const [name, work] of Object.entries(calls)) {
    const { signal } = new AbortController();
    const held = new Set();
    signal.addEventListener = (_, listener) => {
      held.add(listener);
      added++;
    };
    signal.removeEventListener = (_, listener) => held.delete(listener);
    const outcome = await Promise.resolve(work(signal)).then(
      () => 'done',
      () => 'refused',
    );
    assert.equal(outcome, /refused|failing/.test(name) ? 'refused' : 'done', name);
    await engine.generate('x', { ...greedy, maxTokens: 0 }).result; // after the abandoned calls
    assert.equal(held.size, 0, `${name}: ${held.size} listeners remain`);
  }
  assert.ok(added >= 10, `${added} listeners were added`);
});

// --- arguments -----------------------------------------------------------------------------------

test('an unsupported option is an error that names it and suggests the right one', async () => {
  const session = engine.session();
  const text = (generation) => generation.text();
  const cases = [
    [() => Engine.load(path, { memory_budget: 1 }), 'memory_budget', 'memoryBudget'],
    [() => Engine.load(path, { context: 5 }), 'context', 'contextLength'],
    [() => text(engine.generate('x', { max_tokens: 5 })), 'max_tokens', 'maxTokens'],
    [() => text(engine.generate('x', { max_new_tokens: 5 })), 'max_new_tokens', 'maxTokens'],
    [() => text(engine.generate('x', { temp: 0 })), 'temp', 'temperature'],
    [() => text(engine.generate('x', { top_k: 1 })), 'top_k', 'topK'],
    [
      () => text(engine.generate('x', { repetition_penalty: 2 })),
      'repetition_penalty',
      'repeatPenalty',
    ],
    [() => text(engine.generate('x', { onToken() {} })), 'onToken'],
    [() => text(session.generate('x', { tokens: 5 })), 'tokens', 'maxTokens'],
    [() => text(session.send('x', { n: 5 })), 'n'],
    [async () => engine.session({ systemPrompt: 'x' }), 'systemPrompt', 'system'],
    [() => session.save({ timeout: 5 }), 'timeout', 'signal'],
    [() => engine.tokenize('x', { bos: false }), 'bos', 'addSpecial'],
    [() => engine.detokenize([5], { specials: true }), 'specials', 'skipSpecialTokens'],
    [() => engine.setMemoryBudget(1e9, { force: true }), 'force'],
    [() => engine.chat.completions.create({ messages, maxTokens: 5 }), 'maxTokens', 'max_tokens'],
    [() => engine.chat.completions.create({ messages, minP: 0.5 }), 'minP', 'min_p'],
    [() => engine.chat.completions.create({ messages, template: 'x' }), 'template'],
    [() => engine.chat.completions.create({ messages }, { timeout: 5 }), 'timeout'],
    [() => engine.completions.create({ prompt: 'x', messages }), 'messages'],
    ...[
      'functions',
      'function_call',
      'audio',
      'prediction',
      'web_search_options',
      'moderation',
      'reasoning_effort',
      'verbosity',
    ].map((name) => [() => engine.chat.completions.create({ messages, [name]: 'x' }), name]),
    [
      () => engine.chat.completions.create({ messages, modalities: ['text', 'audio'] }),
      'modalities',
    ],
    ...['echo'].map((name) => [
      () => engine.completions.create({ prompt: 'x', [name]: 'x' }),
      name,
    ]),
    [() => engine.completions.create({ prompt: 'x', best_of: 2 }), 'best_of'],
  ];
  for (const [call, name, meant] of cases) {
    const error = await call().then(
      () => 'accepted',
      (e) => e,
    );
    assert.equal(error.code, 'INVALID_ARGUMENT', `${name}: ${error}`);
    assert.ok(error.message.includes(name), error.message);
    if (meant) assert.match(error.message, new RegExp(`(use|it takes) ${meant}\\b`), name);
  }
});

test('OpenAI parameters without meaning here, or switched off, are accepted', async () => {
  const ignored = {
    model: 'm',
    user: 'u',
    store: true,
    metadata: { a: 'b' },
    parallel_tool_calls: false,
    service_tier: 'auto',
    safety_identifier: 's',
    prompt_cache_key: 'k',
    prompt_cache_retention: '24h',
    modalities: ['text'],
    stream_options: null,
    n: 1,
    audio: null,
    functions: undefined,
    max_tokens: 2,
    temperature: 0,
    seed: null,
    logit_bias: null,
    stop: null,
    tools: undefined,
  };
  const { choices } = await engine.chat.completions.create(
    { ...ignored, messages },
    { maxRetries: 2, headers: {} },
  );
  assert.equal(choices[0].finish_reason, 'length');
  const text = await engine.completions.create({
    prompt: 'x',
    max_tokens: 2,
    user: 'u',
    echo: false,
    suffix: null,
    best_of: 1,
  });
  assert.equal(text.choices.length, 1);
});

test('token ids outside the vocabulary are errors in every call and never wrap', async () => {
  const { vocabSize } = engine.info;
  for (const token of [-1, vocabSize, 2 ** 31, 2 ** 32 + 5, -(2 ** 32), 1e300]) {
    for (const call of [
      () => engine.generate([5, token], greedy).text(),
      () => engine.logits([token]),
      () => engine.detokenize([token]),
      () => engine.generate('x', { ...greedy, logitBias: { [token]: 1 } }).text(),
    ])
      await assert.rejects(
        async () => call(),
        { code: 'INVALID_ARGUMENT', message: /is not a token id: they range from 0 to/ },
        `${token}: ${call}`,
      );
  }
  assert.equal((await engine.generate([5, engine.info.vocabSize - 1], greedy).text()).length, 12);
});

test('a seed is any integer from -2^63 to 2^64-1, modulo 2^64', async () => {
  const say = (seed) => engine.generate('hello', { maxTokens: 12, seed }).text();
  assert.equal(await say(-1), await say(2n ** 64n - 1n));
  assert.equal(await say(7), await say(7n));
  assert.notEqual(await say(2n ** 53n), await say(2n ** 53n + 1n));
  const inText = { 0: '0', '-1': '18446744073709551615' };
  for (const [seed, text] of Object.entries(inText)) assert.equal(seedText(Number(seed)), text);
  assert.equal(seedText(2 ** 63), '9223372036854775808');
  assert.equal(seedText(-(2n ** 63n)), '9223372036854775808');
  assert.match(seedText(undefined), /^\d+$/);
  for (const seed of [1.5, NaN, Infinity, '5', true, {}, 2n ** 64n, 2 ** 64, -(2n ** 63n) - 1n]) {
    await assert.rejects(
      say(seed),
      { code: 'INVALID_ARGUMENT', message: /seed must be an integer/ },
      String(seed),
    );
  }
});

test('a logit bias may be -Infinity, other options may not be infinite', async () => {
  assert.equal(
    (await engine.generate('x', { ...greedy, logitBias: { 5: -Infinity } }).text()).length,
    12,
  );
  const { choices } = await engine.chat.completions.create({
    messages,
    max_tokens: 3,
    logit_bias: { 5: -Infinity },
  });
  assert.equal(choices.length, 1);
  for (const bias of [Infinity, NaN, '1', null]) {
    await assert.rejects(engine.generate('x', { ...greedy, logitBias: { 5: bias } }).text(), {
      code: 'INVALID_ARGUMENT',
    });
  }
});

test('a message with an invalid part is an error with a code', async () => {
  for (const content of [[null], [undefined], [5], ['text'], [{ type: 'text' }], [{}]]) {
    await assert.rejects(
      engine.chat.completions.create({ messages: [{ role: 'user', content }] }),
      { code: 'INVALID_ARGUMENT' },
      JSON.stringify(content),
    );
  }
});

// --- addresses and files -------------------------------------------------------------------------

test('unsupported addresses are errors at once; files open by path, URL and file: address', async () => {
  for (const source of [
    'ftp://host/x.gguf',
    new URL('ftp://me:secret@host/x.gguf'),
    'sftp://host/x.gguf',
  ]) {
    await assert.rejects(Engine.load(source), {
      code: 'INVALID_ARGUMENT',
      message: /^'s?ftp:\/\/host\/x\.gguf' cannot be read: /,
    });
  }
  const odd = join(directory, '100%.gguf');
  writeFileSync(odd, fakeModel());
  for (const source of [odd, pathToFileURL(odd), pathToFileURL(odd).href, `file://${odd}`]) {
    const loaded = await Engine.load(source);
    assert.equal(loaded.weightUnits().length, 12, String(source));
    await loaded.dispose();
  }
});

test('an invalid worker or wasm file is an error, in Node as in a page', async () => {
  const file = (name, text) => {
    writeFileSync(join(directory, name), text);
    return pathToFileURL(join(directory, name));
  };
  const tuning = { greetMs: 300 };
  const cases = [
    [
      { workerUrl: pathToFileURL(join(directory, 'lost.mjs')) },
      'WORKER_LOAD',
      /lost\.mjs: Cannot find module.*workerUrl\.$/s,
    ],
    [
      { workerUrl: 'http://[bad' },
      'INVALID_ARGUMENT',
      /^workerUrl 'http:\/\/\[bad' is not a URL\.$/,
    ],
    [{ workerUrl: 'http://127.0.0.1:9/worker.js' }, 'WORKER_LOAD', /127\.0\.0\.1:9/],
    [
      { workerUrl: file('throws.mjs', 'throw new Error("boom")') },
      'WORKER_LOAD',
      /throws\.mjs: boom; /,
    ],
    [{ workerUrl: file('ends.mjs', '') }, 'WORKER_LOAD', /ends\.mjs: it ended with code 0; /],
    [
      { workerUrl: file('mute.mjs', 'setInterval(() => {}, 1000)'), tuning },
      'WORKER_LOAD',
      /mute\.mjs: it sent nothing for 0\.3 s/,
    ],
    [
      {
        workerUrl: file(
          'chatty.mjs',
          "(await import('node:worker_threads')).parentPort.postMessage('hi')",
        ),
      },
      'WORKER_LOAD',
      /it is not this package's worker/,
    ],
    [
      { wasmUrl: pathToFileURL(join(directory, 'lost.wasm')) },
      'WASM_LOAD',
      /lost\.wasm: .*wasmUrl\.$/s,
    ],
    [{ wasmUrl: file('text.wasm', 'no wasm') }, 'WASM_LOAD', /text\.wasm: .*wasmUrl\.$/s],
    [{ wasmBinary: new Uint8Array(8) }, 'WASM_LOAD', /from wasmBinary: /],
  ];
  for (const [options, code, message] of cases)
    await assert.rejects(Engine.load(path, options), { name: 'SluiceError', code, message });
});
