// The graphics card as Chromium's software adapter plays it: models computed by the card against their
// references, under any gpuBudget to the bit, through sessions that go back, fork and are saved, and on past a
// card that is lost, whenever that is. Nothing that is asked of the card may be refused by its validation.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chromiumArgs } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { crossOrigin, launch, openPage } from './chromium.mjs';
import { nmse, root } from './helpers.mjs';

const dist = join(root, 'dist');
const kNmse = 1e-3;
const kFewTokens = 6;
const kPositions = 8;
const own = (name) => join(root, 'tests', 'data', name);
const shared = (name) => join(root, '..', 'shared', 'fixtures', name);

function models(name) {
  const folder = existsSync(shared(name)) ? shared(name) : own(name);
  return JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')).map((entry) => {
    const bytes = readFileSync(join(folder, entry.logits));
    const reference = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    return { greedy: [], ...entry, folder, reference };
  });
}

const arch = models('arch');
const quant = models('quant');
const llama = arch.find(({ name }) => name === 'llama-gqa');
let browser;
let files;
let tab;
const complaints = [];

// Keeps the devices of the engine's worker, so that a page can lose them.
const kWorker = `
  const made = [];
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = async function (...given) {
    const device = await requestDevice.apply(this, given);
    made.push(device);
    device.addEventListener('uncapturederror', ({ error }) => console.error('uncaptured: ' + error.message));
    return device;
  };
  new BroadcastChannel('card').onmessage = () => made.at(-1)?.destroy();
`;
const kNoCard = 'GPU.prototype.requestAdapter = async () => null;';

before(async () => {
  browser = await launch({ args: [...chromiumArgs, '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'] });
  files = await serve([['/arch/', arch[0].folder], ['/quant/', quant[0].folder]], crossOrigin);
  tab = await openPage(browser, dist, {});
  tab.page.on('console', (message) => {
    if (/error|warning/.test(message.type())) complaints.push(message.text());
  });
  await tab.page.evaluate(`window.measure = ${measure}; window.load = ${load}; window.tokensOf = ${tokensOf};
    window.workerAfter = ${workerAfter}; window.workerUrl = workerAfter(${JSON.stringify(kWorker)});`);
});
after(async () => {
  await tab.close();
  await browser.close();
  await files.close();
  assert.deepEqual(complaints, [], 'the console says nothing');
});

const address = (model) => `${files.url}/${model.folder === arch[0].folder ? 'arch' : 'quant'}/${model.file}`;
const inPage = (work, ...args) => tab.page.evaluate(work, args);

// --- in the page --------------------------------------------------------------------------------

/** The package's worker, behind some other script. */
function workerAfter(script) {
  const urlOf = (text) => URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  return urlOf(`import '${urlOf(script)}'; import '${location.origin}/dist/worker.js';`);
}

function load(source, options = {}) {
  return Engine.load(source, { cache: 'none', contextLength: 128, device: 'webgpu', workerUrl, threads: 1, ...options });
}

async function tokensOf(engine, prompt, maxTokens, options = {}) {
  const tokens = [];
  for await (const { token, topLogprobs } of engine.generate(prompt, { maxTokens, temperature: 0, ignoreEos: true, logprobs: 1, ...options })) {
    if (topLogprobs) tokens.push(token);
  }
  return tokens;
}

/** Logits of the first positions, and the answer's tokens; the last engine stays open as `window.card`. */
async function measure({ source, options, prompt, positions, count }) {
  await window.card?.dispose();
  const engine = (window.card = await load(source, options));
  const logits = [...new Uint8Array((await engine.logits(prompt.slice(0, positions))).buffer)];
  const tokens = count ? await tokensOf(engine, prompt, count, { reusePrefix: false }) : [];
  const { device, engine: counts } = engine.stats();
  return { logits, tokens, device, counts, gpu: engine.memory().gpu };
}

const floats = ({ logits }) => new Float32Array(Uint8Array.from(logits).buffer);
const measured = (model, more) =>
  inPage(([args]) => measure(args), { source: address(model), prompt: model.prompt, positions: kPositions, count: kFewTokens, options: {}, ...more });

// --- what the card computes -----------------------------------------------------------------------

