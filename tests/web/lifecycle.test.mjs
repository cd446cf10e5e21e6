// Edge cases of an engine's life over the fake engine in Node: aborts and breaks at any moment,
// crashes, short-lived sessions, disposal during any call. After each, the engine or the cache
// still gives the same text. Time limits only catch hangs.
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { setEnvironmentData } from 'node:worker_threads';
import { pathToFileURL } from 'node:url';
import { eventually } from './eventually.mjs';
import { buildFakePackage, fakeModel, faultyServer, random } from './helpers.mjs';

const dist = await buildFakePackage();
const { Engine } = await import(join(dist, 'node.js'));
const directory = mkdtempSync(join(tmpdir(), 'sluice-life-'));
const bytes = fakeModel();
const path = join(directory, 'model.gguf');
writeFileSync(path, bytes);
const greedy = { maxTokens: 12, temperature: 0 };
const endless = { temperature: 0, maxTokens: 1e5 };
const kHangs = 20_000;
// The server shares this process: on a busy machine it may be silent for seconds.
const tuning = {
  chunkSize: 16384,
  streamBytes: 131072,
  retryMs: 1,
  retryMaxMs: 5,
  stallMs: kHangs,
};
let engine;
let expected;

before(async () => {
  engine = await Engine.load(path, { memoryBudget: 700_000, contextLength: 1e5 });
  expected = await engine.generate('hello', greedy).text();
});
after(async () => {
  await engine.dispose();
  rmSync(directory, { recursive: true, force: true });
});

/**
 * Starts `work`, aborts it after `ms`, and checks that it rejects at once. Whether it was aborted.
 */
async function abortAfter(ms, work) {
  const control = new AbortController();
  const settled = work(control.signal).then(
    () => 'done',
    (error) => error,
  );
  settled.then(() => (settled.at = performance.now()));
  await sleep(ms);
  const aborted = performance.now();
  control.abort();
  const result = await settled;
  if (result === 'done' && settled.at <= aborted) return false;
  if (result !== 'done') assert.equal(result.name, 'AbortError', String(result));
  assert.ok(settled.at - aborted < kHangs, `${settled.at - aborted} ms`);
  return result !== 'done';
}

const phases = {
  'a long prompt': (signal) =>
    engine.generate('x'.repeat(80_000), { ...endless, cachePrompt: false, signal }).text(),
  'an answer': (signal) => engine.generate('hello', { ...endless, signal }).text(),
  'a session': (signal) =>
    engine
      .session()
      .generate('hello', { ...endless, signal })
      .text(),
  'waiting in the queue': (signal) => {
    const first = engine.generate('hello', { ...endless, signal });
    return Promise.all([first.text(), engine.generate('x', { ...greedy, signal }).text()]);
  },
  saving: (signal) => engine.session().save({ signal }),
  'saving the state': (signal) => engine.saveState({ signal }),
  restoring: async (signal) => engine.restoreState(await engine.saveState({ signal }), { signal }),
  'a change of the budget': (signal) => engine.setMemoryBudget(700_000, { signal }),
  logits: (signal) => engine.logits(new Int32Array(2000).fill(7), { signal }), // half a second
};
for (const [name, work] of Object.entries(phases)) {
  test(`an abort during ${name} rejects at once, and the engine still works`, async () => {
    let aborted = 0;
    for (const delay of [0, 1, 5, 20]) {
      aborted += await abortAfter(delay, work);
      assert.equal(await engine.generate('hello', greedy).text(), expected);
    }
    if (/prompt|answer|session|waiting|logits/.test(name))
      assert.ok(aborted > 0, 'nothing was aborted');
    await assert.rejects(work(AbortSignal.abort()), { name: 'AbortError' });
  });
}

