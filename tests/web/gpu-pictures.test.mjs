// Pictures on the GPU, in Node on a software adapter, compared with ../shared/fixtures/vision: the
// encoder and the text model. The short suite has a family for each mechanism: plain positions,
// M-RoPE, windows, pictures that are non-causal in all layers or in those with a window, deepstack,
// matrices of their own, with which the CPU computes a picture's rows, queries that are scaled by
// position, and an encoder that the GPU leaves to the CPU.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { all, extent, longOnly } from '../extent.mjs';
import { brokenEngine, recordingEngine } from './gpu-encoder.mjs';
import { noSoftwareAdapter, useSoftwareAdapter } from './gpu-node.mjs';
import { root } from './helpers.mjs';

const folder = join(root, '..', 'shared', 'fixtures', 'vision');
const skip = noSoftwareAdapter || (!existsSync(folder) && `no ${folder}`);
if (!noSoftwareAdapter) useSoftwareAdapter();
const { Engine, take, close } = skip ? {} : await recordingEngine();
after(() => close?.());

const families = skip ? [] : JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
// JPEG decoders differ, and EXIF and alpha are treated otherwise than in the reference: its pixels
// are passed as PNG.
const media = skip ? [] : JSON.parse(readFileSync(join(folder, 'media.json'), 'utf8'));
const pixels = new Map(media.map(({ file, decoded }) => [file, decoded ?? file]));
/** Families whose encoder the CPU runs: a resampler has operations that the GPU lacks. */
const kCpuEncoders = ['minicpmv-2.6'];
const kShort = [
  'qwen2.5vl',
  'gemma3',
  'gemma4v-std',
  'qwen3vl',
  'llava',
  'cogvlm',
  'mistral3',
  'gemma4u',
  'minicpmv-2.6',
];
/**
 * Dispatches from one attention of the encoder to the next; of the other families, 10. RoPE, a gate,
 * layer scales, norms of heads or outputs and limits of a matrix's values are one more each.
 */
const kLayerDispatches = {
  qwen2vl: 11,
  'qwen2.5vl': 12,
  qwen3vl: 11,
  qwen35: 11,
  kimivl: 11,
  gemma4v: 48,
  'gemma4v-std': 19,
  pixtral: 12,
  mistral3: 12,
  internvl: 12,
  glm4v: 12,
  lightonocr: 12,
  paddleocr: 11,
};
const kLogprobs = 8;
/** Largest difference of a log-probability. */
const kError = 0.01;
/** Largest normalized mean squared error of the encoder's rows, by the fixtures' README. */
const kRowError = 1e-6;

const pathOf = (file) => join(folder, file);
const isPicture = ({ type }) => type === 'image';

/** Log-probabilities of the token behind the prompt. */
function expectedLogprobs({ n_vocab: n }, { logits, n_logits }) {
  const bytes = readFileSync(pathOf(logits));
  const row = new Float32Array(bytes.buffer, bytes.byteOffset + 4 * n * (n_logits - 1), n);
  const most = Math.max(...row);
  const sum = row.reduce((total, logit) => total + Math.exp(logit - most), 0);
  return Array.from(row, (logit) => logit - most - Math.log(sum));
}

function expectedRows({ embd }) {
  const bytes = readFileSync(pathOf(embd));
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
}

/** |a - b|² / |b|² */
function relativeError(a, b) {
  assert.equal(a.length, b.length);
  const squares = (of) => b.reduce((sum, value, i) => sum + of(a[i], value) ** 2, 0);
  return squares((x, y) => x - y) / squares((_, y) => y);
}

/** Where the pictures of a case were encoded, and how exactly. */
function checkRows(engine, family, entry) {
  const { rows, inputs } = take();
  const onCpu = kCpuEncoders.includes(family.name);
  assert.equal(engine.stats().visionDevice, onCpu ? 'wasm' : 'webgpu');
  if (onCpu) return assert.equal(inputs.length, 0);
  const pictures = entry.chunks.filter(isPicture);
  assert.equal(inputs.length, pictures.length);
  for (const { layers } of inputs)
    if (family.name !== 'gemma4u')
      // has none
      assert.equal(Math.min(...layers), kLayerDispatches[family.name] ?? 10, 'of a layer');
  const error = relativeError(rows, expectedRows(entry));
  assert.ok(error < kRowError, `${entry.name}: an error of ${error}`);
}

