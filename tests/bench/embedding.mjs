// npm run bench:embedding: embedding throughput, natively against llama.cpp on the same file,
// machine and threads, in turns. With --tab it runs in headless Chromium against transformers.js'
// wasm backend with the same weights as ONNX, in f32 and with int8 matrix multiplication. The model
// has BERT-small's shape (4 layers, 512 wide, 8 heads) and random weights. It is written here as a
// Hugging Face directory, and `sluice convert` makes the GGUF file.
//   node tests/bench/embedding.mjs [--tab] [--threads 2] [--texts 256] [--tokens 128] [--type q8_0] [--rounds 2] [--no-build]
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from '../../web/scripts/build.mjs';
import { cmakeBuild } from '../../web/scripts/wasm.mjs';
import { chromiumArgs, chromiumPath, inRoot, run } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { setup } from '../../web/scripts/setup.mjs';
import { inTurns, installPeer, jsonOf } from './lib.mjs';
import { bertAsOnnx } from './onnx.mjs';

const { values } = parseArgs({
  options: {
    threads: { type: 'string', default: '2' },
    texts: { type: 'string', default: '256' },
    tokens: { type: 'string', default: '128' },
    type: { type: 'string', default: 'q8_0' },
    rounds: { type: 'string', default: '2' },
    tab: { type: 'boolean' },
    'no-build': { type: 'boolean' },
  },
});
const shape = { width: 512, layers: 4, heads: 8, inner: 2048, vocabulary: 30522, positions: 512 };

/** A weak but uniform source of random numbers around `mean`, as f32. */
function randoms(n, deviation, mean = 0) {
  const out = new Float32Array(n);
  let state = n | 1;
  for (let i = 0; i < n; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    out[i] = mean + (state / 2 ** 31) * Math.sqrt(3) * deviation;
  }
  return out;
}

/** Name, shape (rows first), and standard deviation and mean of the values of each tensor. */
function tensors() {
  const { width, layers, inner, vocabulary, positions } = shape;
  const out = [];
  const add = (name, dims, deviation, mean) => out.push({ name, dims, deviation, mean });
  const norm = (name) => {
    add(`${name}.weight`, [width], 0.1, 1);
    add(`${name}.bias`, [width], 0.1);
  };
  const dense = (name, rows, columns) => {
    add(`${name}.weight`, [rows, columns], 1 / Math.sqrt(columns));
    add(`${name}.bias`, [rows], 0.1);
  };
  add('embeddings.word_embeddings.weight', [vocabulary, width], 0.05);
  add('embeddings.position_embeddings.weight', [positions, width], 0.05);
  add('embeddings.token_type_embeddings.weight', [2, width], 0.05);
  norm('embeddings.LayerNorm');
  for (let i = 0; i < layers; i++) {
    const at = `encoder.layer.${i}.`;
    for (const part of ['self.query', 'self.key', 'self.value', 'output.dense'])
      dense(`${at}attention.${part}`, width, width);
    norm(`${at}attention.output.LayerNorm`);
    dense(`${at}intermediate.dense`, inner, width);
    dense(`${at}output.dense`, width, inner);
    norm(`${at}output.LayerNorm`);
  }
  return out;
}

