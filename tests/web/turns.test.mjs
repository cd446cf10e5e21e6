// Changes of an engine in call order, over the fake engine in Node: adapters that arrive late,
// budgets, deletions from the model cache, with calls between them. Each call sees what was changed
// before it. Aborts and dispose() overtake what waits, and what fails changes nothing.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from './eventually.mjs';
import { buildFakePackage, fakeModel, faultyServer, importWeb } from './helpers.mjs';

const directory = mkdtempSync(join(tmpdir(), 'sluice-turns-'));
process.env.SLUICE_CACHE = join(directory, 'cache');
const { Engine } = await import(join(await buildFakePackage(), 'node.js'));
const { Turns } = await importWeb('protocol/turns');
const bytes = fakeModel();
const path = join(directory, 'model.gguf');
writeFileSync(path, bytes);
for (const name of ['a', 'b']) writeFileSync(join(directory, name), `adapter ${name}`);
const file = (name) => join(directory, name);
const greedy = { maxTokens: 12, temperature: 0 };
const tuning = { chunkSize: 16384, retryMs: 1, retryMaxMs: 5, stallMs: 60_000, attempts: 1 };
const load = { memoryBudget: 4e6, contextLength: 1000, onProgress: () => {} };
const code = (promise) =>
  promise.then(
    () => 'done',
    (error) => (error.name === 'AbortError' ? error.name : error.code),
  );

/** Serves adapters by name, each when release(name) is called. */
const held = new Map();
const adapters = createServer(({ url }, response) => held.set(url.slice(1), response));
const address = (name) => `http://127.0.0.1:${adapters.address().port}/${name}`;
async function release(name, status = 200) {
  await eventually(() => held.has(name), `adapter ${name} is requested`);
  held.get(name).writeHead(status).end(`adapter ${name}`);
  held.delete(name);
}

/** The text with no adapter, a, b, and both. */
const texts = {};
before(async () => {
  await new Promise((ready) => adapters.listen(0, '127.0.0.1', ready));
  for (const names of ['', 'a', 'b', 'ab']) {
    const engine = await Engine.load(path, { ...load, lora: [...names].map(file) });
    texts[names] = await engine.generate('hello', greedy).text();
    await engine.dispose();
  }
  assert.equal(new Set(Object.values(texts)).size, 4);
});
after(() => {
  adapters.close();
  adapters.closeAllConnections();
  rmSync(directory, { recursive: true, force: true });
});

/** Runs `work` with an engine. */
async function withEngine(work, options) {
  const engine = await Engine.load(path, { ...load, ...options });
  try {
    await work(engine, () => engine.generate('hello', greedy).text());
  } finally {
    await engine.dispose();
  }
}

// --- the queue ---------------------------------------------------------------------------------

/** Work that logs its begin, and a function that ends it. */
function works() {
  const log = [];
  const ends = {};
  const work = (name) => () => {
    log.push(name);
    return new Promise((resolve, reject) => (ends[name] = { resolve, reject }));
  };
  return { log, ends, work };
}

test('calls run beside each other; a change runs alone, in call order', async () => {
  const turns = new Turns();
  const { log, ends, work } = works();
  const done = [
    turns.call(work('one')),
    turns.call(work('two')),
    turns.change(work('change')),
    turns.call(work('three')),
    turns.change(work('last')),
  ];
  const settled = Promise.allSettled(done);
  assert.equal(turns.waits, true);
  assert.deepEqual(log, ['one', 'two']);
  ends.two.resolve();
  await sleep(0);
  assert.deepEqual(log, ['one', 'two']);
  ends.one.reject(new Error('one'));
  await sleep(0);
  assert.deepEqual(log, ['one', 'two', 'change']);
  ends.change.reject(new Error('change'));
  await sleep(0);
  assert.deepEqual(log, ['one', 'two', 'change', 'three']);
  ends.three.resolve(3);
  await sleep(0);
  ends.last.resolve(4);
  const results = await settled;
  assert.deepEqual(
    results.map(({ value, reason }) => value ?? reason?.message),
    ['one', undefined, 'change', 3, 4],
  );
  assert.equal(turns.waits, false);
});