async function load(family, cases, { from = Engine, ...more } = {}) {
  const warnings = [];
  const lengthOf = ({ chunks, greedy }) =>
    chunks.reduce((n, { n_tokens, tokens }) => n + (n_tokens ?? tokens.length), greedy.length);
  const engine = await from.load(pathOf(family.model), {
    projector: pathOf(family.mmproj),
    device: 'webgpu',
    contextLength: Math.max(...cases.map(lengthOf)),
    threads: 1,
    onProgress: ({ phase, code }) => phase === 'warning' && warnings.push(code),
    ...more,
  });
  return { engine, warnings };
}

async function generated(engine, entry, more = {}) {
  const tokens = [];
  let first;
  for await (const piece of engine.generate(entry.prompt, {
    images: entry.media.map((file) => readFileSync(pathOf(pixels.get(file)))),
    maxTokens: entry.greedy.length,
    temperature: 0,
    ignoreEos: true,
    ...more,
  })) {
    first ??= piece;
    tokens.push(piece.token);
  }
  return { tokens, first };
}

async function checkCase(engine, family, entry) {
  const before = engine.stats().engine.gpuPasses;
  const { tokens, first } = await generated(engine, entry, { logprobs: kLogprobs });
  const expected = expectedLogprobs(family, entry);
  assert.equal(first.topLogprobs.length, kLogprobs);
  for (const { token, logprob } of first.topLogprobs)
    assert.ok(
      Math.abs(logprob - expected[token]) < kError,
      `${entry.name}, ${token}: ${logprob}, ${expected[token]}`,
    );
  assert.deepEqual(tokens, entry.greedy, entry.name);
  checkRows(engine, family, entry);
  // A pass for each chunk, at least, and one for each further token. What is kept of the prompt
  // before begins with the first chunk.
  const onCpu = family.name === 'cogvlm' ? entry.chunks.filter(isPicture).length : 0;
  const passes = engine.stats().engine.gpuPasses - before;
  const least = entry.chunks.length - 1 - onCpu + entry.greedy.length - 1;
  assert.ok(passes >= least, `${entry.name}: ${passes} of ${least} passes`);
}

for (const family of families) {
  const { name } = family;
  const cases = family.cases.filter(
    ({ chunks, limits }) => !limits && !chunks.some(({ type }) => type === 'audio'),
  );
  if (!cases.length || !(all || kShort.includes(name))) continue;
  const some = all ? cases : cases.slice(0, 1);
  test(`${name} gives the reference's rows, tokens and log-probabilities`, { skip }, async () => {
    const { engine, warnings } = await load(family, some);
    try {
      for (const entry of some) await checkCase(engine, family, entry);
      assert.equal(engine.stats().device, 'webgpu');
      assert.equal(warnings.includes('CPU_FALLBACK'), name === 'cogvlm');
    } finally {
      await engine.dispose();
    }
  });
}

/** A case's pictures, and what their encoding has read and uploaded. */
async function encoded(engine, entry) {
  take();
  const { tokens } = await generated(engine, entry, { cachePrompt: false, maxTokens: 1 });
  assert.deepEqual(tokens, entry.greedy.slice(0, 1), entry.name);
  return take();
}
const caseOf = (family, name) => family.cases.find((entry) => entry.name === name);

// Qwen2.5-VL's windows are listed behind the vectors, which have to be copied.
for (const name of extent(['qwen2.5vl'], ['qwen2.5vl', 'qwen3vl', 'pixtral', 'lfm2-vl']))
  test(`${name}: a larger picture uploads no weights again`, { skip }, async () => {
    const family = families.find((one) => one.name === name);
    const [small, large] = ['one', name === 'lfm2-vl' ? 'two' : 'photo'].map((one) =>
      caseOf(family, one),
    );
    const { engine } = await load(family, [small, large]);
    try {
      const first = await encoded(engine, small);
      assert.ok(first.inputs[0].uploaded > 0 && first.inputs[0].bytesRead > 0);
      const before = engine.memory().gpu;
      const grown = await encoded(engine, large);
      assert.ok(engine.memory().gpu > before, 'activations have grown');
      const again = await encoded(engine, small);
      for (const { inputs } of [grown, again])
        for (const { uploaded, bytesRead } of inputs)
          assert.deepEqual([uploaded, bytesRead], [0, 0]);
      assert.ok(relativeError(grown.rows, expectedRows(large)) < kRowError);
      assert.deepEqual(again.rows, first.rows);
    } finally {
      await engine.dispose();
    }
  });

