// The public API over the fake engine in Node: generation, cancellation, queueing, errors, and the
// same text for every budget, source and I/O mode.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { after, before, test } from 'node:test';
import { extent } from '../extent.mjs';
import { buildFakePackage, fakeModel, faultyServer, random } from './helpers.mjs';

const { Engine, SluiceError } = await import(join(await buildFakePackage(), 'node.js'));

const directory = mkdtempSync(join(tmpdir(), 'sluice-'));
const bytes = fakeModel();
const path = join(directory, 'model.gguf');
writeFileSync(path, bytes);
const greedy = { maxTokens: 12, temperature: 0 };
const tuning = { chunkSize: 16384, streamBytes: 131072, retryMs: 1, retryMaxMs: 5, stallMs: 500 };
let server;
let engine;
let expected;

before(async () => {
  server = await faultyServer({ bytes, etag: '"1"' });
  engine = await Engine.load(path, { memoryBudget: 4e6, contextLength: 1e6 });
  expected = await engine.generate('hello', greedy).text();
});
after(async () => {
  await engine.dispose();
  await server.close();
  rmSync(directory, { recursive: true, force: true });
});

test('the same text for every budget, source, cache and I/O mode', async () => {
  assert.equal(expected.length, 12);
  const sources = { path: () => path, url: () => server.url, blob: () => new Blob([bytes]) };
  for (const [name, source] of Object.entries(sources)) {
    for (const memoryBudget of [undefined, 4e6, 700_000, 350_000]) {
      for (const ioWorker of [true, false]) {
        const cacheDir = name === 'url' && ioWorker ? join(directory, 'cache') : undefined;
        const loaded = await Engine.load(source(), { memoryBudget, ioWorker, cacheDir, tuning });
        const label = `${name}, budget ${memoryBudget}, ioWorker ${ioWorker}`;
        assert.equal(await loaded.generate('hello', greedy).text(), expected, label);
        await loaded.downloaded;
        await loaded.dispose();
      }
    }
  }
});

test('pieces carry text and tokens, and the result counts them', async () => {
  const generation = engine.generate('hello', greedy);
  const pieces = [];
  for await (const piece of generation) pieces.push(piece);
  assert.equal(pieces.map((piece) => piece.text).join(''), expected);
  assert.ok(pieces.every((piece) => piece.token >= 3 && piece.logprob === undefined));
  const { finishReason, usage, timings } = await generation.result;
  assert.equal(finishReason, 'length');
  assert.deepEqual([usage.promptTokens, usage.completionTokens, usage.totalTokens], [6, 12, 18]);
  assert.ok(timings.timeToFirstTokenMs <= timings.promptMs + timings.generateMs);
});

test('a prompt that continues the last one prefills only its new tokens', async () => {
  await engine.generate('abc', { ...greedy, cachePrompt: false }).result;
  const tokens = await engine.tokenize('abcdef');
  const again = await engine.generate(tokens, greedy).result;
  assert.equal(again.usage.cachedTokens, 4);
  const fresh = await engine.generate(tokens, { ...greedy, cachePrompt: false }).result;
  assert.equal(fresh.usage.cachedTokens, 0);
  assert.equal(again.text, fresh.text);
});

test('logprobs and top_logprobs of each token', async () => {
  const generation = engine.generate('hello', { ...greedy, logprobs: 2 });
  let pieces = 0;
  for await (const piece of generation) {
    assert.equal(piece.topLogprobs.length, 2);
    assert.equal(typeof piece.logprob, 'number');
    pieces++;
  }
  assert.equal(pieces, 12);
});

test('the same seed gives the same text, another seed another', async () => {
  const text = (seed) => engine.generate('hello', { maxTokens: 12, seed }).text();
  assert.equal(await text(1), await text(1));
  assert.notEqual(await text(1), await text(2));
});

test('a stop string ends the text before it', async () => {
  const stop = expected.slice(4, 7);
  const generation = engine.generate('hello', { ...greedy, stop });
  let text = '';
  for await (const piece of generation) text += piece.text;
  assert.equal(text, expected.slice(0, expected.indexOf(stop)));
  const result = await generation.result;
  assert.deepEqual([result.finishReason, result.stopString], ['stop', stop]);
});