test('work starts at once if nothing is pending, and no later call overtakes one that waits', async () => {
  const turns = new Turns();
  const { log, ends, work } = works();
  const change = turns.change(work('change'));
  void turns.call(work('first'));
  const late = change.then(() => turns.call(work('second')));
  ends.change.resolve();
  for (let i = 0; i < 20; i++) {
    await null;
    if (log.length > 1) void turns.call(work(`later ${i}`));
  }
  assert.deepEqual(log.slice(0, 2), ['change', 'first']);
  assert.equal(log.includes('second'), true);
  for (const { resolve } of Object.values(ends)) resolve();
  await late;
});

test('a change that is aborted while it waits does not run, and nothing waits for it', async () => {
  const turns = new Turns();
  const { log, ends, work } = works();
  const one = turns.call(work('one'));
  const control = new AbortController();
  const change = turns.change(work('change'), control.signal);
  const two = turns.call(work('two'));
  control.abort();
  await assert.rejects(change, { name: 'AbortError' });
  await sleep(0);
  assert.deepEqual(log, ['one', 'two']);
  const next = turns.change(work('next'));
  const late = new AbortController();
  const never = turns.change(work('never'), late.signal);
  const three = turns.call(work('three'));
  late.abort();
  await assert.rejects(never, { name: 'AbortError' });
  ends.two.resolve();
  await sleep(0);
  assert.deepEqual(log, ['one', 'two'], 'a later change overtakes an earlier call');
  ends.one.resolve();
  await sleep(0);
  assert.deepEqual(log, ['one', 'two', 'next'], 'a call overtakes a change before an aborted one');
  ends.next.resolve();
  await sleep(0);
  ends.three.resolve();
  await Promise.all([one, two, next, three]);
});

test('end() rejects what runs, what waits and what is called later', async () => {
  const turns = new Turns();
  const { work, log } = works();
  const all = [turns.call(work('one')), turns.change(work('change')), turns.call(work('two'))];
  turns.end(new Error('over'));
  all.push(turns.call(work('three')), turns.change(work('four')), turns.call(work('five')));
  for (const { reason } of await Promise.allSettled(all)) assert.equal(reason.message, 'over');
  assert.deepEqual(log, ['one']);
});

// --- adapters ------------------------------------------------------------------------------------

test('the last of several setAdapters() wins, whichever files arrive first', () =>
  withEngine(async (engine, said) => {
    const first = engine.setAdapters([address('a')]);
    const last = engine.setAdapters([]);
    await release('a');
    await Promise.all([first, last]);
    assert.equal(await said(), texts['']);
    const slow = engine.setAdapters([address('a')]);
    const fast = engine.setAdapters([address('b')]);
    await release('b');
    await sleep(20);
    await release('a');
    await Promise.all([slow, fast]);
    assert.equal(await said(), texts.b);
  }));

test('a generation, session or chat between two changes runs with the first', () =>
  withEngine(async (engine, said) => {
    const chat = () =>
      engine.chat.completions.create({
        messages: [{ role: 'user', content: 'x' }],
        temperature: 0,
        max_tokens: 8,
      });
    const own = async (work) => {
      await engine.setAdapters([file('a')]);
      return work();
    };
    const session = () => engine.session().send('hello', greedy).text();
    const expected = {
      said: await own(said),
      session: await own(session),
      chat: (await own(chat)).choices[0].message.content,
      logits: await own(() => engine.logits([5, 6])),
    };
    assert.equal(expected.said, texts.a);
    await engine.setAdapters([]);
    const before = said();
    const first = engine.setAdapters([address('a')]);
    const between = {
      said: said(),
      session: session(),
      chat: chat().then(({ choices }) => choices[0].message.content),
      logits: engine.logits([5, 6]),
    };
    const last = engine.setAdapters([file('b')]);
    const after = said();
    await release('a');
    await Promise.all([first, last]);
    for (const [name, promise] of Object.entries(between))
      assert.deepEqual(await promise, expected[name], name);
    assert.deepEqual([await before, await after], [texts[''], texts.b]);
  }));