function writeDirectory(folder) {
  mkdirSync(folder, { recursive: true });
  const directory = {};
  const parts = [];
  let at = 0;
  for (const { name, dims, deviation, mean } of tensors()) {
    const data = randoms(
      dims.reduce((a, b) => a * b),
      deviation,
      mean,
    );
    directory[name] = { dtype: 'F32', shape: dims, data_offsets: [at, (at += data.byteLength)] };
    parts.push(Buffer.from(data.buffer));
  }
  const header = Buffer.from(JSON.stringify(directory));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  writeFileSync(join(folder, 'model.safetensors'), Buffer.concat([length, header, ...parts]));
  const special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'];
  const vocab = Object.fromEntries(
    Array.from({ length: shape.vocabulary }, (_, i) => [special[i] ?? `w${i}`, i]),
  );
  writeFileSync(
    join(folder, 'tokenizer.json'),
    JSON.stringify({
      added_tokens: special.map((content, id) => ({ id, content, special: true })),
      normalizer: { type: 'BertNormalizer', lowercase: true },
      pre_tokenizer: { type: 'BertPreTokenizer' },
      model: {
        type: 'WordPiece',
        unk_token: '[UNK]',
        continuing_subword_prefix: '##',
        max_input_chars_per_word: 100,
        vocab,
      },
    }),
  );
  writeFileSync(
    join(folder, 'tokenizer_config.json'),
    JSON.stringify({
      unk_token: '[UNK]',
      pad_token: '[PAD]',
      cls_token: '[CLS]',
      sep_token: '[SEP]',
    }),
  );
  writeFileSync(
    join(folder, 'modules.json'),
    JSON.stringify([
      { idx: 0, path: '', type: 'sentence_transformers.models.Transformer' },
      { idx: 1, path: '1_Pooling', type: 'sentence_transformers.models.Pooling' },
    ]),
  );
  mkdirSync(join(folder, '1_Pooling'), { recursive: true });
  writeFileSync(
    join(folder, '1_Pooling', 'config.json'),
    JSON.stringify({ pooling_mode_mean_tokens: true }),
  );
  writeFileSync(
    join(folder, 'config.json'),
    JSON.stringify({
      // Written last: if it exists, the directory is complete.
      model_type: 'bert',
      vocab_size: shape.vocabulary,
      hidden_size: shape.width,
      num_hidden_layers: shape.layers,
      num_attention_heads: shape.heads,
      intermediate_size: shape.inner,
      max_position_embeddings: shape.positions,
      hidden_act: 'gelu',
      layer_norm_eps: 1e-12,
    }),
  );
}

// Where transformers.js looks for them. Written to a .part file first, so an existing one is whole.
function writeOnnx(folder) {
  mkdirSync(join(folder, 'onnx'), { recursive: true });
  for (const [name, quantized] of [
    ['model', false],
    ['model_quantized', true],
  ]) {
    const file = join(folder, 'onnx', `${name}.onnx`);
    if (existsSync(file)) continue;
    const weights = Object.fromEntries(
      tensors().map(({ name: of, dims, deviation, mean }) => [
        of,
        {
          dims,
          data: randoms(
            dims.reduce((a, b) => a * b),
            deviation,
            mean,
          ),
        },
      ]),
    );
    writeFileSync(`${file}.part`, bertAsOnnx(shape, weights, Number(values.tokens), quantized));
    renameSync(`${file}.part`, file);
  }
}

// --- in the page (functions sent as text) --------------------------------------------------------

async function loadOurs({ file, threads, tokens }) {
  const { Engine } = await import('/dist/index.js');
  globalThis.ours = await Engine.load(new URL(file, location.href), {
    memoryBudget: 256 * 2 ** 20,
    contextLength: tokens,
    threads,
    cache: 'none',
  });
  return ours.stats().threads;
}

async function measureOurs({ texts }) {
  const start = performance.now();
  const vectors = await ours.embed(texts, { pooling: 'mean' });
  return {
    prefill: (texts.length * 1000) / (performance.now() - start),
    first: Array.from(vectors[0].slice(0, 4)),
  };
}

async function loadPeer({ threads }) {
  const { AutoModel, Tensor, env } = await import('/transformers/transformers.min.js');
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = '/models/';
  env.useBrowserCache = false;
  env.backends.onnx.wasm.wasmPaths = '/ort/';
  env.backends.onnx.wasm.numThreads = threads;
  globalThis.Tensor = Tensor;
  globalThis.peers = {};
  for (const dtype of ['fp32', 'q8'])
    peers[dtype] = await AutoModel.from_pretrained('bert-small', { device: 'wasm', dtype });
}

// Mean pooling and L2 normalization, as in the pipeline of transformers.js.
async function measurePeer({ texts, dtype, batch }) {
  const start = performance.now();
  let first;
  for (let i = 0; i < texts.length; i += batch) {
    const some = texts.slice(i, i + batch);
    const dims = [some.length, some[0].length];
    const ids = new globalThis.Tensor('int64', BigInt64Array.from(some.flat(), BigInt), dims);
    const all = (x) =>
      new globalThis.Tensor('int64', new BigInt64Array(dims[0] * dims[1]).fill(x), dims);
    const { last_hidden_state: rows } = await peers[dtype]({
      input_ids: ids,
      attention_mask: all(1n),
      token_type_ids: all(0n),
    });
    const vectors = rows.mean(1).normalize(2, -1);
    first ??= Array.from(vectors.data.slice(0, 4));
  }
  return { prefill: (texts.length * 1000) / (performance.now() - start), first };
}