test('toReadableStream() yields the text', async () => {
  let text = '';
  for await (const part of engine.generate('hello', greedy).toReadableStream()) text += part;
  assert.equal(text, expected);
});

test('break cancels the generation, and the engine still works', async () => {
  const generation = engine.generate('hello', { temperature: 0, maxTokens: 1e5 });
  for await (const _ of generation) break;
  assert.equal((await generation.result).finishReason, 'cancelled');
  assert.equal(await engine.generate('hello', greedy).text(), expected);
});

test('an abort rejects everything at once', async () => {
  for (const delay of [0, 1, 3, 10, 20]) {
    const control = new AbortController();
    const generation = engine.generate('hello', {
      temperature: 0,
      maxTokens: 1e5,
      signal: control.signal,
    });
    setTimeout(() => control.abort(), delay);
    await assert.rejects(
      async () => {
        for await (const _ of generation);
      },
      { name: 'AbortError' },
    );
    await assert.rejects(generation.text(), { name: 'AbortError' });
  }
  const aborted = engine.generate('hello', { signal: AbortSignal.abort() });
  await assert.rejects(aborted.text(), { name: 'AbortError' });
  assert.equal(await engine.generate('hello', greedy).text(), expected);
});

test('generations queue; a queued one can be cancelled', async () => {
  const first = engine.generate('hello', { ...greedy, maxTokens: 2000 });
  const second = engine.generate('hello', greedy);
  const third = engine.generate('hello', greedy);
  second.cancel();
  assert.equal((await first.text()).slice(0, 12), expected);
  assert.equal((await second.result).finishReason, 'cancelled');
  assert.equal(await third.text(), expected);
});

test('tokenize, detokenize and countTokens', async () => {
  const tokens = await engine.tokenize('hi', { addSpecial: false });
  assert.equal(await engine.detokenize(tokens), 'hi');
  assert.equal(await engine.countTokens('hi'), 3);
});

test('renderPrompt: the text and the tokens of a chat', async () => {
  const messages = [{ role: 'user', content: 'hi\uFDD0' }];
  const chatMl = await engine.renderPrompt(messages, { addGenerationPrompt: false });
  assert.equal(chatMl.text, '<|im_start|>user\nhi\uFFFD<|im_end|>\n');
  assert.deepEqual(chatMl.stop, ['<|im_end|>']);
  const template = '{{ messages[0].content }}{{ x }}{{ tools|length }}';
  const { text, tokens, stop } = await engine.renderPrompt(messages, {
    template,
    variables: { x: 12345678901234567n },
    tools: [{}],
  });
  assert.deepEqual([text, stop], ['hi\uFFFD123456789012345671', []]);
  // The fake tokenizer keeps the marks.
  const marked = `\uFDD0hi\uFFFD\uFDD1${text.slice(3)}`;
  assert.equal(await engine.detokenize(tokens), marked);
  await assert.rejects(engine.renderPrompt(messages, { signal: AbortSignal.abort() }), {
    name: 'AbortError',
  });
  for (const wrong of [
    () => engine.renderPrompt([]),
    () => engine.renderPrompt(messages, { variables: { f: () => 1 } }),
    () => engine.renderPrompt(messages, { tool: [] }),
  ])
    await assert.rejects(async () => wrong(), { code: 'INVALID_ARGUMENT' });
});

test('the KV cache can be saved and restored', async () => {
  const prompt = await engine.tokenize('hello there');
  await engine.generate(prompt, greedy).result;
  const saved = await engine.saveState();
  await engine.generate('other', greedy).result;
  await engine.restoreState(saved);
  const { usage } = await engine.generate(prompt, greedy).result;
  assert.equal(usage.cachedTokens, prompt.length - 1);
});