test('a session with turns before and after a change keeps their order', () =>
  withEngine(async (engine) => {
    const alone = engine.session();
    const expected = [await alone.generate('one', greedy).text()];
    expected.push(await alone.generate(' two', greedy).text());
    await engine.setAdapters([file('a')]);
    expected.push(await alone.generate(' three', greedy).text());
    await engine.setAdapters([]);
    const session = engine.session();
    const all = [session.generate('one', greedy).text(), session.generate(' two', greedy).text()];
    const changed = engine.setAdapters([address('a')]);
    all.push(session.generate(' three', greedy).text());
    const saved = session.save();
    const forked = session.fork();
    const over = engine.setAdapters([]);
    await release('a');
    await Promise.all([changed, over]);
    assert.deepEqual(await Promise.all(all), expected);
    assert.deepEqual((await saved).tokens, session.tokens);
    assert.equal((await forked).text, session.text);
  }));

test('an adapter that fails or is aborted changes nothing and blocks nothing', () =>
  withEngine(async (engine, said) => {
    await engine.setAdapters([file('a')]);
    const missing = code(engine.setAdapters([address('gone')]));
    const between = said();
    const wrong = code(
      engine.setAdapters([{ source: new File([Uint8Array.of(0)], 'wrong.gguf') }]),
    );
    await release('gone', 404);
    assert.deepEqual([await missing, await wrong], ['NOT_FOUND', 'UNSUPPORTED_ARCHITECTURE']);
    assert.equal(await between, texts.a);

    const control = new AbortController();
    const aborted = code(engine.setAdapters([address('b')], { signal: control.signal }));
    const waiting = said();
    control.abort();
    assert.equal(await aborted, 'AbortError');
    assert.equal(await waiting, texts.a, 'a call waits for a file that nobody wants');
    await release('b');
    assert.equal(await said(), texts.a, 'an aborted change was applied');
  }));

test('an abort at any moment of setAdapters() leaves the adapters as they were', () =>
  withEngine(async (engine, said) => {
    await engine.setAdapters([file('a')]);
    let aborted = 0;
    for (let steps = 0; steps < 60; steps++) {
      const control = new AbortController();
      const changing = code(engine.setAdapters([file('b')], { signal: control.signal }));
      for (let i = 0; i < steps; i++) await (steps < 20 ? null : new Promise(setImmediate));
      control.abort();
      const outcome = await changing;
      assert.equal(await said(), outcome === 'done' ? texts.b : texts.a, `${steps}: ${outcome}`);
      aborted += outcome === 'AbortError';
      await engine.setAdapters([file('a')]);
    }
    assert.ok(aborted > 20, `${aborted}`);
  }));

// --- with budgets --------------------------------------------------------------------------------

test('a budget and adapters that are changed together both take effect, in either order', () =>
  withEngine(async (engine, said) => {
    const adapted = engine.setAdapters([address('a')]);
    const moved = engine.setMemoryBudget(700_000);
    await release('a');
    await Promise.all([adapted, moved]);
    assert.equal(await said(), texts.a);
    assert.equal(engine.info.plan.budget, 700_000);
    await Promise.all([engine.setMemoryBudget(350_000), engine.setAdapters([file('b')])]);
    assert.equal(await said(), texts.b);
    await Promise.all([
      engine.setAdapters([]),
      engine.setMemoryBudget(4e6),
      engine.setAdapters([file('a'), file('b')]),
      engine.setMemoryBudget(700_000),
    ]);
    assert.equal(await said(), texts.ab);
    assert.equal(engine.info.plan.budget, 700_000);
  }));

test('an aborted budget change leaves the engine as it was and blocks nothing', async (t) => {
  let kind = null;
  const server = await faultyServer({ bytes, etag: '"1"' }, () => kind);
  t.after(() => server.close());
  const engine = await Engine.load(server.url, { ...load, tuning, cache: 'none' });
  const said = () => engine.generate('hello', greedy).text();
  assert.equal(await said(), texts['']);
  kind = 'stall';
  const { requests } = server.state;
  const control = new AbortController();
  const moved = code(engine.setMemoryBudget(700_000, { signal: control.signal }));
  const waiting = said();
  await eventually(() => server.state.requests !== requests, 'another request');
  kind = null;
  control.abort();
  assert.equal(await moved, 'AbortError');
  assert.equal(await waiting, texts['']);
  assert.equal(engine.info.plan.budget, 4e6);
  await engine.setMemoryBudget(700_000);
  assert.equal(engine.info.plan.budget, 700_000);
  assert.equal(await said(), texts['']);
  await engine.dispose();
});

