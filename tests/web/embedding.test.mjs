// Embedding models and rerankers through the package in Node: against the references of
// ../shared/fixtures/embeddings, bit-identical at the smallest budget; OpenAI's embeddings call,
// the AI SDK's models, and invalid calls.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { longOnly } from '../extent.mjs';
import { root } from './helpers.mjs';

const folder = join(root, '..', 'shared', 'fixtures', 'embeddings');
const skip = existsSync(folder) ? false : 'no ../shared/fixtures/embeddings';
const models = skip ? [] : JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
const dist = (file) => import(pathToFileURL(join(root, 'dist', file)).href);

function floats(file) {
  const bytes = readFileSync(join(folder, file));
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

function cosine(a, b) {
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

let Engine;
before(async () => ({ Engine } = await dist('node.js')));

async function loaded(name, options, work) {
  const { file } = models.find((model) => model.name === name);
  const load = { cache: 'none', contextLength: 64, ...options };
  const engine = await Engine.load(join(folder, file), load);
  try {
    return await work(engine, load);
  } finally {
    await engine.dispose();
  }
}

async function smallest(file) {
  const refused = await Engine.load(file, {
    cache: 'none',
    contextLength: 64,
    memoryBudget: 65536,
  }).catch((e) => e);
  return Math.ceil(Number(/smallest that works is (\d+)/.exec(refused.message)[1]) / 65536) * 65536;
}

describe('against the references', { skip }, () => {
  for (const model of models.filter(({ pooling }) => pooling !== 'rank')) {
    test(
      model.name,
      {
        skip: !/bert-cls|modern-bert|gemma-embedding-dense|qwen3-last/.test(model.name) && longOnly,
      },
      async () => {
        const texts = [model.tokens, ...model.also.map(({ tokens }) => tokens)];
        const references = [floats(model.embedding), ...model.also.map(({ values }) => values)];
        const memoryBudget = await smallest(join(folder, model.file));
        const runs = [];
        for (const options of [
          { threads: 1 },
          { threads: 2, memoryBudget },
          { kernels: 'wasm128' },
        ]) {
          runs.push(
            await loaded(model.name, options, (engine) =>
              engine.embed(texts, { normalize: false }),
            ),
          );
        }
        for (const vectors of runs) {
          assert.equal(vectors.length, texts.length);
          vectors.forEach((vector, i) =>
            assert.ok(cosine(vector, references[i]) >= 0.9999, `${model.name} ${i}`),
          );
        }
        assert.deepEqual(runs[1], runs[0]);
      },
    );
  }
});

describe('calls', { skip }, () => {
  test('many texts: normalized, shortened, with progress events', async () => {
    await loaded('bert-mean', {}, async (engine) => {
      const texts = Array.from({ length: 30 }, (_, i) => `the ${'and to '.repeat(i % 7)}oa`);
      const told = [];
      const vectors = await engine.embed(texts, {
        onProgress: ({ done, total }) => told.push([done, total]),
      });
      assert.equal(vectors.length, 30);
      for (const vector of vectors) assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-6);
      assert.deepEqual(vectors[7], vectors[0]);
      assert.ok(told.length > 1 && told.at(-1)[0] === 30 && told.at(-1)[1] === 30);
      const [short] = await engine.embed([texts[3]], { dimensions: 16 });
      assert.equal(short.length, 16);
      assert.ok(cosine(short, vectors[3].subarray(0, 16)) > 1 - 1e-6);
      const [rows] = await engine.embed([[2, 150, 3]], { pooling: 'none' });
      assert.equal(rows.length, 3 * 64);
      assert.deepEqual(await engine.embed([]), []);
    });
  });

  test('embeddings.create()', async () => {
    await loaded('bert-cls', {}, async (engine) => {
      const list = await engine.embeddings.create({ input: ['the', 'and to'], dimensions: 8 });
      assert.deepEqual(
        list.data.map(({ index, embedding }) => [index, embedding.length]),
        [
          [0, 8],
          [1, 8],
        ],
      );
      assert.equal(
        list.usage.prompt_tokens,
        (await engine.countTokens('the')) + (await engine.countTokens('and to')),
      );
      const {
        data: [{ embedding }],
      } = await engine.embeddings.create({
        input: 'the',
        dimensions: 8,
        encoding_format: 'base64',
      });
      const bytes = Buffer.from(embedding, 'base64');
      assert.deepEqual(
        Array.from({ length: 8 }, (_, i) => bytes.readFloatLE(4 * i)),
        list.data[0].embedding.map(Math.fround), // the shortest digits of f32
      );
      const ids = await engine.embeddings.create({
        input: Array.from(await engine.tokenize('the')),
        dimensions: 8,
      });
      assert.deepEqual(ids.data[0].embedding, list.data[0].embedding);
    });
  });

  test('rerank()', async () => {
    const documents = ['the oa', 'and and to', 'or', 'the the'];
    for (const [name, contextLength] of [
      ['bert-rank', 64],
      ['qwen3-rank', 128],
    ]) {
      // bert-rank was trained with no longer context.
      await loaded(name, { contextLength }, async (engine) => {
        const ranked = await engine.rerank('to the', documents);
        assert.deepEqual(ranked.map(({ index }) => index).sort(), [0, 1, 2, 3]);
        assert.ok(ranked.every(({ score }) => Number.isFinite(score)));
        assert.notEqual(ranked[0].score, ranked[3].score);
        assert.deepEqual(
          ranked,
          [...ranked].sort((a, b) => b.score - a.score),
        );
        assert.deepEqual(await engine.rerank('to the', documents, { topN: 2 }), ranked.slice(0, 2));
        // Its rows would be scores.
        const code = 'INVALID_ARGUMENT';
        await assert.rejects(engine.embed(documents), { code, message: /reranker/ });
        await assert.rejects(engine.embeddings.create({ input: documents }), { code });
        const { sluiceReranking } = await dist('ai-sdk.js');
        const { ranking } = await sluiceReranking(engine).doRerank({
          documents: { type: 'text', values: documents },
          query: 'to the',
          topN: 1,
        });
        assert.deepEqual(ranking, [{ index: ranked[0].index, relevanceScore: ranked[0].score }]);
      });
    }
  });

  test('the AI SDK provider', async () => {
    const { sluiceEmbedding } = await dist('ai-sdk.js');
    await loaded('gemma-embedding-dense', {}, async (engine) => {
      const { embeddings } = await sluiceEmbedding(engine).doEmbed({ values: ['the', 'to'] });
      assert.deepEqual(
        embeddings,
        (await engine.embed(['the', 'to'])).map((vector) => Array.from(vector)),
      );
    });
  });

  test('between generations, and aborted', async () => {
    await loaded('qwen3-last', {}, async (engine) => {
      const settings = { maxTokens: 8, temperature: 0 };
      const before = await engine.generate([1, 20, 30], settings).result;
      const control = new AbortController();
      const aborted = engine.embed(
        Array.from({ length: 200 }, () => [1, 20, 30, 2]),
        { signal: control.signal, onProgress: () => control.abort() },
      );
      await assert.rejects(aborted, { name: 'AbortError' });
      const [vector] = await engine.embed([[1, 20, 30, 2]]);
      assert.equal(vector.length, 64);
      const after = await engine.generate([1, 20, 30], settings).result;
      assert.equal(after.text, before.text);
    });
  });

  test('unsupported calls are errors with a code', async () => {
    await loaded('bert-cls', {}, async (engine) => {
      const code = 'INVALID_ARGUMENT';
      await assert.rejects(engine.generate([2, 7, 3]).result, { code });
      await assert.rejects(engine.logits([2, 7, 3]), { code });
      await assert.rejects(engine.rerank('the', ['to']), { code, message: /ranking head/ });
      await assert.rejects(engine.embed(['the'], { pooling: 'max' }), { code });
      await assert.rejects(engine.embed(['the'], { dimension: 3 }), { code, message: /dimension/ });
      await assert.rejects(engine.embed(['the'], { dimensions: 65 }), { code, message: /64/ });
      await assert.rejects(engine.embed('the'), { code });
      await assert.rejects(engine.embed([[]]), { code: 'PROMPT_EMPTY' });
      await assert.rejects(engine.embed([Array(65).fill(7)]), { code: 'PROMPT_TOO_LONG' });
      assert.equal((await engine.embed(['the'])).length, 1);
    });
  });
});
