// A model several times larger than its budget, in a browser set up as users have it (profile on
// disk, no inspector). The renderer's memory stays within the budget plus a bound, and the tokens
// are those of a resident model, whether the I/O worker or the compute threads read the weights.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Bench, scratchFolder } from '../bench/browser.mjs';
import { all, extent, longOnly } from '../extent.mjs';
import { cmakeBuild } from '../../web/scripts/wasm.mjs';
import { inRoot, run } from '../../web/scripts/lib.mjs';

const MiB = 1 << 20;
// Memory of the browser itself. bench:budget has a tighter bound, for budgets that exceed the heap.
const kBeside = 200 * MiB;
const kLasting = 150 * MiB;
const url = '/model/wide.gguf';
let bench;

before(async () => {
  const makeModel = inRoot('build', 'native', 'sluice-make-model');
  if (!existsSync(makeModel)) cmakeBuild('native', { targets: ['sluice-make-model'] });
  const folder = scratchFolder();
  const shape = [
    '--layers',
    '16',
    '--embd',
    '1536',
    '--heads',
    '12',
    '--heads-kv',
    '4',
    '--ff',
    '6144',
  ];
  run(makeModel, ['--quiet', ...shape, join(folder, 'wide.gguf')]);
  // Many small matrices, so many reads per token.
  const tall = [
    '--layers',
    '64',
    '--embd',
    '512',
    '--heads',
    '8',
    '--heads-kv',
    '2',
    '--ff',
    '2048',
  ];
  if (all) run(makeModel, ['--quiet', ...tall, join(folder, 'tall.gguf')]);
  bench = await Bench.open([['/model/', folder]]);
});
after(() => bench?.close());

// Threads read directly if the file comes at the speed of memory, which may show late on a busy
// machine. Generates at least `least` and at most `until` times until they do.
async function generate({ url, maxTokens, least, until = least, last = false, ...options }) {
  const { Engine } = await import('/dist/index.js');
  const engine = await Engine.load(new URL(url, location.href), { contextLength: 64, ...options });
  const texts = [];
  const answer = async () => {
    const { text } = await engine.generate('the mill', {
      maxTokens,
      temperature: 0,
      ignoreEos: true,
      cachePrompt: false,
    }).result;
    texts.push(text);
  };
  await answer();
  await engine.downloaded;
  const snapshot = () => new Promise((done) => setTimeout(() => done(engine.stats()), 150));
  for (let i = 0; i < until && (i < least || !(await snapshot()).engine.ownBytes); i++)
    await answer();
  const { heap } = engine.memory();
  const { threads, bytesFromCache, engine: counters } = await snapshot();
  const { plan, bytes } = engine.info;
  await engine.dispose();
  const deleted = last && (await Engine.modelCache.delete(url));
  return {
    texts,
    heap,
    threads,
    bytesFromCache,
    ownBytes: counters.ownBytes,
    plan,
    bytes,
    deleted,
  };
}

test('within the budget the tokens are those of a resident model, with every reader', async () => {
  const [maxTokens, least] = extent([4, 1], [12, 3]);
  const { result: resident } = await bench.run(generate, {
    url,
    maxTokens,
    least,
    memoryBudget: 512 * MiB,
    threads: 2,
  });
  assert.ok(resident.plan.resident);
  assert.equal(new Set(resident.texts).size, 1);
  const memoryBudget = 64 * MiB;
  assert.ok(resident.bytes > 4 * memoryBudget, `${resident.bytes}`);
  for (const [name, options, own] of [
    ['direct reads', { threads: 2 }, true],
    ['the I/O worker', { threads: 1 }, false],
    ['no I/O worker', { threads: 2, ioWorker: false }, false],
    ['direct reads, empty cache', { threads: 2, cache: 'reload', last: true }, true],
  ]) {
    const { result, memory } = await bench.run(generate, {
      url,
      maxTokens,
      least,
      memoryBudget,
      until: own ? 720 / maxTokens : least,
      ...options,
    });
    assert.deepEqual(result.texts, resident.texts, name);
    assert.equal(result.plan.resident, false, name);
    assert.ok(result.heap <= memoryBudget, `${name}: heap ${result.heap}`);
    assert.ok(memory.peak <= memoryBudget + kBeside, `${name}: ${memory.peak} bytes resident`);
    assert.equal(result.ownBytes > 0, own, `${name}: ${result.ownBytes} bytes read by threads`);
    assert.ok(result.bytesFromCache >= result.ownBytes, name);
    // dispose() resolves once the files that threads had open are closed.
    if (options.last) assert.equal(result.deleted, true, name);
  }
});

async function last({ url, times, ...options }) {
  const { Engine } = await import('/dist/index.js');
  const engine = await Engine.load(new URL(url, location.href), {
    contextLength: 64,
    threads: 2,
    ...options,
  });
  await engine.downloaded;
  const held = [];
  for (let i = 0; i < times; i++) {
    await engine.generate('the mill', {
      maxTokens: 16,
      temperature: 0,
      ignoreEos: true,
      cachePrompt: false,
    }).result;
    held.push((await (await fetch('/memory')).json()).rss);
  }
  await new Promise((done) => setTimeout(done, 150));
  const { ownBytes, fills } = engine.stats().engine;
  await engine.dispose();
  return { held, ownBytes, fills, resident: engine.info.plan.resident };
}

test("the renderer's memory does not grow over many generations", { skip: longOnly }, async (t) => {
  const memoryBudget = 64 * MiB;
  const { result } = await bench.run(last, { url: '/model/tall.gguf', times: 12, memoryBudget });
  const { held, resident, ...counts } = result;
  const mb = held.map((bytes) => Math.round(bytes / MiB));
  t.diagnostic(`${mb} MB ${JSON.stringify(counts)}`);
  assert.equal(resident, false);
  assert.ok(Math.max(...held) <= memoryBudget + kLasting, `${mb} MB resident`);
});