/** Each model has kernels of its own, which a software adapter takes seconds to compile. */
const all = process.env.SLUICE_GPU_MODELS === 'all';

async function check(model, allowance) {
  const { prompt, n_vocab } = model;
  const count = model.greedy.length && kFewTokens;
  const result = await measured(model, { count, ...(all && { positions: prompt.length }) }).catch((error) => error.message);
  if (typeof result === 'string') return assert.match(result, /cannot run on the graphics card: .+ would be needed there/);
  assert.equal(result.device, 'webgpu');
  const ours = floats(result);
  for (let t = 0; t < ours.length / n_vocab; t++) {
    const error = nmse(ours, model.reference, t * n_vocab, (t + 1) * n_vocab);
    assert.ok(error <= allowance, `NMSE ${error} at position ${t}`);
  }
  return result;
}

for (const model of arch) {
  test(`the card computes ${model.name}`, { skip: !all && model !== llama && 'SLUICE_GPU_MODELS=all runs it' }, async () => {
    const result = await check(model, kNmse);
    if (result) assert.deepEqual(result.tokens, model.greedy.slice(0, kFewTokens));
  });
}

for (const model of quant) {
  test(`weights of ${model.name}`, { skip: !all && model.name !== 'Q4_K' && 'SLUICE_GPU_MODELS=all runs it' }, () =>
    check(model, kNmse + 10 * model.llama_cpp_nmse));
}

let whole;
test('one submit a token, at most eight dispatches a layer', async () => {
  whole = await measured(llama);
  const counts = await inPage(async ([prompt]) => {
    const before = card.stats().engine;
    await tokensOf(card, prompt, 4);
    const after = card.stats().engine;
    return Object.fromEntries(Object.keys(after).map((name) => [name, after[name] - (name === 'layers' ? 0 : before[name])]));
  }, llama.prompt);
  // One pass over what is left of the prompt, then one for each token but the last.
  assert.equal(counts.cardPasses, 4);
  assert.equal(counts.submits, 4);
  const aLayer = counts.dispatches / 4 / counts.layers;
  assert.ok(aLayer <= 8, `${aLayer} dispatches a layer, the head's among them`);
});

// --- timelines ------------------------------------------------------------------------------------

test('answers that go back, are saved and move between card and CPU are those of the CPU', async () => {
  const wrong = await inPage(async ([source, prompt]) => {
    const wrong = [];
    const cpu = await Engine.load(source, { cache: 'none', contextLength: 128, kernels: 'wasm128', threads: 1 });
    const check = async (label, tokens, on = card) => {
      const [ours, theirs] = [await tokensOf(on, tokens, 5), await tokensOf(cpu, tokens, 5, { reusePrefix: false })];
      if (`${ours}` !== `${theirs}`) wrong.push(`${label}: ${ours} for ${theirs}`);
    };
    await check('a prompt', prompt);
    await check('a part of it', prompt.slice(0, 20));
    await check('another end', [...prompt.slice(0, 30), 7, 8, 9]);
    const state = await card.saveState();
    await check('another text', prompt.slice(10, 40));
    await card.restoreState(state);
    await check('what was saved', [...state.tokens, 3, 4]);
    await cpu.restoreState(state);
    const moved = await tokensOf(cpu, [...state.tokens, 3, 4], 5);
    const anew = await tokensOf(cpu, [...state.tokens, 3, 4], 5, { reusePrefix: false });
    if (`${moved}` !== `${anew}`) wrong.push(`moved to the CPU: ${moved} for ${anew}`);
    const back = await cpu.saveState();
    await card.restoreState(back);
    await check('moved back', [...back.tokens, 5]);
    await cpu.dispose();
    return wrong;
  }, address(llama), llama.prompt);
  assert.deepEqual(wrong, []);
});

test('an answer is given up within a moment, and the next one is right', async () => {
  const result = await inPage(async ([prompt]) => {
    const expected = await tokensOf(card, prompt, 4);
    const control = new AbortController();
    const long = card.generate(prompt, { maxTokens: 60, temperature: 0, ignoreEos: true, reusePrefix: false, signal: control.signal });
    let aborted;
    try {
      for await (const { token } of long) if (token >= 0) control.abort();
    } catch (error) {
      aborted = error.name;
    }
    const after = await tokensOf(card, prompt, 4);
    return { aborted, same: `${after}` === `${expected}` };
  }, llama.prompt);
  assert.deepEqual(result, { aborted: 'AbortError', same: true });
});

