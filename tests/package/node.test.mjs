// The published package in Node with the sample model. The portable binary, one and two threads,
// resident and streamed weights must all generate the native program's text.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { inRoot } from '../../web/scripts/lib.mjs';

const model = inRoot('examples', 'models', 'sluice-tales-F16.gguf');
const prompt = 'Once upon a time';
const maxTokens = 48;
const { Engine } = await import(inRoot('dist', 'node.js'));

async function story(options) {
  const engine = await Engine.load(model, { kernels: '', ...options });
  try {
    const text = await engine.generate(prompt, { maxTokens, temperature: 0 }).text();
    return { text, memory: engine.memory(), stats: engine.stats() };
  } finally {
    await engine.dispose();
  }
}

const reference = await story({ threads: 1 });

test("a local model loads without Node's HTTP client, whose first use takes 50 ms", (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-local-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const without = (entry) => `
    for (const name of ['fetch', 'Headers', 'Request', 'Response'])
      Object.defineProperty(globalThis, name, { get() { throw new Error(\`first use of \${name}\`); } });
    const { Engine } = await import(${JSON.stringify(inRoot('dist', entry))});`;
  const worker = join(folder, 'worker.mjs');
  writeFileSync(worker, without('worker-node.js'));
  const script = `${without('node.js')}
    const workerUrl = ${JSON.stringify(pathToFileURL(worker).href)};
    const engine = await Engine.load(${JSON.stringify(model)}, { kernels: '', workerUrl });
    console.log(await engine.generate('Once', { maxTokens: 2, temperature: 0 }).text());
    await engine.dispose();`;
  const child = spawnSync(process.execPath, ['--input-type=module', '-e', script]);
  assert.deepEqual([`${child.stderr}`, child.status], ['', 0]);
});

test('generates the requested number of tokens', () => {
  assert.equal(reference.stats.generatedTokens, maxTokens);
  assert.ok(reference.text.length > maxTokens);
});

test('two threads generate the same text', async () => {
  assert.equal((await story({ threads: 2 })).text, reference.text);
});

test("a budget below the model's size gives the same text and is not exceeded", async () => {
  const memoryBudget = Math.floor(statSync(model).size * 0.85);
  for (const threads of [1, 2]) {
    const { text, memory } = await story({ threads, memoryBudget });
    assert.equal(text, reference.text);
    assert.ok(memory.heap <= memoryBudget, `heap ${memory.heap} of ${memoryBudget}`);
  }
});

test('the time of forward passes is divided if asked for, and the parts add up', async () => {
  assert.equal(reference.stats.timeBreakdown, undefined);
  const { text, stats } = await story({ timeBreakdown: true });
  assert.equal(text, reference.text);
  const { total, ...parts } = stats.timeBreakdown;
  const sum = Object.values(parts).reduce((all, ms) => all + ms, 0);
  assert.ok(total > 0 && Math.abs(sum - total) < 1e-6 * total, `${sum} of ${total}`);
  for (const part of ['attentionProjections', 'ffn', 'output', 'attention'])
    assert.ok(parts[part] > 0, part);
  for (const part of ['experts', 'gpu', 'decompress']) assert.equal(parts[part], 0, part);
});

test('an idle engine loads all pinned units', async () => {
  for (const ioWorker of [false, true]) {
    const engine = await Engine.load(model, { kernels: '', ioWorker });
    const absent = () => engine.weightUnits().filter(({ state }) => state !== 'pinned').length;
    for (let i = 0; i < 2000 && absent() > 0; i++)
      await new Promise((later) => setTimeout(later, 50));
    assert.equal(absent(), 0, `${ioWorker ? 'with' : 'without'} an I/O worker`);
    await engine.dispose();
  }
});

test('a budget that is too small is an error that names the smallest one', async () => {
  const refused = await story({ memoryBudget: 1 << 20 }).then(
    () => null,
    (e) => e,
  );
  assert.equal(refused?.code, 'BUDGET_TOO_SMALL');
  const smallest = Number(/smallest that works is (\d+) bytes/.exec(refused.message)?.[1]);
  assert.ok(smallest > 1 << 20, refused.message);
  const enough = Math.ceil(smallest / 65536) * 65536;
  assert.equal((await story({ memoryBudget: enough })).text, reference.text);
});

test('the native program generates the same text', (t) => {
  const program = inRoot('build', 'native', 'sluice');
  if (!existsSync(program)) return t.skip('build/native/sluice is not built');
  const run = spawnSync(
    program,
    ['run', model, '--raw', '-p', prompt, '-n', String(maxTokens), '--temp=0', '--kernels=scalar'],
    { encoding: 'utf8' },
  );
  assert.equal(run.status, 0, run.stderr);
  assert.ok(
    run.stdout.includes(reference.text.trim()),
    `${run.stdout}\n--- against ---\n${reference.text}`,
  );
});

test('banned tokens never occur, and all 64 bits of a seed count', async () => {
  const engine = await Engine.load(model);
  const say = async (options) => {
    const tokens = [];
    for await (const { token } of engine.generate(prompt, {
      maxTokens: 24,
      ignoreEos: true,
      ...options,
    }))
      tokens.push(token);
    return tokens;
  };
  const plain = await say({ temperature: 0 });
  const banned = await say({
    temperature: 0,
    logitBias: { [plain[0]]: -Infinity, [plain[1]]: -Infinity },
  });
  assert.ok(!banned.includes(plain[0]) && !banned.includes(plain[1]));
  const hot = (seed) => say({ seed, temperature: 2, topK: 0, topP: 1, minP: 0 });
  const [minus, most, low, next] = [
    await hot(-1),
    await hot(2n ** 64n - 1n),
    await hot(2n ** 53n),
    await hot(2n ** 53n + 1n),
  ];
  assert.deepEqual(minus, most);
  assert.notDeepEqual(minus, await hot(-2));
  assert.notDeepEqual(low, next);
  await engine.dispose();
});
