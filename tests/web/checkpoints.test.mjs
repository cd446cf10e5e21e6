// Checkpoints of families whose tensors differ from GGUF's in name, order or shape (Qwen 3.5, Gemma
// 3n and 4, Granite 4, GPT-OSS), and of an encoder, in Node and in Chromium. From a path, a server
// and the cache they give the results of a GGUF file with the same weights, bit-identical at the
// smallest budget. Unsupported settings are errors that name them.
import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { serve } from '../../web/scripts/serve.mjs';
import { all, longOnly } from '../extent.mjs';
import { encoder, families as every, writeCheckpoint } from './checkpoints.mjs';
import { crossOrigin, inTab, launch } from './chromium.mjs';
import { measureLogits, nmse, root } from './helpers.mjs';

const dist = join(root, 'dist');
const shared = join(root, '..', 'shared', 'fixtures');
const skip = existsSync(join(shared, 'families')) ? false : 'no ../shared/fixtures/families';
// Reordered heads and MXFP4; the native suite has the others.
const families = all ? every : every.filter(({ fixture }) => /^(qwen35moe|gpt-oss)$/.test(fixture));
const tokens = [1, 5, 9, 40, 70, 101, 200, 3];
const folder = mkdtempSync(join(tmpdir(), 'sluice-checkpoints-'));

before(async () => {
  if (skip) return;
  globalThis.Engine = (await import(pathToFileURL(join(dist, 'node.js')).href)).Engine;
  for (const family of families)
    writeCheckpoint(
      family,
      join(shared, 'families', `${family.fixture}.gguf`),
      join(folder, family.fixture),
    );
  writeCheckpoint(
    encoder,
    join(shared, 'embeddings', `${encoder.fixture}.gguf`),
    join(folder, encoder.fixture),
  );
});
after(() => rmSync(folder, { recursive: true }));

function check({ fixture, mostNmse = 0 }, logits, expected) {
  assert.equal(logits.length, tokens.length * 280, fixture);
  if (mostNmse)
    assert.ok(nmse(logits, expected) < mostNmse, `${fixture}: ${nmse(logits, expected)}`);
  else assert.deepEqual(logits, expected, fixture);
}

/**
 * Compares the directory `source`, resident and at the smallest budget, with the GGUF file of the
 * same weights.
 */
async function checkFamily(run, family, source, cache) {
  const expected = await run({
    source: `${source}reference.gguf`,
    tokens,
    options: { contextLength: 16, threads: 1, cache: 'none' },
  });
  const resident = await run({ source, tokens, options: { contextLength: 16, threads: 1, cache } });
  check(family, resident.logits, expected.logits);
  const streamed = await run({
    source,
    tokens,
    smallest: true,
    options: { contextLength: 16, threads: 2, cache },
  });
  assert.equal(streamed.resident, false, family.fixture);
  assert.deepEqual(streamed.logits, resident.logits, `${family.fixture} at the smallest budget`);
}

describe('in Node', { skip }, () => {
  for (const family of families)
    test(family.fixture, () =>
      checkFamily(measureLogits, family, join(folder, family.fixture, '/')),
    );

  test('an encoder uses the pooling of its directory', async () => {
    const vectors = [];
    for (const file of ['reference.gguf', '']) {
      const engine = await Engine.load(join(folder, encoder.fixture, file), { contextLength: 32 });
      vectors.push(
        await engine.embed([
          [2, 40, 7, 99, 40, 8, 101, 3],
          [2, 9, 3],
        ]),
      );
      await engine.dispose();
    }
    assert.deepEqual([vectors[0].length, vectors[0][0].length > 0], [2, true]);
    assert.deepEqual(vectors[1], vectors[0]);
  });

  test('unsupported settings are errors that name them', async () => {
    for (const [change, code, word] of [
      [
        { quantization_config: { quant_method: 'gptq' } },
        'UNSUPPORTED_TYPE',
        /quantization_config/,
      ],
      [{ hidden_act: 'relu' }, 'UNSUPPORTED_ARCHITECTURE', /hidden_act/],
      [{ num_hidden_layers: 1 << 20 }, 'BAD_HEADER', /num_hidden_layers/],
    ]) {
      const wrong = mkdtempSync(join(folder, 'wrong-'));
      cpSync(join(folder, 'gpt-oss'), wrong, { recursive: true });
      const config = JSON.parse(readFileSync(join(wrong, 'config.json'), 'utf8'));
      writeFileSync(join(wrong, 'config.json'), JSON.stringify({ ...config, ...change }));
      await assert.rejects(Engine.load(wrong, { contextLength: 16 }), { code, message: word });
    }
  });
});

describe('in Chromium', { skip }, () => {
  let browser, files;
  before(async () => {
    browser = await launch();
    files = await serve([['/', folder]], crossOrigin);
  });
  after(() => Promise.all([browser.close(), files.close()]));

  for (const isolation of [true, false]) {
    test(`${isolation ? 'with' : 'without'} isolation`, { skip: !isolation && longOnly }, () =>
      inTab(browser, dist, { isolation }, async ({ page }) => {
        const run = (args) => page.evaluate(measureLogits, args);
        for (const family of families) {
          // Some are read from the network, some from the cache.
          const cache = /qwen35moe|gpt-oss|granitehybrid-dense/.test(family.fixture)
            ? 'default'
            : 'none';
          await checkFamily(run, family, `${files.url}/${family.fixture}/`, cache);
        }
      }),
    );
  }
});