test('after an abort at any moment of a load, the next load continues the download', async (t) => {
  const next = random(5);
  const slow = await faultyServer({ bytes, etag: '"1"' }, () => 'slow');
  t.after(() => slow.close());
  const cacheDir = join(directory, 'aborted');
  // The engine of an aborted load may be about to create the entry.
  const stored = () => {
    const [key = ''] = existsSync(cacheDir) ? readdirSync(cacheDir) : [];
    const index = join(cacheDir, key, 'index');
    if (!existsSync(index)) return 0;
    const records = readFileSync(index).subarray(8192);
    return records.filter((byte, i) => i % 8 === 0 && byte !== 0).length;
  };
  let aborted = 0;
  for (let i = 0; i < 40 && (i < 4 || stored() < 20); i++) {
    // Later and later, since nothing arrives so soon on a busy machine.
    aborted += await abortAfter(next() * 100 * (5 + i), async (signal) => {
      const loaded = await Engine.load(slow.url, {
        signal,
        cacheDir,
        tuning,
        memoryBudget: 700_000,
      });
      // The download continues after load(), so dispose() also aborts it.
      await sleep(next() * 100);
      await loaded.dispose();
    });
  }
  assert.ok(aborted > 0);
  const had = stored();
  assert.ok(had > 0, 'nothing was cached');
  slow.state.bytes = 0;
  const loaded = await Engine.load(slow.url, { cacheDir, tuning, memoryBudget: 700_000 });
  assert.equal(await loaded.generate('hello', greedy).text(), expected);
  await loaded.downloaded;
  await loaded.dispose();
  assert.ok(
    slow.state.bytes <= bytes.length - had * 16384 + 131072,
    `${slow.state.bytes} fetched with ${had} chunks stored`,
  );
  const offline = await Engine.load(slow.url, { cacheDir, cache: 'only', tuning });
  assert.equal(await offline.generate('hello', greedy).text(), expected);
  await offline.dispose();
});

test('an aborted inspection rejects at once', async (t) => {
  const stalled = await faultyServer({ bytes }, () => 'stall');
  t.after(() => stalled.close());
  for (const delay of [0, 50]) {
    assert.ok(
      await abortAfter(delay, (signal) =>
        Engine.inspect(stalled.url, { signal, tuning: { ...tuning, stallMs: 60_000 } }),
      ),
    );
  }
});

/**
 * An engine that takes `msPerToken` ms for each token of a unit, and a counter of computed units.
 */
async function slowEngine(msPerToken) {
  const units = new Int32Array(new SharedArrayBuffer(4));
  const script = join(directory, `probe-${msPerToken}.mjs`);
  writeFileSync(
    script,
    `import { getEnvironmentData } from 'node:worker_threads';
    globalThis.sluiceProbe = getEnvironmentData('probe');
    await import(${JSON.stringify(pathToFileURL(join(dist, 'worker-node.js')).href)});`,
  );
  setEnvironmentData('probe', { units, msPerToken });
  const loaded = await Engine.load(path, {
    workerUrl: pathToFileURL(script).href,
    contextLength: 1000,
    ioWorker: false,
  });
  setEnvironmentData('probe', undefined);
  return { loaded, computed: () => Atomics.load(units, 0) };
}

test('break stops computing within one layer (counted in units)', async () => {
  const { loaded, computed } = await slowEngine(100);
  const generation = loaded.generate([5], { ...endless, temperature: 0 });
  let left = 0;
  for await (const _ of generation) {
    left = computed();
    break;
  }
  assert.equal((await generation.result).finishReason, 'cancelled');
  assert.ok(
    computed() - left <= 2,
    `${computed() - left} of 12 units were computed after the break`,
  );
  await loaded.dispose();
});

test('cancel() stops prefill within one layer, after fast tokens too (counted in units)', async () => {
  const { loaded, computed } = await slowEngine(0.2);
  // Fast tokens first, so that the engine takes long steps.
  await loaded.generate([5], { temperature: 0, maxTokens: 40 }).result;
  const generation = loaded.generate(new Int32Array(900).fill(9), greedy); // 180 ms a unit
  const begun = computed();
  await eventually(() => computed() >= begun + 2, 'two units are computed');
  const left = computed();
  generation.cancel();
  assert.equal((await generation.result).finishReason, 'cancelled');
  assert.ok(computed() - left <= 2, `${computed() - left} units were computed after the cancel`);
  await loaded.dispose();
});