/** An engine within a budget that has encoded a picture twice. */
async function within(family, entry, more, gpuBudget) {
  const { engine, warnings } = await load(family, [entry, more], { gpuBudget });
  const text = engine.memory().gpu;
  const [first, second] = [await encoded(engine, entry), await encoded(engine, entry)];
  const most = Math.max(engine.memory().gpu, ...second.inputs.map((input) => input.most));
  if (gpuBudget) assert.ok(most <= gpuBudget, `${most} bytes of ${gpuBudget}`);
  assert.deepEqual(warnings, []);
  return { engine, device: engine.stats().visionDevice, text, first, second, most };
}
const uploadedIn = ({ inputs }) => inputs.reduce((sum, { uploaded }) => sum + uploaded, 0);

for (const name of ['qwen2.5vl', 'qwen3vl', 'pixtral', 'llava', 'glm4v'])
  test(
    `${name}: weights stream within a small gpuBudget, and the CPU encodes what does not fit`,
    { skip: skip || longOnly },
    async () => {
      const family = families.find((one) => one.name === name);
      const [entry, large] = [caseOf(family, 'one'), caseOf(family, 'photo')];
      const resident = await within(family, entry, large);
      await resident.engine.dispose();
      const weights = uploadedIn(resident.first);
      assert.ok(weights > 0 && uploadedIn(resident.second) === 0);
      // With the text model's bytes alone the encoder does not fit, with some megabytes all of it.
      let [low, high] = [resident.text, resident.most + (4 << 20)];
      const none = await within(family, entry, large, low);
      await none.engine.dispose();
      assert.deepEqual([none.device, none.first.inputs.length], ['wasm', 0]);
      let streams;
      for (; !streams; assert.ok(high - low > 1024, 'no budget streams')) {
        const gpuBudget = Math.floor((low + high) / 2);
        const tried = await within(family, entry, large, gpuBudget);
        if (tried.device === 'webgpu' && uploadedIn(tried.second)) streams = tried;
        else await tried.engine.dispose();
        if (tried.device === 'wasm') low = gpuBudget;
        else high = gpuBudget;
      }
      const { engine, first, second } = streams;
      try {
        assert.ok(uploadedIn(first) >= weights);
        for (const { rows } of [first, second]) assert.deepEqual(rows, resident.first.rows);
        if (name === 'llava') return; // its pictures have one size
        // The weights that are there outlast a picture that is too large.
        assert.equal((await encoded(engine, large)).inputs.length, 0);
        assert.equal(engine.stats().visionDevice, 'wasm');
        const third = await encoded(engine, entry);
        assert.deepEqual(third.rows, resident.first.rows);
        assert.ok(uploadedIn(third) <= uploadedIn(second) && uploadedIn(third) < weights);
      } finally {
        await engine.dispose();
      }
    },
  );

