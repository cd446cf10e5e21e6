// Hugging Face model directories through the package, in Node and in Chromium: config.json,
// tokenizer.json and safetensors (one file or shards with their index). From a path, a server, the
// cache and picked files they give the logits of reference.py, bit-identical resident and at the
// smallest budget. A missing or wrong file is an error that names it.
import assert from 'node:assert/strict';
import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { serve } from '../../web/scripts/serve.mjs';
import { all, longOnly } from '../extent.mjs';
import { crossOrigin, inTab, launch } from './chromium.mjs';
import { root } from './helpers.mjs';

const dist = join(root, 'dist');
const data = join(root, 'tests', 'data', 'hf');
const names = ['qwen3', 'llama3', 'smollm3', 'gemma3'];
const tokens = [1, 5, 9, 40, 70, 101, 200, 3, 3, 17, 250, 99];
const expected = JSON.parse(readFileSync(join(data, 'qwen3', 'expected.json'), 'utf8'));

/** Runs in Node or in the page: logits of the tokens, greedy tokens, ids of texts. */
async function measure({
  source,
  files,
  options,
  tokens,
  prompt,
  texts = [],
  count = 0,
  smallest,
}) {
  const pick = async (url) => new File([await (await fetch(url)).blob()], url.replace(/.*\//, ''));
  const from = files ? await Promise.all(files.map(pick)) : source;
  const load = { contextLength: 64, ...options };
  if (smallest) {
    const refused = await Engine.load(from, { ...load, memoryBudget: 65536 }).catch((e) => e);
    load.memoryBudget =
      Math.ceil(Number(/smallest that works is (\d+)/.exec(refused.message)[1]) / 65536) * 65536;
  }
  const engine = await Engine.load(from, load);
  try {
    const out = {
      logits: Array.from(await engine.logits(tokens)),
      tokens: [],
      ids: [],
      memory: engine.memory(),
    };
    for (const text of texts) out.ids.push(Array.from(await engine.tokenize(text)));
    if (count > 0) {
      const generation = engine.generate(prompt, {
        maxTokens: count,
        temperature: 0,
        ignoreEos: true,
      });
      for await (const { token } of generation) out.tokens.push(token);
    }
    if (options.cache !== 'none') await engine.downloaded;
    out.info = engine.info;
    out.fetched = engine.stats().bytesFetched;
    return out;
  } finally {
    await engine.dispose();
  }
}

function checkLogits(name, logits) {
  const bytes = readFileSync(join(data, name, 'reference.f32'));
  const reference = new Float32Array(
    bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
  );
  assert.equal(logits.length, reference.length, name);
  const width = reference.length / tokens.length;
  for (let row = 0; row < tokens.length; row++) {
    let difference = 0;
    let size = 0;
    for (let i = row * width; i < (row + 1) * width; i++) {
      difference += (logits[i] - reference[i]) ** 2;
      size += reference[i] ** 2;
    }
    assert.ok(difference / size < 1e-4, `${name}, position ${row}: NMSE ${difference / size}`);
  }
}

/** Checks directories named by `source`, resident and at the smallest budget. */
async function checkAll(run, source, cache, which = names) {
  for (const name of which) {
    const resident = await run({ source: source(name), tokens, options: { threads: 1, cache } });
    checkLogits(name, resident.logits);
    assert.equal(resident.info.name, name);
    const streamed = await run({
      source: source(name),
      tokens,
      smallest: true,
      options: { threads: 2, cache },
    });
    assert.deepEqual(streamed.logits, resident.logits, `${name} at the smallest budget`);
    assert.equal(streamed.memory.resident, false, name);
  }
}

/** Checks texts and greedy tokens of the Qwen3-shaped directory. */
async function checkQwen3(run, args) {
  const { texts, prompt, greedy } = expected;
  const told = await run({
    ...args,
    tokens,
    prompt,
    count: greedy.length,
    texts: texts.map(({ text }) => text),
  });
  checkLogits('qwen3', told.logits);
  assert.deepEqual(told.tokens, greedy);
  assert.deepEqual(
    told.ids,
    texts.map(({ ids }) => ids),
  );
  return told;
}

describe('in Node', () => {
  const whichInNode = all ? names : ['llama3', 'gemma3']; // shards, and another tokenizer
  let Engine;
  let temporary;
  before(async () => {
    ({ Engine } = await import(pathToFileURL(join(dist, 'node.js')).href));
    globalThis.Engine = Engine;
    temporary = mkdtempSync(join(tmpdir(), 'sluice-directory-'));
  });
  after(() => rmSync(temporary, { recursive: true }));

  /** A copy of a directory for `change` to damage. */
  function copy(name, change) {
    const folder = mkdtempSync(join(temporary, 'model-'));
    cpSync(join(data, name), folder, { recursive: true });
    change(folder);
    return folder;
  }
  const refused = (folder, options = { contextLength: 64, threads: 1 }) =>
    Engine.load(folder, options).then(
      (engine) => engine.dispose().then(() => assert.fail('it loaded')),
      (error) => error,
    );

  test(`${whichInNode} from a path`, () =>
    checkAll(measure, (name) => join(data, name), undefined, whichInNode));
  test('texts and greedy tokens; a path to config.json or to the safetensors works too', async () => {
    for (const file of ['', 'config.json', 'model.safetensors']) {
      await checkQwen3(measure, { source: join(data, 'qwen3', file), options: { threads: 1 } });
    }
  });
  test('from a server, then from the cache, then offline', async () => {
    const files = await serve([['/', data]]);
    const args = {
      source: `${files.url}/qwen3/`,
      options: {
        threads: 1,
        cacheDir: join(temporary, 'cache'),
        tuning: { retryMs: 1, retryMaxMs: 5 },
      },
    };
    const first = await checkQwen3(measure, args);
    assert.ok(first.fetched > 1e6);
    const second = await checkQwen3(measure, args);
    assert.ok(second.fetched <= 65536, `${second.fetched} bytes were fetched again`);
    await files.close();
    await checkQwen3(measure, args);
  });

  test('the smallest budget has room for describing the directory', async () => {
    // Spaces make the description larger than what the plan needs.
    const source = copy('qwen3', (folder) => {
      const path = join(folder, 'tokenizer.json');
      writeFileSync(path, `${' '.repeat(300_000)}${readFileSync(path, 'utf8')}`);
    });
    const load = { contextLength: 64, threads: 1 };
    const minimum = async (from, more) =>
      (await Engine.inspect(from, { ...load, ...more })).plan.minimum;
    const [padded, plain] = [await minimum(source), await minimum(join(data, 'qwen3'))];
    assert.ok(padded > plain, `${padded} and ${plain}`);
    assert.equal(await minimum(source, { memoryBudget: padded }), padded);
    for (const draft of [{}, { draft: join(data, 'qwen3') }]) {
      const least = await minimum(source, draft);
      for (const memoryBudget of [65536, least - 65536]) {
        const error = await refused(source, { ...load, ...draft, memoryBudget });
        assert.equal(error.code, 'BUDGET_TOO_SMALL', error.message);
        assert.match(error.message, new RegExp(`smallest that works is ${least} bytes$`));
      }
      const engine = await Engine.load(source, { ...load, ...draft, memoryBudget: least });
      assert.equal(engine.info.plan.minimum, least);
      await engine.dispose();
    }
  });
  test('a missing file is an error that names it', async () => {
    for (const name of ['config.json', 'tokenizer.json', 'model-00002-of-00002.safetensors']) {
      const error = await refused(copy('llama3', (folder) => rmSync(join(folder, name))));
      assert.equal(error.code, 'NOT_FOUND', name);
      assert.ok(error.message.includes(name), error.message);
    }
    const files = await serve([
      ['/', copy('llama3', (folder) => rmSync(join(folder, 'model-00002-of-00002.safetensors')))],
    ]);
    const error = await refused(`${files.url}/`);
    assert.match(error.message, /model-00002-of-00002\.safetensors/);
    const none = await refused(`${files.url}/nothing/`);
    assert.equal(none.code, 'NOT_FOUND');
    assert.match(none.message, /config\.json.*GGUF/);
    await files.close();
  });
  test('a wrong file is an error that names it', async () => {
    const edit = (file, change) => (folder) =>
      writeFileSync(join(folder, file), change(readFileSync(join(folder, file), 'utf8')));
    const cases = [
      [
        edit('config.json', (s) => s.replace('"qwen3"', '"novel"')),
        'UNSUPPORTED_ARCHITECTURE',
        /novel/,
      ],
      [
        edit('config.json', (s) => s.replace('"hidden_size": 64', '"hidden_size": 96')),
        'BAD_SHAPE',
        /token_embd|attn/,
      ],
      [
        edit('config.json', (s) => s.replace('"num_hidden_layers": 12', '"num_hidden_layers": 13')),
        'MISSING_TENSOR',
        /blk\.12/,
      ],
      [
        edit('config.json', (s) => s.replace('"vocab_size": 320', '"vocab_size": 300')),
        'BAD_TOKENIZER',
        /300 rows/,
      ],
      [edit('config.json', () => '{'), 'BAD_HEADER', /config\.json/],
      [
        edit('tokenizer.json', (s) => s.replace('\\p{N}|', '\\p{N}{1,7}|')),
        'UNSUPPORTED_TOKENIZER',
        /pre-tokenizer/,
      ],
      [
        (folder) => truncateSync(join(folder, 'model.safetensors'), 100_000),
        'TRUNCATED',
        /model\.safetensors/,
      ],
    ];
    for (const [change, code, pattern] of cases) {
      const error = await refused(copy('qwen3', change));
      assert.equal(error.code, code, error.message);
      assert.match(error.message, pattern);
    }
    const away = (s) => s.replaceAll('model-00001', '../model-00001');
    const error = await refused(copy('llama3', edit('model.safetensors.index.json', away)));
    assert.equal(error.code, 'BAD_HEADER', error.message);
  });
});

describe('in Chromium', () => {
  let browser;
  let files;
  before(async () => {
    browser = await launch();
    files = await serve([['/', data]], crossOrigin);
  });
  after(async () => {
    await browser.close();
    await files.close();
  });

  const measuring = (options, work) =>
    inTab(browser, dist, options, async ({ page }) => {
      await page.evaluate(`window.measure = ${measure}`);
      await work((args) => page.evaluate((a) => measure(a), args));
    });

  for (const isolation of [true, false]) {
    const which = all ? names : ['llama3']; // in shards
    test(
      `${which} from a server, ${isolation ? 'with' : 'without'} isolation`,
      { skip: !isolation && longOnly },
      () =>
        measuring({ isolation }, (run) =>
          checkAll(run, (name) => `${files.url}/${name}/`, 'none', which),
        ),
    );
    test(
      `download, cache and picked files, ${isolation ? 'with' : 'without'} isolation`,
      { skip: isolation && longOnly },
      () =>
        measuring({ isolation }, async (run) => {
          const args = { source: `${files.url}/qwen3/`, options: {} };
          await checkQwen3(run, args);
          const again = await checkQwen3(run, args);
          assert.ok(again.fetched <= 65536, `${again.fetched} bytes were fetched again`);
          const picked = readdirSync(join(data, 'qwen3')).filter((name) =>
            /json|safetensors/.test(name),
          );
          await checkQwen3(run, {
            files: picked.map((name) => `${files.url}/qwen3/${name}`),
            options: {},
          });
        }),
    );
  }
});
