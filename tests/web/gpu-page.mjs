// Shared by the tests of whole models on GPUs: models with references, functions that run in the
// page, and a worker whose GPU device a test can lose.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { eventually } from './eventually.mjs';
import { nmse, root } from './helpers.mjs';

export const kNmse = 1e-3;
export const kFewTokens = 6;
export const kPositions = 8;
/**
 * How often the GPU is lost, and how often an engine is loaded and disposed of. `some` is the
 * default of the browser under test.
 */
export const losses = (some) => Number(process.env.SLUICE_GPU_LOSSES ?? some);
export const loads = (some) => Number(process.env.SLUICE_GPU_LOADS ?? some);

/**
 * Kernel choices: f32 activations or int8 codes. A worker uses these if the choice is not measured.
 */
export const kPlain = { subgroups: true, f16: true, int8: { gemv: false, gemm: false } };
export const kCodes = { ...kPlain, int8: { gemv: true, gemm: true } };

const folderOf = (name) =>
  [join(root, '..', 'shared', 'fixtures', name), join(root, 'tests', 'data', name)].find(
    existsSync,
  );

/** The models of a directory of fixtures. */
export function models(name) {
  const folder = folderOf(name);
  return JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')).map((entry) => {
    const bytes = readFileSync(join(folder, entry.logits));
    const reference = new Float32Array(
      bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
    );
    return { greedy: [], ...entry, folder, reference };
  });
}

/** Mounts for serve() with the directories of these models; addressOf() finds them there. */
export const mountsOf = (all) =>
  [...new Set(all.map(({ folder }) => folder))].map((folder) => [`/${basename(folder)}/`, folder]);
export const addressOf = (files, model) => `${files.url}/${basename(model.folder)}/${model.file}`;

/** Compares logits from a page with the model's reference. */
export function checkLogits({ logits }, { reference, n_vocab }, allowance) {
  const ours = new Float32Array(Uint8Array.from(logits).buffer);
  assert.ok(ours.length >= n_vocab && ours.length % n_vocab === 0, `${ours.length} logits`);
  for (let t = 0; t < ours.length / n_vocab; t++) {
    const error = nmse(ours, reference, t * n_vocab, (t + 1) * n_vocab);
    assert.ok(error <= allowance, `NMSE ${error} at position ${t}`);
  }
}

/**
 * The budget with a `share` of the bytes between the minimum, which an error names, and all
 * weights.
 */
export function budgetOf(refused, whole, share) {
  const least = Number(/smallest that works is (\d+)/.exec(refused)[1]);
  return Math.floor(least + (whole - least) * share);
}

/**
 * Checks that weights stream with a quarter of the bytes above the minimum: more than `times` as
 * many bytes are uploaded, and the results are bit-identical.
 */
export async function checkQuarter(measuredWith, whole, times) {
  const refused = await measuredWith({ gpuBudget: 1 << 16 }).catch((error) => error.message);
  const gpuBudget = budgetOf(refused, whole.gpu, 1 / 4);
  const small = await measuredWith({ gpuBudget });
  assert.ok(small.gpu <= gpuBudget, `${small.gpu} bytes of ${gpuBudget}`);
  assert.ok(
    small.counts.uploaded > times * whole.counts.uploaded,
    `weights stream: ${small.counts.uploaded} bytes`,
  );
  assert.deepEqual(small.logits, whole.logits);
  assert.deepEqual(small.tokens, whole.tokens);
}

/**
 * Checks the result of loseGpus(): the CPU gives the same output, and one warning reports the loss.
 */
export function checkLosses(results, times) {
  assert.equal(results.length, Math.max(times, 3));
  for (const { label, warnings, ...result } of results)
    assert.deepEqual(
      { ...result, warnings: warnings.filter((code) => code !== 'CONTEXT_NEARLY_FULL') },
      { same: true, warnings: ['DEVICE_LOST'], device: 'wasm', gpu: 0 },
      label,
    );
}

/** Checks the result of twinSessions(): enough was generated, and nothing differs. */
export function checkTwins({ wrong, ...told }) {
  assert.deepEqual(wrong, []);
  const enough =
    told.forks > 0 &&
    told.moves > 0 &&
    told.back > 0 &&
    told.answers > 6 &&
    told.tokens > 20 &&
    told.passes > 10;
  assert.ok(enough && 4 * told.ties < told.answers, JSON.stringify(told));
}