test('a change waits for running calls; if it is aborted, later calls do not', () =>
  withEngine(
    async (engine) => {
      const endless = engine.generate('x', { temperature: 0, maxTokens: 1e5, ignoreEos: true });
      const control = new AbortController();
      const moved = code(engine.setMemoryBudget(700_000, { signal: control.signal }));
      const counted = engine.tokenize('hello');
      control.abort();
      assert.equal(await moved, 'AbortError');
      assert.equal((await counted).length, 6);
      endless.cancel();
      await endless.result;
      assert.equal(engine.info.plan.budget, 4e6);
    },
    { contextLength: 1e5 },
  ));

test('dispose() rejects all that waits with DISPOSED at once', async () => {
  const engine = await Engine.load(path, load);
  const session = engine.session();
  await session.generate('hello', greedy).result;
  const saved = await session.save();
  const waiting = {
    adapters: engine.setAdapters([address('never')]),
    generation: engine.generate('hello', greedy).result,
    budget: engine.setMemoryBudget(700_000),
    session: session.generate(' more', greedy).result,
    send: engine.session().send('hello', greedy).result,
    save: session.save(),
    restore: engine.session().restore(saved),
    fork: session.fork(),
    chat: engine.chat.completions.create({ messages: [{ role: 'user', content: 'x' }] }),
    stream: engine.completions.create({ prompt: 'x', stream: true }),
    tokens: engine.tokenize('x'),
    embeddings: engine.embed(['x']),
    logits: engine.logits([5]),
    state: engine.saveState(),
    adaptersAgain: engine.setAdapters([]),
  };
  const codes = Object.entries(waiting).map(async ([name, one]) => [name, await code(one)]);
  await eventually(() => held.has('never'), 'the adapter is requested'); // it is never released
  await engine.dispose();
  for (const [name, outcome] of await Promise.all(codes)) assert.equal(outcome, 'DISPOSED', name);
  held.get('never').destroy();
});

test('a worker that is lost rejects all that waits with WORKER_LOST', async () => {
  const engine = await Engine.load(path, load);
  const crash = engine.generate([5, 666], greedy).result;
  const waiting = [
    engine.setAdapters([file('a')]),
    engine.setMemoryBudget(700_000),
    engine.embed(['x']),
  ];
  const codes = await Promise.all([crash, ...waiting].map(code));
  assert.deepEqual(codes, Array(4).fill('WORKER_LOST'));
  await engine.dispose();
});

// --- the model cache -----------------------------------------------------------------------------

test('deletions run in call order, and not while a model moves to another budget', async (t) => {
  const server = await faultyServer({ bytes, etag: '"1"' });
  t.after(() => server.close());
  const cacheDir = process.env.SLUICE_CACHE;
  const engine = await Engine.load(server.url, { ...load, tuning, cacheDir });
  await engine.downloaded;
  for (const budget of [700_000, 4e6, 350_000]) {
    const moved = engine.setMemoryBudget(budget);
    // In the moment in which the files are closed, a deletion would succeed.
    const deleting = [];
    for (let i = 0; i < 40; i++) {
      deleting.push(code(Engine.modelCache.delete(server.url)));
      await sleep(1);
    }
    await moved;
    assert.deepEqual(new Set(await Promise.all(deleting)), new Set(['CACHE_LOCKED']));
    assert.equal(await engine.generate('hello', greedy).text(), texts['']);
  }
  await engine.dispose();
  const [deleted, again, sizes] = await Promise.all([
    Engine.modelCache.delete(server.url),
    Engine.modelCache.evictOldest(0),
    Engine.modelCache.size(),
  ]);
  assert.deepEqual([deleted, again, sizes], [true, [], 0]);
  // A load that is called after a deletion downloads the model again.
  const first = await Engine.load(server.url, { ...load, tuning, cacheDir });
  await first.downloaded;
  await first.dispose();
  const deleting = Engine.modelCache.delete(server.url);
  const loading = code(Engine.load(server.url, { ...load, cacheDir, cache: 'only' }));
  assert.deepEqual([await deleting, await loading], [true, 'NOT_FOUND']);
});