test('the same bits under a quarter of the budget', async () => {
  const refused = await measured(llama, { options: { gpuBudget: 1 << 16 } }).catch((error) => error.message);
  const least = Number(/smallest that works is (\d+)/.exec(refused)[1]);
  const gpuBudget = Math.floor(least + (whole.gpu - least) / 4);
  const small = await measured(llama, { options: { gpuBudget } });
  assert.ok(small.gpu <= gpuBudget, `${small.gpu} bytes of ${gpuBudget}`);
  assert.ok(small.counts.uploaded > 4 * whole.counts.uploaded, `weights stream: ${small.counts.uploaded} bytes`);
  assert.deepEqual(small.logits, whole.logits);
  assert.deepEqual(small.tokens, whole.tokens);
});

test('the CPU goes on where the card is lost, whenever that is', async () => {
  const results = await inPage(async ([source, prompt]) => {
    const channel = new BroadcastChannel('card');
    const cpu = await Engine.load(source, { cache: 'none', contextLength: 128, kernels: 'wasm128', threads: 1 });
    const expected = await tokensOf(cpu, prompt, 12);
    await cpu.dispose();
    const results = [];
    for (let round = 0; round < 3; round++) {
      const warnings = [];
      const engine = await load(source, { onProgress: (event) => event.phase === 'warning' && warnings.push(event.code) });
      if (round === 0) channel.postMessage(0); // before the first pass
      const tokens = [];
      for await (const { token, topLogprobs } of engine.generate(prompt, { maxTokens: 12, temperature: 0, ignoreEos: true, logprobs: 1 })) {
        if (topLogprobs) tokens.push(token);
        if (tokens.length === round) channel.postMessage(0);
      }
      const again = await tokensOf(engine, prompt, 12);
      results.push({ same: `${tokens}` === `${expected}` && `${again}` === `${expected}`, warnings, device: engine.stats().device, gpu: engine.memory().gpu });
      await engine.dispose();
    }
    channel.close();
    return results;
  }, address(llama), llama.prompt);
  for (const [round, result] of results.entries()) {
    assert.deepEqual(result, { same: true, warnings: ['DEVICE_LOST'], device: 'wasm', gpu: 0 }, `lost in round ${round}`);
  }
});

test('loads and disposals leave nothing behind', async () => {
  const results = await inPage(async ([source, times]) => {
    const results = new Set();
    for (let i = 0; i < times; i++) {
      const engine = await load(source);
      results.add(`${engine.memory().gpu} ${engine.stats().device}`);
      await engine.dispose();
    }
    return [...results];
  }, address(llama), all ? 20 : 2);
  assert.equal(results.length, 1, results.join('\n'));
});

test('a card is fetched for nobody who does not ask, and refused in words where there is none', async () => {
  const found = await inPage(async ([source, noCard]) => {
    const fetched = () => performance.getEntriesByType('resource').filter(({ name }) => /gpu/.test(name)).length;
    const before = fetched();
    const plain = await Engine.load(source, { cache: 'none', contextLength: 64 });
    const out = { device: plain.stats().device, gpu: plain.memory().gpu, fetched: fetched() - before };
    await plain.dispose();
    const auto = await load(source, { device: 'auto' }); // the adapter here is a program on the CPU
    out.auto = auto.stats().device;
    await auto.dispose();
    out.wrong = await Engine.load(source, { device: 'gpu' }).catch(({ code }) => code);
    const none = workerAfter(noCard);
    out.none = await load(source, { workerUrl: none }).catch(({ code }) => code);
    const without = await load(source, { workerUrl: none, device: 'auto' });
    out.without = without.stats().device;
    await without.dispose();
    return out;
  }, address(llama), kNoCard);
  assert.deepEqual(found, { device: 'wasm', gpu: 0, fetched: 0, auto: 'wasm', wrong: 'INVALID_ARGUMENT', none: 'NOT_SUPPORTED', without: 'wasm' });
});