// Keeps the devices of the engine's worker, so that a page can lose existing and later ones.
// Reports errors of devices to the page, except those of a lost device: the specification has none,
// but Firefox reports its buffers as invalid.
const kWorker = `
  const made = [];
  const told = new BroadcastChannel('complaints');
  let lost = false;
  const gone = new Set();
  const lose = (device) => {
    gone.add(device);
    device?.destroy();
  };
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = async function (...given) {
    const device = await requestDevice.apply(this, given);
    made.push(device);
    device.addEventListener('uncapturederror', ({ error }) => gone.has(device) || told.postMessage(error.message));
    if (lost) lose(device);
    return device;
  };
  // A worker whose engine is gone keeps its device for the next one; 'idle' is for such ones alone.
  let idle = false;
  addEventListener('message', ({ data }) => (idle = data.method === 'dispose'));
  const heard = new BroadcastChannel('lost'); // a second channel, or workers would answer each other
  new BroadcastChannel('gpu').onmessage = ({ data }) => {
    if (idle !== (data === 'idle')) return;
    lost = !idle;
    lose(made.at(-1));
    heard.postMessage(0);
  };
`;

// --- in the page --------------------------------------------------------------------------------

/** The package's worker, started after another script. */
function workerAfter(script) {
  const urlOf = (text) => URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  return urlOf(`import '${urlOf(script)}'; import '${location.origin}/dist/worker.js';`);
}

function load(source, options = {}) {
  return Engine.load(source, {
    cache: 'none',
    contextLength: 256,
    device: 'webgpu',
    workerUrl,
    threads: 1,
    ...options,
  });
}

/** An engine without a GPU. */
function loadCpu(source, options = {}) {
  return Engine.load(source, {
    cache: 'none',
    contextLength: 256,
    kernels: 'wasm128',
    threads: 1,
    ...options,
    gpuLayers: undefined,
  });
}

async function tokensOf(engine, prompt, maxTokens, options = {}) {
  const tokens = [];
  for await (const { token, topLogprobs } of engine.generate(prompt, {
    maxTokens,
    temperature: 0,
    ignoreEos: true,
    logprobs: 1,
    ...options,
  })) {
    if (topLogprobs) tokens.push(token);
  }
  return tokens;
}

/**
 * An engine on the GPU, with its warnings in `warnings`. It stays open for later tests, because a
 * software adapter takes seconds to compile a model's kernels.
 */
async function gpuOf(source, options = {}) {
  const key = JSON.stringify([source, options]);
  if (!GPUs.has(key)) {
    const warnings = [];
    const onProgress = (event) =>
      event.phase === 'warning' && warnings.push([event.code, event.message]);
    GPUs.set(
      key,
      load(source, { onProgress, ...options }).then((engine) =>
        Object.assign(engine, { warnings }),
      ),
    );
    GPUs.get(key).catch(() => GPUs.delete(key));
  }
  return GPUs.get(key);
}

async function dropGpus() {
  for (const engine of await Promise.all(GPUs.values())) await engine.dispose();
  GPUs.clear();
}

/** The logits of the first positions, and the generated tokens. */
async function measure({ source, options, prompt, positions, count, kernels }) {
  const engine = await gpuOf(source, {
    ...options,
    ...(kernels && { workerUrl: workerFor(kernels) }),
  });
  const logits = [...new Uint8Array((await engine.logits(prompt.slice(0, positions))).buffer)];
  const tokens = count ? await tokensOf(engine, prompt, count, { cachePrompt: false }) : [];
  const { device, gpuKernels, gpuLayers, engine: counts } = engine.stats();
  return { logits, tokens, device, gpuKernels, gpuLayers, counts, gpu: engine.memory().gpu };
}

/**
 * A worker that uses these kernels on the GPU, or measures with 'measured'. One address per choice.
 */
function workerFor(kernels) {
  const text = JSON.stringify(kernels);
  if (!workers.has(text)) {
    const choice = `addEventListener('message', ({ data }) => data.method === 'load' && (data.args[0].gpuKernels ??= ${text}));`;
    workers.set(text, workerAfter(kernels === 'measured' ? kWorker : `${kWorker}${choice}`));
  }
  return workers.get(text);
}

