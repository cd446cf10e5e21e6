// Changes of the memory budget over the fake engine in Node. Each starts another worker with
// another memory; queued calls, sessions and the download continue. A change that fails leaves the
// engine as it was.
import { createHook } from 'node:async_hooks';
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { buildFakePackage, fakeModel, faultyServer } from './helpers.mjs';

const { Engine } = await import(join(await buildFakePackage(), 'node.js'));
const directory = mkdtempSync(join(tmpdir(), 'sluice-moves-'));
const bytes = fakeModel();
const path = join(directory, 'model.gguf');
writeFileSync(path, bytes);
const greedy = { maxTokens: 12, temperature: 0 };
const tuning = {
  chunkSize: 16384,
  streamBytes: 131072,
  retryMs: 1,
  retryMaxMs: 5,
  stallMs: 500,
  attempts: 3,
};
let expected;

before(async () => {
  const engine = await Engine.load(path, { memoryBudget: 4e6, contextLength: 1000 });
  expected = await engine.generate('hello', greedy).text();
  await engine.dispose();
});
after(() => rmSync(directory, { recursive: true, force: true }));

const alive = new Set(); // idle workers are no active resources of the process
createHook({
  init: (id, type) => type === 'WORKER' && alive.add(id),
  destroy: (id) => alive.delete(id),
}).enable();
const workers = () => alive.size;

test('calls during a budget change run on the new worker, and the old one ends', async () => {
  const engine = await Engine.load(path, { memoryBudget: 4e6, contextLength: 1000, threads: 2 });
  const session = engine.session();
  await session.generate('hello', greedy).result;
  await sleep(100);
  const started = workers();
  assert.ok(started > 0, 'no worker was started');
  const budgets = [];
  const first = engine
    .generate('hello', greedy)
    .text()
    .then((text) => (budgets.push(engine.memory().budget), text));
  const moved = engine.setMemoryBudget(700_000);
  const during = engine.generate('hello', greedy);
  const cancelled = engine.generate('hello', { temperature: 0 });
  cancelled.cancel();
  const more = session.generate(' more', greedy).result;
  const again = engine.setMemoryBudget(350_000);
  const last = engine
    .generate('hello', greedy)
    .text()
    .then((text) => (budgets.push(engine.memory().budget), text));
  assert.deepEqual([await first, await during.text(), await last], [expected, expected, expected]);
  await Promise.all([moved, again]);
  assert.equal((await cancelled.result).finishReason, 'cancelled');
  assert.ok((await more).usage.cachedTokens >= 12, 'the session was recomputed');
  assert.deepEqual(budgets, [4e6 - (4e6 % 65536), 350_000 - (350_000 % 65536)]);
  assert.equal((await engine.tokenize('hello')).length, 6);
  for (let i = 0; i < 1000 && workers() > started; i++) await sleep(20);
  assert.ok(workers() <= started, `${workers()} workers' ports, ${started} before`);
  await engine.dispose();
});

test('a download continues across budget changes and is reported once', async (t) => {
  for (const ioWorker of [true, false]) {
    const slow = await faultyServer({ bytes, etag: '"1"' }, () => 'slow');
    t.after(() => slow.close());
    const phases = [];
    const engine = await Engine.load(slow.url, {
      memoryBudget: 700_000,
      ioWorker,
      tuning,
      cacheDir: join(directory, `download-${ioWorker}`),
      onProgress: ({ phase, bytesLoaded }) =>
        phases.push(phase === 'download' ? bytesLoaded : phase),
    });
    await sleep(150);
    await engine.setMemoryBudget(350_000);
    await engine.setMemoryBudget(4e6);
    await engine.downloaded;
    assert.equal(await engine.generate('hello', greedy).text(), expected);
    assert.equal(phases.filter((phase) => phase === 'cached').length, 1);
    assert.ok(slow.state.bytes < 2 * bytes.length, `${slow.state.bytes} fetched`);
    assert.ok(engine.stats().bytesFetched >= bytes.length - 16384);
    const { requests } = slow.state;
    await engine.setMemoryBudget(350_000); // fully cached: the network is not needed
    assert.equal(await engine.generate('hello', greedy).text(), expected);
    assert.equal(slow.state.requests, requests);
    await engine.dispose();
  }
});

test('a failed budget change leaves the engine as it was', async (t) => {
  let broken = false;
  const server = await faultyServer({ bytes, etag: '"1"' }, () => (broken ? '404' : null));
  t.after(() => server.close());
  for (const [name, source, options] of [
    ['path', () => path, {}],
    ['url', () => server.url, {}],
    ['no I/O worker', () => server.url, { ioWorker: false }],
  ]) {
    broken = false;
    const engine = await Engine.load(source(), {
      memoryBudget: 350_000,
      contextLength: 1000,
      tuning,
      ...options,
    });
    const session = engine.session();
    const said = await session.generate('hello', greedy).text();
    await assert.rejects(engine.setMemoryBudget(270_000), {
      code: 'BUDGET_TOO_SMALL',
      message: /smallest that works is \d+/,
    });
    await assert.rejects(engine.setMemoryBudget(1e9, { signal: AbortSignal.abort() }), {
      name: 'AbortError',
    });
    assert.equal(engine.info.plan.budget, 350_000);
    assert.equal(await engine.generate('hello', greedy).text(), expected, name);
    if (name !== 'path') {
      broken = true;
      await assert.rejects(engine.setMemoryBudget(700_000), { code: 'HTTP_STATUS' }, name);
      // Most weights stream, so generation fails too.
      await assert.rejects(engine.generate('hello', greedy).text(), { code: 'HTTP_STATUS' }, name);
      broken = false;
      assert.equal(await engine.generate('hello', greedy).text(), expected, name);
      await engine.setMemoryBudget(700_000);
    }
    const again = await session.generate('', greedy).result;
    assert.ok(again.usage.cachedTokens > 0 && said.length === 12, name);
    await engine.dispose();
  }
});

test('a model that changed on the server is SOURCE_CHANGED', async (t) => {
  const file = { bytes, etag: '"1"' };
  const server = await faultyServer(file);
  t.after(() => server.close());
  const engine = await Engine.load(server.url, { memoryBudget: 4e6, tuning });
  assert.equal(await engine.generate('hello', greedy).text(), expected);
  Object.assign(file, { bytes: fakeModel({ units: 14 }), etag: '"2"' });
  await assert.rejects(engine.setMemoryBudget(700_000), { code: 'SOURCE_CHANGED' });
  await engine.dispose();
});

test('an engine can be disposed of during a budget change', async () => {
  for (const delay of [0, 5, 20, 60, 120]) {
    const engine = await Engine.load(path, { memoryBudget: 4e6 });
    const moved = engine.setMemoryBudget(700_000).then(
      () => 'done',
      ({ code }) => code,
    );
    await sleep(delay);
    await engine.dispose();
    const outcome = await moved;
    assert.ok(outcome === 'done' || outcome === 'DISPOSED', outcome);
    await assert.rejects(engine.generate('x').text(), { code: 'DISPOSED' });
  }
});

test('budgets are capped at the largest wasm memory, in inspect and load alike', async () => {
  const options = { memoryBudget: 5e9, threads: 1 };
  const most = 65535 * 65536;
  assert.equal((await Engine.inspect(path, options)).plan.budget, most);
  const engine = await Engine.load(path, options);
  assert.equal(engine.info.plan.budget, most);
  assert.equal(engine.memory().budget, most);
  assert.equal(await engine.generate('hello', greedy).text(), expected);
  await engine.dispose();
});