test('an abort stops logits() and embed() within one token (counted in units)', async () => {
  const { loaded, computed } = await slowEngine(1);
  const tokens = new Int32Array(300).fill(9);
  for (const work of [
    (signal) => loaded.logits(tokens, { signal }),
    (signal) => loaded.embed([tokens, tokens, tokens, tokens, tokens], { signal }),
  ]) {
    const control = new AbortController();
    const begun = computed();
    const working = work(control.signal);
    await eventually(() => computed() >= begun + 2, 'two units are computed');
    control.abort();
    await assert.rejects(working, { name: 'AbortError' });
    const left = computed();
    await loaded.generate([5], { ...greedy, maxTokens: 0, cachePrompt: false }).result;
    // The unit under way, those of one more token, and those of the generation.
    assert.ok(computed() - left <= 30, `${computed() - left} units after the abort`);
    const late = work(control.signal);
    await assert.rejects(late, { name: 'AbortError' });
  }
  await loaded.dispose();
});

test('loading continues after a generation that was cancelled meanwhile', async (t) => {
  for (const ioWorker of [true, false]) {
    const slow = await faultyServer({ bytes, etag: '"1"' }, () => 'slow');
    t.after(() => slow.close());
    const loaded = await Engine.load(slow.url, {
      memoryBudget: 4e6,
      contextLength: 1000,
      ioWorker,
      tuning,
    });
    const generation = loaded.generate('hello', endless);
    generation.cancel();
    assert.equal((await generation.result).finishReason, 'cancelled');
    const aborted = new AbortController();
    const second = loaded.generate('hello', { ...endless, signal: aborted.signal }).text();
    aborted.abort();
    await assert.rejects(second, { name: 'AbortError' });
    const there = () => loaded.weightUnits().every(({ state }) => state === 'pinned');
    for (let i = 0; i < 3000 && !there(); i++) await sleep(20);
    assert.ok(there(), 'some weights were never fetched');
    await loaded.dispose();
  }
});

test('a crashed worker rejects all pending calls, also of sessions; dispose() works', async () => {
  const doomed = await Engine.load(path, { memoryBudget: 700_000 });
  const session = doomed.session();
  await session.generate('hello', greedy).result;
  const pending = [
    doomed.generate([5, 666]).result,
    session.generate(' more', greedy).result,
    session.save(),
    session.fork(),
    doomed.session().send('hi').result,
    doomed.saveState(),
    doomed.setMemoryBudget(4e6),
    doomed.tokenize('x'),
  ];
  const settled = await Promise.allSettled(pending);
  const codes = settled.map(({ reason }) => reason?.code ?? 'fulfilled');
  // The last three are separate calls that may have been answered before the crash.
  assert.ok(
    codes.every((code, i) => code === 'WORKER_LOST' || (i > 4 && code === 'fulfilled')),
    codes.join(),
  );
  await assert.rejects(doomed.generate('x').text(), { code: 'WORKER_LOST' });
  await assert.rejects(session.send('x').text(), { code: 'WORKER_LOST' });
  await doomed.dispose();
  await doomed.dispose();
});

test('a session that is saved, restored, forked and swapped gives the output of an undisturbed one', async () => {
  const plain = engine.session();
  const parts = [' one', ' two', ' three', ' four'];
  const whole = [];
  for (const part of parts) whole.push(await plain.generate(part, greedy).text());
  let session = engine.session();
  const said = [];
  for (const [i, part] of parts.entries()) {
    if (i === 1) {
      const saved = structuredClone(await session.save());
      await session.dispose();
      session = engine.session();
      await session.restore(saved);
    }
    if (i === 2) session = await session.fork();
    if (i === 3) await engine.setMemoryBudget(4e6);
    await engine.generate('something between', greedy).result; // swaps the session out
    const { text, usage } = await session.generate(part, greedy).result;
    if (i > 0) assert.ok(usage.cachedTokens > 0, `turn ${i} recomputed everything`);
    said.push(text);
  }
  assert.deepEqual(said, whole);
  await engine.setMemoryBudget(700_000);
});

test('disposing of a session rejects queued calls and cancels the running one', async () => {
  const other = engine.session();
  await other.generate('hello', greedy).result;
  const saved = await other.save();
  const doomed = {
    generate: (session) => session.generate(' more', greedy).result,
    send: (session) => session.send('hi', greedy).result,
    save: (session) => session.save(),
    fork: (session) => session.fork(),
    restore: (session) => session.restore(saved),
  };
  for (const [name, call] of Object.entries(doomed)) {
    const session = engine.session();
    await session.generate('hello', greedy).result;
    const calling = call(session);
    await Promise.all([session.dispose(), assert.rejects(calling, { code: 'DISPOSED' }, name)]);
  }
  const session = engine.session();
  const going = session.generate('hello', greedy);
  for await (const _ of going) break; // it is running
  await session.dispose();
  assert.equal((await going.result).finishReason, 'cancelled');
});