/**
 * Makes the worker lose its GPU, now or as soon as it has one. The worker may not have started yet.
 * `which`: 'idle' for one that has no engine, but may get another.
 */
async function loseGpu(which = 'active') {
  const [channel, heard] = [new BroadcastChannel('gpu'), new BroadcastChannel('lost')];
  let lost = false;
  heard.onmessage = () => (lost = true);
  const lose = () => {
    if (!lost) channel.postMessage(which);
    return lost;
  };
  await eventually(lose, 'the worker loses its GPU', 5);
  channel.close();
  heard.close();
}

const after = (ms) => new Promise((ok) => setTimeout(ok, ms));

/** Seeded random numbers in [0, 1). */
function seeded(seed) {
  return () => (seed = (seed * 48271) % 0x7fffffff) / 0x7fffffff;
}

/**
 * Generates with a GPU that is lost after the output, after its first token, as soon as the device
 * exists, and at random moments.
 */
async function loseGpus(source, prompt, { times, seed, count, options }) {
  await dropGpus(); // a loss affects all of them
  const cpu = await loadCpu(source, options);
  const expected = await tokensOf(cpu, prompt, count);
  await cpu.dispose();
  const results = [];
  const round = async (lose, label) => {
    const began = performance.now();
    const warnings = [];
    const loading = load(source, {
      ...options,
      onProgress: (event) => event.phase === 'warning' && warnings.push(event.code),
    });
    let passed = 0;
    const losing = lose(() => passed);
    const engine = await loading;
    const opened = warnings.length ? ', while loading' : '';
    const tokens = [];
    // Every other generation queues its steps.
    const queues = results.length % 2 === 0;
    for await (const { token, topLogprobs } of engine.generate(prompt, {
      maxTokens: count,
      temperature: 0,
      ignoreEos: true,
      ...(!queues && { logprobs: 1 }),
    })) {
      if (topLogprobs || queues) tokens.push(token);
      passed = tokens.length;
    }
    const took = performance.now() - began;
    await losing;
    const again = await tokensOf(engine, prompt, count);
    results.push({
      label: label + opened,
      warnings,
      same: `${tokens}` === `${expected}` && `${again}` === `${expected}`,
      device: engine.stats().device,
      gpu: engine.memory().gpu,
    });
    await engine.dispose();
    return took;
  };
  const behind = (token) => async (passed) => {
    await eventually(() => passed() >= token, `token ${token}`);
    await loseGpu();
  };
  const whole = await round(behind(count), 'after the output');
  await round(behind(1), 'after the first token');
  await round(() => loseGpu(), 'as soon as the device exists');
  const random = seeded(seed);
  while (results.length < times) {
    const ms = whole * random();
    await round(() => after(ms).then(loseGpu), `after ${ms.toFixed(0)} of ${whole.toFixed(0)} ms`);
  }
  return results;
}

/**
 * Loads and disposes of engines, every other one during a generation. Returns each distinct outcome
 * once.
 */
async function disposals(source, prompt, { times, seed, count, options }) {
  const results = new Set();
  const random = seeded(seed);
  for (let i = 0; i < times; i++) {
    const engine = await load(source, options);
    results.add(`${engine.memory().gpu} ${engine.stats().device}`);
    const answer =
      i % 2
        ? tokensOf(engine, prompt, count).then(
            () => 'answered',
            ({ code, name }) => code ?? name,
          )
        : null;
    if (answer) await after(20 * count * random());
    await engine.dispose();
    const ended = await answer;
    if (ended && !['answered', 'DISPOSED', 'AbortError'].includes(ended)) results.add(ended);
  }
  return [...results];
}

/**
 * Random operations on sessions of a GPU engine, each with a twin on the CPU: generations, forks,
 * prompts of the engine's own sequence that rewind, and states exchanged between the two. Tokens
 * may differ only where the CPU's two most likely tokens are less than `gap` apart in
 * log-probability.
 */