test('weights of a type that only the projector has', { skip }, async () => {
  const family = families.find((one) => one.name === 'pixtral');
  const entry = caseOf(family, 'one');
  // The bytes of an F16 matrix as blocks of Q2_0, which begin with a scale in F16.
  const bytes = readFileSync(pathOf(family.mmproj));
  const tensor = 'v.blk.0.ffn_down.weight';
  const at = bytes.indexOf(tensor) + tensor.length + 4 + 2 * 8;
  assert.equal(bytes.readUInt32LE(at), 1);
  bytes.writeUInt32LE(42, at);
  const folder = mkdtempSync(join(root, 'build', 'web-tests', 'gpu-pictures-'));
  const projector = join(folder, 'mmproj.gguf');
  writeFileSync(projector, bytes);
  const results = {};
  try {
    const { Engine: CpuEngine } = await import('../../dist/node.js');
    for (const [device, from] of Object.entries({ wasm: CpuEngine, webgpu: Engine })) {
      const { engine, warnings } = await load(family, [entry], { projector, device, from });
      const { tokens, first } = await generated(engine, entry, { logprobs: kLogprobs });
      results[device] = { tokens, logprob: first.logprob };
      assert.equal(engine.stats().visionDevice, device);
      assert.ok(!warnings.includes('DEVICE_LOST'), `${warnings}`);
      await engine.dispose();
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  assert.deepEqual(results.webgpu.tokens, results.wasm.tokens);
  assert.notDeepEqual(results.wasm.tokens, entry.greedy);
  assert.ok(Math.abs(results.webgpu.logprob - results.wasm.logprob) < kError);
});

/**
 * Phrases behind a picture, so that it is seen, then cut by the window's begin, then evicted; and before
 * one. In the short suite Qwen3-VL's is cut and evicted.
 */
const kPhrases = extent(
  { qwen3vl: [[16, 22], 25] },
  { gemma3: [[6, 13, 16, 19, 22, 26], 30], qwen3vl: [[6, 13, 16, 19, 22, 26], 30] },
);

function longPrompts(name, { prompt }) {
  const words = ' and what is there';
  const at = prompt.indexOf('<__media__>');
  const [behind, before] = kPhrases[name];
  return [
    ...behind.map((n) => prompt + words.repeat(n)),
    prompt.slice(0, at) + words.repeat(before) + prompt.slice(at),
  ];
}

// The CPU's choices under the same policy. Pictures of Gemma 3 are non-causal.
for (const [name, kvPolicy, rare] of [
  ['gemma3', 'window', longOnly],
  ['qwen3vl', 'window'],
  ['qwen3vl', 'heavy-hitter'],
]) {
  const unless = skip || rare;
  test(`${name}: pictures in a KV cache that evicts, ${kvPolicy}`, { skip: unless }, async () => {
    const family = families.find((one) => one.name === name);
    const [entry] = family.cases;
    const { Engine: CpuEngine } = await import('../../dist/node.js');
    const evicting = { kvPolicy, kvCapacity: 128, contextLength: 1000 };
    const cpu = await load(family, [entry], { ...evicting, device: 'wasm', from: CpuEngine });
    const gpu = await load(family, [entry], evicting);
    try {
      const prompts = longPrompts(name, entry);
      for (const prompt of prompts) {
        const long = { ...entry, prompt };
        const options = { maxTokens: 1, logprobs: kLogprobs };
        const wanted = (await generated(cpu.engine, long, options)).first.topLogprobs;
        const { first } = await generated(gpu.engine, long, options);
        for (const { token, logprob } of wanted.slice(0, 4)) {
          const ours = first.topLogprobs.find((one) => one.token === token);
          assert.ok(
            ours && Math.abs(ours.logprob - logprob) < kError,
            `${prompt.length}, ${token}: ${ours?.logprob}, ${logprob}`,
          );
        }
        // Queued steps across an eviction, and single ones; both encode the picture again.
        if (longOnly && prompt !== prompts.at(-1)) continue;
        const anew = { cachePrompt: false, maxTokens: 8 };
        const queued = await generated(gpu.engine, long, anew);
        const single = await generated(gpu.engine, long, { ...anew, logprobs: 1 });
        assert.deepEqual(queued.tokens, single.tokens);
      }
      assert.equal(gpu.engine.stats().device, 'webgpu');
      assert.ok(!gpu.warnings.includes('CPU_FALLBACK'));
    } finally {
      await cpu.engine.dispose();
      await gpu.engine.dispose();
    }
  });
}

test("device 'auto' measures a model with a projector", { skip }, async () => {
  const family = families.find(({ name }) => name === 'qwen3vl');
  const [entry] = family.cases;
  const { Engine: PlainEngine } = await import('../../dist/node.js');
  const options = { projector: pathOf(family.mmproj), device: 'auto', threads: 1 };
  const { device, modalities } = await PlainEngine.inspect(pathOf(family.model), options);
  assert.match(device.reason, /software adapter/);
  assert.deepEqual([device.prefill, modalities], ['wasm', ['text', 'image']]);
  const { engine } = await load(family, [entry], { device: 'auto', from: PlainEngine });
  assert.equal(engine.stats().device, 'wasm');
  assert.deepEqual((await generated(engine, entry)).tokens, entry.greedy);
  await engine.dispose();
});

test('layers on both devices, and two pictures', { skip }, async () => {
  const family = families.find(({ name }) => name === 'qwen3vl');
  const entry = family.cases.find(({ name }) => name === 'two');
  const { engine } = await load(family, [entry], { gpuLayers: 1 });
  try {
    assert.equal(engine.stats().gpuLayers, 1);
    for (const cachePrompt of [false, true])
      assert.deepEqual((await generated(engine, entry, { cachePrompt })).tokens, entry.greedy);
  } finally {
    await engine.dispose();
  }
});

test(
  'a shader of the encoder that does not compile leaves everything to the CPU',
  { skip },
  async (t) => {
    const broken = await brokenEngine();
    t.after(broken.close);
    const family = families.find(({ name }) => name === 'gemma3');
    const { engine, warnings } = await load(family, family.cases, { from: broken.Engine });
    const [entry] = family.cases;
    assert.deepEqual((await generated(engine, entry)).tokens, entry.greedy);
    assert.equal(engine.stats().visionDevice, 'wasm');
    assert.deepEqual(warnings, ['DEVICE_LOST']);
    await engine.dispose();
  },
);
