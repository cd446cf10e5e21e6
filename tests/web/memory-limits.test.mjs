// Budgets and contexts that the package names decide: each loads, and one page of WebAssembly memory
// less, or one position more, is refused. The sums of the plan and of the report are those of their
// parts. In Node; a tab has the same binary and pages.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { extent } from '../extent.mjs';
import { faultyServer, root } from './helpers.mjs';

const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);
const kPage = 65536;
const sample = (type) => join(root, 'examples', 'models', `sluice-tales-${type}.gguf`);
const data = (name) => join(root, 'tests', 'data', `${name}.gguf`);
const adapter = join(root, '..', 'shared', 'fixtures', 'lora', 'llama.a.lora.gguf');
const fixed = { threads: 1, cache: 'none' };

// The short suite takes some: the native tests of limits have all kinds.
const cases = [
  [sample('Q8_0'), { contextLength: 300 }],
  [sample('Q4_0'), { contextLength: 700, kvType: 'q4_0', draft: 'ngram', structuredOutput: false }],
  [sample('F16'), { contextLength: 300, parallel: 3 }],
  [sample('Q8_0'), { contextLength: 300, draft: sample('Q4_0') }],
  [sample('Q8_0'), { draft: sample('Q4_0'), kvType: 'auto' }],
  [data('arch/llama-gqa'), { contextLength: 300, kvType: 'auto' }],
  [data('arch/qwen3'), { kvPolicy: 'window', kvCapacity: 256 }],
  [data('arch/gemma2'), { contextLength: 500, kvPolicy: 'heavy-hitter', kvType: 'q8_0' }],
  [data('families/lfm2'), { contextLength: 2000, draft: 'ngram' }],
  [data('families/qwen3moe'), { kvType: 'q8_0,q4_0' }],
  ...(existsSync(adapter)
    ? [[data('arch/llama-gqa'), { contextLength: 300, lora: [{ source: adapter, scale: 0.5 }] }]]
    : []),
].filter((_, i) => extent([3, 6, 9].includes(i), true));

const refusal = async (work) => {
  const error = await work.then(
    () => assert.fail('it is not refused'),
    (reason) => reason,
  );
  assert.equal(error.code, 'BUDGET_TOO_SMALL', error.message);
  return Number(/smallest that works is (\d+) bytes/.exec(error.message)[1]);
};

const parts = [
  ['pinned', 'streamBuffer', 'smallTensors', 'kv', 'activations', 'scratch', 'tokenizer'],
  ['generation', 'grammar', 'adapters', 'nextn', 'draft', 'reserve', 'other'],
].flat();
function checkSum(bytes) {
  for (const part of parts) assert.equal(typeof bytes[part], 'number', part);
  assert.equal(
    parts.reduce((sum, part) => sum + bytes[part], 0),
    bytes.total,
  );
  assert.equal(bytes.weights, bytes.pinned + bytes.streamBuffer);
  assert.ok(bytes.total <= bytes.budget);
}

for (const [path, given] of cases) {
  const name = `${path.slice(root.length)} ${JSON.stringify(given)}`;
  test(`named budgets load: ${name}`, async () => {
    const options = { ...fixed, ...given };
    // A budget that does not even hold the header, and one that does.
    const smallest = await refusal(Engine.load(path, { ...options, memoryBudget: kPage }));
    assert.equal(smallest % kPage, 0);
    for (const inside of [Engine.inspect, Engine.load])
      assert.equal(
        await refusal(inside.call(Engine, path, { ...options, memoryBudget: smallest - kPage })),
        smallest,
      );
    const engine = await Engine.load(path, { ...options, memoryBudget: smallest });
    try {
      checkSum(engine.info.plan);
      checkSum(engine.memory());
      assert.equal(
        (await engine.generate('A fox', { maxTokens: 3, ignoreEos: true }).result).usage
          .completionTokens,
        3,
      );
      const { plan } = engine.info;
      assert.equal(plan.minimum, smallest);
      // A running engine: its own context and KV cache type.
      await engine.setMemoryBudget(2 * smallest);
      const named = await refusal(engine.setMemoryBudget(kPage));
      assert.equal(await refusal(engine.setMemoryBudget(named - kPage)), named);
      await engine.setMemoryBudget(named);
      checkSum(engine.memory());
    } finally {
      await engine.dispose();
    }
  });

  test(`the plan's minimum and longest contexts load: ${name}`, async () => {
    const first = await Engine.inspect(path, { ...fixed, ...given });
    const options = { ...fixed, ...given };
    if (!options.kvPolicy) options.contextLength = first.plan.contextLength;
    checkSum(first.plan);
    const fits = (more) =>
      Engine.load(path, { ...options, ...more }).then(
        (engine) => engine.dispose().then(() => true),
        ({ code }) => (assert.equal(code, 'BUDGET_TOO_SMALL'), false),
      );
    assert.ok(await fits({ memoryBudget: first.plan.minimum }));
    assert.ok(!(await fits({ memoryBudget: first.plan.minimum - kPage })));
    for (const times of extent([2], [1, 2, 4])) {
      const memoryBudget = times * first.plan.minimum;
      const { maxContextByKvType } = await Engine.inspect(path, { ...options, memoryBudget });
      assert.ok(Object.keys(maxContextByKvType).length > 0);
      for (const [kvType, contextLength] of Object.entries(maxContextByKvType)) {
        if (contextLength > 0)
          assert.ok(
            await fits({ memoryBudget, kvType, contextLength }),
            `${kvType} ${contextLength}`,
          );
        assert.ok(
          contextLength === 0 ||
            !(await fits({ memoryBudget, kvType, contextLength: contextLength + 1 })),
          `${kvType} ${contextLength + 1}`,
        );
      }
    }
  });
}