// --- in Node -------------------------------------------------------------------------------------

async function inTab(folder, file) {
  writeOnnx(folder);
  const modules = inRoot('tests', 'bench', 'baselines', 'node_modules');
  const server = await serve(
    [
      ['/dist/', inRoot('dist')],
      ['/transformers/', join(modules, '@huggingface', 'transformers', 'dist')],
      ['/ort/', join(modules, 'onnxruntime-web', 'dist')],
      ['/models/', join(folder, '..')],
    ],
    {
      onRequest(request, response) {
        if (request.url !== '/') return false;
        response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>bench</title>');
        return true;
      },
    },
  );
  const { chromium } = await import('playwright-core');
  const browser = await chromium.launch({ executablePath: chromiumPath, args: chromiumArgs });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    await page.goto(server.url);
    const threads = Number(values.threads),
      tokens = Number(values.tokens);
    await page.evaluate(loadOurs, { file: `/models/${file}`, threads, tokens });
    await page.evaluate(loadPeer, { threads });
    const inputs = Array.from({ length: Number(values.texts) }, (_, t) =>
      Array.from(
        { length: tokens },
        (_, i) => 5 + (((t * tokens + i) * 7919) % (shape.vocabulary - 5)),
      ),
    );
    const sides = [
      () => page.evaluate(measureOurs, { texts: inputs }),
      ...['fp32', 'q8'].map(
        (dtype) => () => page.evaluate(measurePeer, { texts: inputs, dtype, batch: 16 }),
      ),
    ];
    return await inTurns(sides, Number(values.rounds));
  } finally {
    await browser.close();
    await server.close();
  }
}

setup('bench');
if (!values['no-build']) {
  cmakeBuild('native', {
    targets: ['sluice', 'embedding_bench'],
    variables: ['-DSLUICE_BENCH=ON'],
  });
  if (values.tab) await build(['wasm', 'web']);
}
installPeer(values.tab ? '@huggingface/transformers' : 'node-llama-cpp');
const folder = inRoot('build', 'bench-models', 'bert-small');
if (!existsSync(join(folder, 'config.json'))) writeDirectory(folder);
const file = `${folder}-${values.type}.gguf`;
if (!existsSync(file))
  run(inRoot('build', 'native', 'sluice'), [
    'convert',
    '--force',
    folder,
    file,
    '--type',
    values.type,
  ]);

const { threads, texts, tokens } = values;
console.log(
  `${texts} texts of ${tokens} tokens, BERT-small's shape, ${values.type}, ${threads} threads, texts per second:`,
);
if (values.tab) {
  const [ours, f32, int8] = await inTab(folder, `bert-small-${values.type}.gguf`);
  const said = (name, { prefill, first }) =>
    `${name} ${prefill.toFixed(1)}, ratio ${(ours.prefill / prefill).toFixed(2)}, begins ${first.map((x) => x.toFixed(4))}`;
  for (const [name, side] of [
    ['sluice', ours],
    ['transformers.js f32', f32],
    ['transformers.js int8', int8],
  ])
    console.log(said(name, side));
} else {
  const ours = async () => ({
    prefill: (
      await jsonOf(inRoot('build', 'native', 'tests', 'bench', 'embedding_bench'), [
        file,
        threads,
        texts,
        tokens,
        '2',
      ])
    ).textsPerSecond,
  });
  const theirs = async () => ({
    prefill: (
      await jsonOf(process.execPath, [
        inRoot('tests', 'bench', 'baselines', 'embedding.mjs'),
        file,
        threads,
        texts,
        tokens,
        '2',
      ])
    ).textsPerSecond,
  });
  const [sluice, llama] = await inTurns([ours, theirs], Number(values.rounds));
  console.log(
    `sluice ${sluice.prefill.toFixed(1)}, llama.cpp ${llama.prefill.toFixed(1)}, ratio ${(sluice.prefill / llama.prefill).toFixed(2)}`,
  );
}