test('if a lost sequence cannot be recomputed for save(), the next call recomputes it', async (t) => {
  const file = join(directory, 'cut.gguf');
  writeFileSync(file, bytes);
  const place = join(tmpdir(), `sluice-sessions-${process.pid}`);
  rmSync(place, { recursive: true, force: true });
  writeFileSync(place, ''); // sessions cannot be swapped out to files
  t.after(() => rmSync(place));
  const stranded = await Engine.load(file, { memoryBudget: 350_000, contextLength: 1e5 });
  const long = 'x'.repeat(66_000); // more than is swapped to memory
  const plain = engine.session();
  const session = stranded.session();
  assert.equal(
    await session.generate(long, greedy).text(),
    await plain.generate(long, greedy).text(),
  );
  assert.equal(await stranded.generate('hello', greedy).text(), expected);
  truncateSync(file, 50_000);
  for (let i = 0; i < 2; i++) await assert.rejects(session.save(), { code: 'TRUNCATED' });
  writeFileSync(file, bytes);
  const { text, usage } = await session.generate(' more', greedy).result;
  assert.equal(usage.cachedTokens, 0);
  assert.equal(text, await plain.generate(' more', greedy).text());
  await stranded.dispose();
});

test('many idle sessions are swapped out and in under a small budget', async () => {
  const small = await Engine.load(path, { memoryBudget: 350_000, contextLength: 1000 });
  const sessions = Array.from({ length: 6 }, () => small.session());
  const alone = {};
  for (let round = 0; round < 3; round++) {
    for (const [i, session] of sessions.entries()) {
      const text = await session.generate(` ${round}`, greedy).text();
      alone[round] ??= text; // all six sessions have the same turns
      assert.equal(text, alone[round], `session ${i}, round ${round}`);
    }
  }
  assert.ok(small.memory().heap <= 350_000);
  await small.dispose();
});

test('dispose() during any call rejects that call with DISPOSED', async (t) => {
  const works = {
    generate: (e) => e.generate('hello', endless).text(),
    prompt: (e) => e.generate('x'.repeat(90_000), endless).text(),
    session: (e) => e.session().generate('hello', endless).text(),
    loop: async (e) => {
      for await (const _ of e.generate('hello', endless));
    },
    download: (e) => e.downloaded,
  };
  for (const [name, work] of Object.entries(works)) {
    let kind = name === 'download' ? 'slow' : null;
    const slow = await faultyServer({ bytes }, () => kind);
    t.after(() => slow.close());
    const loaded = await Engine.load(slow.url, {
      cacheDir: join(directory, `gone-${name}`),
      contextLength: 1e5,
      memoryBudget: 700_000,
      tuning,
    });
    if (kind) kind = 'stall'; // or the download might end first
    const pending = work(loaded).then(
      () => 'done',
      (error) => error.code,
    );
    await sleep(10);
    await loaded.dispose();
    assert.equal(await pending, 'DISPOSED', name);
  }
});

test('after dispose() every call is DISPOSED', async () => {
  const loaded = await Engine.load(path, { memoryBudget: 700_000 });
  const session = loaded.session();
  await session.generate('x', greedy).result;
  await loaded.dispose();
  const messages = [{ role: 'user', content: 'x' }];
  for (const call of [
    () => loaded.generate('x').text(),
    () => loaded.session().generate('x').text(),
    () => session.save(),
    () => session.send('x').text(),
    () => loaded.saveState(),
    () => loaded.setMemoryBudget(4e6),
    () => loaded.logits([5]),
    () => loaded.tokenize('x'),
    () => loaded.chat.completions.create({ messages }),
    () => loaded.completions.create({ prompt: 'x' }),
  ]) {
    await assert.rejects(call, { code: 'DISPOSED', message: /disposed of/ }, String(call));
  }
  assert.equal(loaded.memory().budget > 0, true); // the last figures stay readable
});