async function twinSessions(
  source,
  prompt,
  { seed, operations, options = {}, gpuOptions = {}, kernels, gap = 0.02 },
) {
  const gpuEngine = await gpuOf(source, {
    ...options,
    ...gpuOptions,
    ...(kernels && { workerUrl: workerFor(kernels) }),
  });
  const cpu = await loadCpu(source, options);
  const random = seeded(seed);
  const below = (n) => Math.floor(random() * n);
  const words = (n) =>
    Array.from({ length: n }, () => ['mill', ' river', ' 42', ' and', ' fox'][below(5)]).join('');
  const told = {
    answers: 0,
    tokens: 0,
    ties: 0,
    forks: 0,
    moves: 0,
    back: 0,
    wrong: [],
    gpuKernels: gpuEngine.stats().gpuKernels,
  };
  const twins = [[gpuEngine, cpu].map((engine) => engine.session())];
  const tell = async (teller, text) => {
    const pieces = [];
    for await (const piece of teller.generate(text, {
      maxTokens: 4,
      temperature: 0,
      ignoreEos: true,
      logprobs: 2,
    }))
      if (piece.topLogprobs) pieces.push(piece);
    return pieces;
  };
  const same = (label, ours, theirs) => {
    told.answers++;
    const differ = theirs.findIndex((piece, k) => piece.token !== ours[k]?.token);
    told.tokens += differ < 0 ? theirs.length : differ;
    if (differ < 0) return true;
    const [first, second] = theirs[differ].topLogprobs;
    if (first.logprob - second.logprob > gap)
      told.wrong.push(
        `${label}: ${ours.map(({ token }) => token)} for ${theirs.map(({ token }) => token)}, ${first.logprob - second.logprob} apart`,
      );
    told.ties++;
    return false;
  };
  for (let i = 0; i < operations; i++) {
    const at = below(twins.length);
    const [ours, theirs] = twins[at];
    const kind = below(5);
    if (kind === 0 && twins.length < 4) {
      twins.push(await Promise.all(twins[at].map((session) => session.fork())));
      told.forks++;
    } else if (kind === 1) {
      // Each continues with the other's KV cache, unchanged: a saved state does not depend on the
      // device.
      const saved = [await ours.save(), await theirs.save()];
      await ours.restore(saved[1]);
      await theirs.restore(saved[0]);
      if (`${(await theirs.save()).state}` !== `${saved[0].state}`)
        told.wrong.push('a state changed when it moved to the CPU');
      if (`${(await ours.save()).state}` !== `${saved[1].state}`)
        told.wrong.push('a state changed when it moved to the GPU');
      told.moves++;
    } else if (kind === 2) {
      // The engine's own sequences rewind to the common prefix of two prompts.
      const tokens = [...prompt.slice(0, 8 + below(30)), below(200)];
      same(`prompt ${i}`, await tell(gpuEngine, tokens), await tell(cpu, tokens));
      told.back++;
    } else if (ours.tokens.length < 100) {
      const text = words(1 + below(3));
      if (!same(`operation ${i}`, await tell(ours, text), await tell(theirs, text)))
        await theirs.restore(await ours.save());
    }
  }
  told.passes = gpuEngine.stats().engine.gpuPasses;
  await cpu.dispose();
  return told;
}

/**
 * The text of a function that sets up a page, with the package's entry. openWorkers() follows, once
 * workerAfter() is the one of the platform.
 */
export const setup = `async (entry) => {
  Object.assign(window, await import(entry));
  ${[workerAfter, workerFor, load, loadCpu, tokensOf, gpuOf, dropGpus, measure, eventually, loseGpu, seeded, loseGpus, disposals, twinSessions].map((f) => `window.${f.name} = ${f};`).join('\n')}
  Object.assign(window, { kWorker: ${JSON.stringify(kWorker)}, workers: new Map(), GPUs: new Map() });
  window.after = ${after};
  window.complaints = [];
  window.openWorkers = () => {
    window.workerUrl = workerFor(${JSON.stringify(kPlain)});
    const channel = new BroadcastChannel('complaints');
    channel.onmessage = ({ data }) => complaints.push(data);
    channel.unref?.(); // in Node
  };
}`;

/** The same for a browser's page. */
export const pageSetup = `async () => {
  await (${setup})('/dist/index.js');
  openWorkers();
}`;