for (const draft of extent([sample('Q4_0')], ['off', 'ngram', sample('Q4_0')])) {
  test(`the minimum of a streamed remote model with automatic threads, draft ${draft.slice(root.length) || draft}`, async (t) => {
    const server = await faultyServer({ bytes: readFileSync(sample('Q8_0')), etag: '"1"' });
    t.after(() => server.close());
    const options = { contextLength: 300, cache: 'none', ...(draft !== 'off' && { draft }) };
    const least = async (memoryBudget) =>
      (await Engine.inspect(server.url, { ...options, memoryBudget })).plan.minimum;
    const smallest = await refusal(Engine.load(server.url, { ...options, memoryBudget: kPage }));
    // More budget may mean more threads. Each budget from the smallest on loads and names it.
    for (const budget of [undefined, smallest, smallest + kPage, smallest + 4 * kPage, 64e6])
      assert.equal(await least(budget), smallest, `${budget}`);
    for (const budget of [smallest, smallest + kPage, smallest + 3 * kPage]) {
      const engine = await Engine.load(server.url, { ...options, memoryBudget: budget });
      checkSum(engine.memory());
      assert.ok((await engine.generate('A fox', { maxTokens: 3, ignoreEos: true }).result).text);
      await engine.dispose();
    }
    assert.equal(
      await refusal(Engine.load(server.url, { ...options, memoryBudget: smallest - kPage })),
      smallest,
    );
  });
}

for (const draft of extent([data('arch/llama-gqa')], [null, data('arch/llama-gqa')])) {
  const name = draft ? 'a model and its draft' : 'a model';
  test(
    `a budget that setAdapters() names has room for them: ${name}`,
    { skip: !existsSync(adapter) && 'needs ../shared' },
    async (t) => {
      const opened = [];
      const loadOf = async (more) => {
        const engine = await Engine.load(path, { ...options, ...more });
        opened.push(engine);
        return engine;
      };
      t.after(() => Promise.all(opened.map((engine) => engine.dispose())));
      const path = data('arch/llama-gqa');
      const lora = [
        { source: adapter, scale: 1 },
        { source: adapter.replace('.a.', '.b.'), scale: 0.5 },
      ];
      const options = { ...fixed, contextLength: 300, ...(draft && { draft }) };
      const text = async (engine) =>
        (await engine.generate('A fox', { maxTokens: 5, temperature: 0 }).result).text;
      const minimum = async (more) =>
        (await Engine.inspect(path, { ...options, ...more })).plan.minimum;
      const free = await loadOf({ lora });
      const expected = await text(free);
      const least = await minimum();
      const engine = await loadOf({ memoryBudget: least });
      const bare = await text(engine);
      const named = await refusal(engine.setAdapters(lora));
      assert.equal(await text(engine), bare);
      await engine.setMemoryBudget(named - kPage);
      assert.equal(await refusal(engine.setAdapters(lora)), named);
      await engine.setMemoryBudget(named);
      await engine.setAdapters(lora);
      assert.ok(engine.memory().heap <= named);
      checkSum(engine.memory());
      assert.equal(await text(engine), expected);
      // What the plan needs for old and new adapters is enough, however a draft model shares it.
      const twice = await minimum({ lora: [...lora, ...lora] });
      const other = await loadOf({ memoryBudget: twice });
      for (const next of [lora, [lora[1]], [], lora]) await other.setAdapters(next);
      assert.equal(await text(other), expected);
    },
  );
}

test('the plan says why the context is as long as it is, and a warning says if the budget cut it', async () => {
  const path = sample('Q8_0');
  const whole = (await Engine.inspect(path, fixed)).plan;
  assert.deepEqual([whole.contextFrom, whole.contextLength], ['model', 512]);
  for (const contextLength of [undefined, 256]) {
    const warnings = [];
    const engine = await Engine.load(path, {
      ...fixed,
      contextLength,
      memoryBudget: 1_800_000,
      onProgress: (event) => event.phase === 'warning' && warnings.push(event),
    });
    const seen = ({ contextFrom, contextLength: n }) => [contextFrom, n];
    const expected = contextLength ? ['option', 256] : ['budget', 384];
    assert.deepEqual(seen(engine.info.plan), expected);
    await engine.setMemoryBudget('64M'); // for the same context
    assert.deepEqual(seen(engine.info.plan), expected);
    assert.deepEqual(seen(engine.memory()), expected);
    const { code, message } = { ...warnings[0] };
    if (contextLength) assert.deepEqual(warnings, []);
    else assert.deepEqual([warnings.length, code], [1, 'CONTEXT_REDUCED']);
    assert.match(message ?? '384 tokens', /384 tokens/);
    await engine.dispose();
  }
});