test('budget changes in both directions keep the KV cache', async () => {
  const moved = await Engine.load(path, { memoryBudget: 4e6 });
  const prompt = await moved.tokenize('hello');
  const [first] = await Promise.all([
    moved.generate(prompt, greedy).text(),
    moved.setMemoryBudget(350_000), // waits in the queue
  ]);
  assert.equal(first, expected);
  for (const budget of [700_000, 350_000, 4e6]) {
    assert.ok(moved.memory().heap <= moved.memory().budget);
    const { text, usage } = await moved.generate(prompt, greedy).result;
    assert.deepEqual([text, usage.cachedTokens], [expected, prompt.length - 1]);
    await assert.rejects(moved.setMemoryBudget(270_000), { code: 'BUDGET_TOO_SMALL' });
    await moved.setMemoryBudget(budget);
    assert.equal(moved.memory().budget, budget - (budget % 65536));
  }
  await moved.dispose();
});

test('the I/O worker gets a core if most weights stream, unless threads read themselves or are set', async () => {
  const all = Math.min(16, availableParallelism());
  const streamed = Math.max(1, all - 1);
  const blob = new Blob([bytes]);
  for (const [source, options, threads] of [
    [blob, { memoryBudget: 700_000 }, all],
    [blob, { memoryBudget: 350_000 }, streamed],
    [blob, { memoryBudget: 350_000, ioWorker: false }, all],
    [blob, { memoryBudget: 350_000, threads: all + 1 }, all + 1],
    [path, { memoryBudget: 350_000 }, all],
  ]) {
    const loaded = await Engine.load(source, options);
    assert.equal(loaded.stats().threads, threads, JSON.stringify(options));
    await loaded.dispose();
  }
  const moved = await Engine.load(blob, { memoryBudget: 4e6 });
  for (const [budget, threads] of [
    [350_000, streamed],
    [4e6, all],
  ]) {
    await moved.setMemoryBudget(budget);
    assert.equal(moved.stats().threads, threads, `moved to ${budget}`);
  }
  await moved.dispose();
});

test('invalid prompts have stable codes and do no harm', async () => {
  await assert.rejects(engine.generate('').text(), { code: 'PROMPT_EMPTY' });
  await assert.rejects(engine.generate([]).text(), { code: 'PROMPT_EMPTY' });
  await assert.rejects(engine.generate('x'.repeat(1e6)).text(), { code: 'PROMPT_TOO_LONG' });
  assert.equal(await engine.generate('hello', greedy).text(), expected);
});

test('invalid options are errors with a code, never silent defaults', async () => {
  const wrong = [
    ...[
      'temperature',
      'topK',
      'topP',
      'minP',
      'repeatPenalty',
      'frequencyPenalty',
      'presencePenalty',
      'penaltyLastN',
      'seed',
    ].flatMap((name) => [NaN, Infinity, 'hot'].map((value) => ({ [name]: value }))),
    ...[NaN, -1, '5', {}].map((maxTokens) => ({ maxTokens })),
    ...[NaN, -1, 'some'].map((logprobs) => ({ logprobs })),
    { stop: 5 },
    { stop: ['a', 5] },
    { logitBias: { 5: NaN } },
    { logitBias: { x: 1 } },
  ];
  for (const options of wrong) {
    await assert.rejects(
      engine.generate('hello', { ...greedy, ...options }).text(),
      { code: 'INVALID_ARGUMENT' },
      JSON.stringify(options),
    );
  }
  for (const prompt of [undefined, null, {}, 5, [NaN], [1.5], [{ role: 'user', content: 'x' }]]) {
    await assert.rejects(
      engine.generate(prompt, greedy).text(),
      { code: 'INVALID_ARGUMENT' },
      JSON.stringify(prompt),
    );
  }
  for (const prompt of [undefined, 5, ['a', 'b']]) {
    await assert.rejects(async () => engine.completions.create({ prompt }), {
      code: 'INVALID_ARGUMENT',
    });
  }
  for (const source of [undefined, null, 5, {}, ['a.gguf'], []]) {
    await assert.rejects(Engine.load(source), { code: 'INVALID_ARGUMENT' }, String(source));
  }
  for (const options of [
    { memoryBudget: 'much' },
    { memoryBudget: 4 << 30 },
    { memoryBudget: -1 },
    { contextLength: 'x' },
    { threads: -1 },
  ]) {
    await assert.rejects(
      Engine.load(path, options),
      { code: 'INVALID_ARGUMENT' },
      JSON.stringify(options),
    );
  }
  const plain = {
    ...greedy,
    stop: '',
    maxTokens: Infinity,
    topK: null,
    seed: undefined,
    logprobs: null,
  };
  // stop: '' stops nothing; null and undefined select the defaults.
  const unlimited = engine.generate('hello', plain);
  const first = await unlimited[Symbol.asyncIterator]().next();
  assert.equal(first.value.text, expected[0]);
  unlimited.cancel();
});

