// What the tests of whole models on graphics cards share: the models with their references, what a page does
// with them, and a worker whose devices a test can lose.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { nmse, root } from './helpers.mjs';

export const kNmse = 1e-3;
export const kFewTokens = 6;
export const kPositions = 8;

const folderOf = (name) => [join(root, '..', 'shared', 'fixtures', name), join(root, 'tests', 'data', name)].find(existsSync);

/** The models of a folder of fixtures. */
export function models(name) {
  const folder = folderOf(name);
  return JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')).map((entry) => {
    const bytes = readFileSync(join(folder, entry.logits));
    const reference = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    return { greedy: [], ...entry, folder, reference };
  });
}

/** For serve(): the folders of these models, which addressOf finds there. */
export const mountsOf = (all) => [...new Set(all.map(({ folder }) => folder))].map((folder) => [`/${basename(folder)}/`, folder]);
export const addressOf = (files, model) => `${files.url}/${basename(model.folder)}/${model.file}`;

/** Logits as they come from a page, against the model's own. */
export function checkLogits({ logits }, { reference, n_vocab }, allowance) {
  const ours = new Float32Array(Uint8Array.from(logits).buffer);
  assert.ok(ours.length >= n_vocab && ours.length % n_vocab === 0, `${ours.length} logits`);
  for (let t = 0; t < ours.length / n_vocab; t++) {
    const error = nmse(ours, reference, t * n_vocab, (t + 1) * n_vocab);
    assert.ok(error <= allowance, `NMSE ${error} at position ${t}`);
  }
}

/** What a budget comes to that leaves a share of the weights' room beyond the least. */
export function budgetOf(refused, whole, share) {
  const least = Number(/smallest that works is (\d+)/.exec(refused)[1]);
  return Math.floor(least + (whole - least) * share);
}

// Keeps the devices of the engine's worker, so that a page can lose them: those there are, or are made later.
// Whatever a device complains of is told to the page.
const kWorker = `
  const made = [];
  const told = new BroadcastChannel('complaints');
  let lost = false;
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = async function (...given) {
    const device = await requestDevice.apply(this, given);
    made.push(device);
    device.addEventListener('uncapturederror', ({ error }) => told.postMessage(error.message));
    if (lost) device.destroy();
    return device;
  };
  new BroadcastChannel('card').onmessage = () => {
    lost = true;
    made.at(-1)?.destroy();
  };
`;

// --- in the page --------------------------------------------------------------------------------

/** The package's worker, behind some other script. */
function workerAfter(script) {
  const urlOf = (text) => URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  return urlOf(`import '${urlOf(script)}'; import '${location.origin}/dist/worker.js';`);
}

function load(source, options = {}) {
  return Engine.load(source, { cache: 'none', contextLength: 256, device: 'webgpu', workerUrl, threads: 1, ...options });
}

/** An engine that no card has to do with. */
function loadCpu(source, options = {}) {
  return Engine.load(source, { cache: 'none', contextLength: 256, kernels: 'wasm128', threads: 1, ...options });
}

async function tokensOf(engine, prompt, maxTokens, options = {}) {
  const tokens = [];
  for await (const { token, topLogprobs } of engine.generate(prompt, { maxTokens, temperature: 0, ignoreEos: true, logprobs: 1, ...options })) {
    if (topLogprobs) tokens.push(token);
  }
  return tokens;
}

/** An engine on the card, `window.card`; it stays open until there is another one. */
async function cardOf(source, options = {}) {
  const key = JSON.stringify([source, options]);
  if (window.card && window.cardKey === key) return card;
  await window.card?.dispose();
  window.card = null;
  window.card = await load(source, options);
  window.cardKey = key;
  return card;
}

/** Logits of the first positions, and the answer's tokens. */
async function measure({ source, options, prompt, positions, count }) {
  const engine = await cardOf(source, options);
  const logits = [...new Uint8Array((await engine.logits(prompt.slice(0, positions))).buffer)];
  const tokens = count ? await tokensOf(engine, prompt, count, { reusePrefix: false }) : [];
  const { device, engine: counts } = engine.stats();
  return { logits, tokens, device, counts, gpu: engine.memory().gpu };
}

/** The text of a function that sets a page up. */
export const pageSetup = `async () => {
  Object.assign(window, await import('/dist/index.js'));
  ${[workerAfter, load, loadCpu, tokensOf, cardOf, measure].map((f) => `window.${f.name} = ${f};`).join('\n')}
  window.workerUrl = workerAfter(${JSON.stringify(kWorker)});
  window.complaints = [];
  new BroadcastChannel('complaints').onmessage = ({ data }) => complaints.push(data);
}`;