test('invalid arguments of every call are errors with a code and a full sentence', async () => {
  const session = engine.session();
  const { create } = Object.getPrototypeOf(engine.chat.completions);
  const chat = (...given) => create.apply(engine.chat.completions, given);
  const messages = [{ role: 'user', content: 'x' }];
  const prompt = 'x';
  const saved = await engine.saveState();
  const calls = {
    'load: options null': () => Engine.load(path, null),
    'load: options a function': () => Engine.load(path, () => {}),
    'load: onProgress': () => Engine.load(path, { onProgress: 'log' }),
    'load: signal': () => Engine.load(path, { signal: new AbortController() }),
    'load: cache': () => Engine.load(path, { cache: 'always' }),
    'load: address': () => Engine.load({ href: path }),
    'load: unclonable': () => Engine.load(path, { wasmBinary: () => {} }),
    'inspect: options null': () => Engine.inspect(path, null),
    'inspect: signal': () => Engine.inspect(path, { signal: true }),
    'generate: options null': () => engine.generate('x', null).text(),
    'generate: options a number': () => engine.generate('x', 5).result,
    'generate: signal': () => engine.generate('x', { signal: 'stop' }).text(),
    'generate: unclonable': () => engine.generate('x', { onToken: () => {} }).text(),
    'generate: the loop': async () => {
      for await (const _ of engine.generate('x', null));
    },
    'generate: the stream': () => engine.generate('x', null).toReadableStream().getReader().read(),
    'tokenize: not text': () => engine.tokenize(5),
    'tokenize: options': () => engine.tokenize('x', null),
    'countTokens: nothing': () => engine.countTokens(),
    'detokenize: text': () => engine.detokenize('x'),
    'detokenize: nothing': () => engine.detokenize(),
    'detokenize: fractions': () => engine.detokenize([1.5]),
    'detokenize: options': () => engine.detokenize([5], null),
    'logits: nothing': () => engine.logits(),
    'logits: signal': () => engine.logits([5], { signal: {} }),
    'setMemoryBudget: text': () => engine.setMemoryBudget('much'),
    'setMemoryBudget: options': () => engine.setMemoryBudget(4e6, null),
    'saveState: options': () => engine.saveState(null),
    'restoreState: nothing': () => engine.restoreState(),
    'restoreState: {}': () => engine.restoreState({}),
    'restoreState: signal': () => engine.restoreState(saved, { signal: 5 }),
    'chat: nothing': () => chat(),
    'chat: null': () => chat(null),
    'chat: no messages': () => chat({}),
    'chat: tools': () => chat({ messages, tools: 'all' }),
    'chat: stop': () => chat({ messages, stop: 5 }),
    'chat: signal': () => chat({ messages, signal: 'stop' }),
    'chat: options': () => chat({ messages }, null),
    'chat: the signal of the options': () => chat({ messages }, { signal: 5 }),
    'completions: nothing': () => engine.completions.create(),
    'completions: no prompt': () => engine.completions.create({}),
    'completions: options': () => engine.completions.create({ prompt }, null),
    'modelCache.delete: a number': () => Engine.modelCache.delete(5),
    'modelCache.delete: nothing': () => Engine.modelCache.delete(),
    'modelCache.evictOldest: nothing': () => Engine.modelCache.evictOldest(),
    'session: options': async () => engine.session(null),
    'session: messages': async () => engine.session({ messages: 'x' }),
    'session.generate: nothing': () => session.generate().text(),
    'session.generate: options': () => session.generate('x', null).text(),
    'session.generate: signal': () => session.generate('x', { signal: 'stop' }).text(),
    'session.send: nothing': () => session.send().text(),
    'session.send: options': () => session.send('x', null).text(),
    'session.send: stop': () => session.send('x', { stop: 5 }).text(),
    'session.save: options': () => session.save(null),
    'session.restore: nothing': () => session.restore(),
    'session.restore: {}': () => session.restore({}),
    'session.restore: a state': () => session.restore(saved),
    'session.fork: options': () => session.fork(null),
  };
  const wrong = [];
  for (const [name, call] of Object.entries(calls)) {
    const error = await call().then(
      () => 'accepted',
      (e) => e,
    );
    if (error.code !== 'INVALID_ARGUMENT' || !/^[A-Z'\w].{20,}\.$/.test(error.message))
      wrong.push(`${name}: ${error.code} ${error}`);
  }
  assert.deepEqual(wrong, []);
  const given = { ...greedy, signal: null };
  assert.equal(await engine.generate('hello', given).text(), expected);
});

test('invalid sources have stable codes', async () => {
  const cases = [
    [new Blob(['rubbish'.repeat(9000)]), {}, 'NOT_GGUF'],
    [new Blob([bytes.subarray(0, 10)]), {}, 'TRUNCATED'],
    [new Blob([bytes.subarray(0, 30000)]), {}, 'TRUNCATED'],
    [new Blob([bytes.subarray(0, 300000)]), {}, 'TRUNCATED'],
    [path, { memoryBudget: 200_000 }, 'OUT_OF_MEMORY'],
    [path, { memoryBudget: 1_200_000, contextLength: -1 }, 'INVALID_ARGUMENT'],
    ['/nowhere/x.gguf', {}, 'NOT_FOUND'],
    ['http://127.0.0.1:9/x.gguf', { tuning: { attempts: 2, retryMs: 1 } }, 'NETWORK'],
  ];
  for (const [source, options, code] of cases) {
    await assert.rejects(Engine.load(source, options), (error) => {
      assert.ok(error instanceof SluiceError, String(error));
      assert.ok(
        code === error.code || (code === 'OUT_OF_MEMORY' && error.code === 'BUDGET_TOO_SMALL'),
        `${error.code}: ${error.message}`,
      );
      return true;
    });
  }
});

test("the budget is the memory's maximum; an error names the smallest that works", async () => {
  await assert.rejects(Engine.load(path, { memoryBudget: 300_000 }), {
    code: 'BUDGET_TOO_SMALL',
    message: /smallest that works is \d+/,
  });
});

test('inspect reads only the header', async () => {
  const fetched = server.state.bytes;
  const info = await Engine.inspect(server.url, { memoryBudget: 4e6, tuning });
  assert.equal(info.plan.units, 12);
  assert.ok(server.state.bytes - fetched <= 1 << 20);
});

test('inspect estimates speed from what it measured and omits the rest', async () => {
  const local = (await Engine.inspect(path)).speed;
  assert.equal(local.downloadSeconds, 0);
  assert.ok(local.cacheBytesPerSecond > 0 && local.networkBytesPerSecond === undefined);
  const options = { tuning: { ...tuning, chunkSize: 4096 } };
  const remote = (await Engine.inspect(server.url, options)).speed;
  assert.equal(remote.cacheBytesPerSecond, remote.networkBytesPerSecond); // nothing is cached
  const seconds = bytes.length / remote.networkBytesPerSecond;
  assert.ok(
    Math.abs(remote.downloadSeconds / seconds - 1) < 1e-6,
    `${remote.downloadSeconds} of ${seconds}`,
  );
  const cacheDir = join(directory, 'estimate');
  const kept = (await Engine.inspect(server.url, { ...options, cacheDir })).speed;
  assert.ok(
    kept.cacheBytesPerSecond > 0 &&
      kept.downloadSeconds * kept.networkBytesPerSecond < bytes.length,
  );
  const loaded = await Engine.load(server.url, { tuning, cacheDir });
  await loaded.downloaded;
  await loaded.dispose();
  assert.equal(loaded.info.speed, undefined);
  assert.equal(
    (await Engine.inspect(server.url, { ...options, cacheDir })).speed.downloadSeconds,
    0,
  );
});

test('onProgress reports every phase', async () => {
  const phases = new Set();
  const loaded = await Engine.load(server.url, {
    tuning,
    cacheDir: join(directory, 'progress'),
    onProgress: ({ phase }) => phases.add(phase),
  });
  await loaded.downloaded;
  await loaded.generate('hello', greedy).text();
  await loaded.dispose();
  for (const phase of ['header', 'ready', 'download', 'cached'])
    assert.ok(phases.has(phase), phase);
});

test('the browser is asked once to keep the cache, when a model is first stored', async (t) => {
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  let asked = 0;
  const storage = {
    persist: async () => {
      asked++;
      throw new Error('refused');
    },
    persisted: async () => false,
  };
  Object.defineProperty(globalThis, 'navigator', { value: { storage }, configurable: true });
  t.after(() =>
    before ? Object.defineProperty(globalThis, 'navigator', before) : delete globalThis.navigator,
  );
  const fresh = await import(`${pathToFileURL(join(await buildFakePackage(), 'node.js'))}?fresh`);
  for (const cacheDir of [undefined, join(directory, 'asked'), join(directory, 'again')]) {
    const cache = cacheDir ? 'default' : 'none';
    const loaded = await fresh.Engine.load(server.url, { tuning, cache, cacheDir });
    await loaded.downloaded;
    await loaded.dispose();
    assert.equal(asked, cacheDir ? 1 : 0);
  }
  assert.equal(await fresh.Engine.modelCache.persisted(), false);
});

test('weightUnits, memory and stats are synchronous', () => {
  assert.equal(engine.weightUnits().length, 12);
  assert.ok(engine.weightUnits().every((layer) => layer.state === 'pinned'));
  assert.ok(engine.memory().budget <= 4e6 && engine.memory().heap <= 4e6);
  assert.ok(engine.stats().bytesFromCache >= 12 * 96 * 1024);
});

test('dispose is idempotent, and every later call is DISPOSED', async () => {
  const loaded = await Engine.load(path, { contextLength: 1e6 });
  const generation = loaded.generate('hello', { maxTokens: 1e5 });
  await Promise.all([loaded.dispose(), loaded.dispose()]);
  await loaded.dispose();
  await loaded[Symbol.asyncDispose]();
  await assert.rejects(generation.text(), { code: 'DISPOSED' });
  await assert.rejects(loaded.generate('x').text(), { code: 'DISPOSED' });
  await assert.rejects(loaded.tokenize('x'), { code: 'DISPOSED' });
});

test('an abort while loading rejects and leaves nothing behind', async () => {
  for (const delay of [0, 5, 20, 60, 200]) {
    const control = new AbortController();
    setTimeout(() => control.abort(), delay);
    // The header never arrives.
    const slow = await faultyServer({ bytes }, () => (delay < 20 ? 'slow' : 'stall'));
    await assert.rejects(Engine.load(slow.url, { signal: control.signal, tuning }), {
      name: 'AbortError',
    });
    await slow.close();
  }
});

test('random faults: every load gives the same text', async () => {
  const next = random(7);
  const kinds = [
    'cut',
    'short',
    'long',
    'wrong-range',
    '429',
    '503',
    'reset',
    'expired',
    'redirect',
    '200',
    'stall',
  ];
  for (let i = 0; i < extent(8, 25); i++) {
    const fault = () => (next() < 0.3 ? kinds[Math.floor(next() * kinds.length)] : null);
    const faulty = await faultyServer({ bytes, etag: '"1"' }, fault);
    const memoryBudget = 350_000 + Math.floor(next() * 1.2e6);
    const cacheDir = join(directory, `faults${i}`);
    const loaded = await Engine.load(faulty.url, {
      memoryBudget,
      cacheDir,
      ioWorker: next() < 0.5,
      tuning: { ...tuning, attempts: 30, stallMs: 100 },
    });
    try {
      assert.equal(await loaded.generate('hello', greedy).text(), expected);
    } finally {
      await loaded.dispose();
      await faulty.close();
    }
  }
});
