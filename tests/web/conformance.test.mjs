// Model families and quantization types through the package, in Node and in Chromium, on each
// kernel table that runs there. Compares the logits of every position and greedy tokens with the
// reference: resident on two threads, and streamed at the smallest budget, which must be
// bit-identical. The short suite runs a few models on each table, because the native suite runs all
// in tests/conformance and the suite wasm compares every kernel.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { chromiumArgs } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { all } from '../extent.mjs';
import { crossOrigin, launch, openPage } from './chromium.mjs';
import { nmse, root } from './helpers.mjs';

const dist = join(root, 'dist');
const kLogitsNmse = 1e-4; // at any position
const kStreamed = 3; // first positions and tokens compared at the smallest budget
const kFloor = 1e-6; // the error of an f16 KV cache when nothing else is rounded

/** The entries with these names, all of which must exist; all entries without `names`. */
function named(list, names) {
  const chosen = names ? list.filter(({ name }) => names.includes(name)) : list;
  assert.equal(chosen.length, (names ?? list).length, `${names}`);
  assert.ok(chosen.length > 0);
  return chosen;
}

/** The models of a directory with their reference logits; with `only`, those names. */
function models(folder, only) {
  const entries = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
  return named(entries, only).map((entry) => {
    const bytes = readFileSync(join(folder, entry.logits));
    const logits = new Float32Array(
      bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
    );
    return { greedy: [], ...entry, folder, path: join(folder, entry.file), reference: logits };
  });
}

const own = (name) => join(root, 'tests', 'data', name);
const shared = (name) => join(root, '..', 'shared', 'fixtures', name);
/** The models beside the checkout, or the subset inside it. */
const fixtures = (name) => models(existsSync(shared(name)) ? shared(name) : own(name));

/** The named models in the short suite, all in the long one. */
const some = (list, ...names) => named(list, all ? undefined : names);

const arch = some(fixtures('arch'), 'llama-gqa', 'gemma2');
const families = some(models(own('families')), 'lfm2', 'qwen3moe');
// Other families that the engine runs.
const further =
  all && existsSync(shared('families'))
    ? models(shared('families'), JSON.parse(readFileSync(own('further-families.json'), 'utf8')))
    : [];
const quant = some(fixtures('quant'), 'Q4_0', 'Q4_K', 'Q8_0');
// Types that only the engines with all types have.
const decoded = some(fixtures('quant-iq'), 'IQ1_M', 'IQ3_XXS', 'NVFP4');
const mounts = [arch, families, further, quant, decoded]
  .filter((list) => list.length)
  .map(([first], i) => [`/${i}/`, first.folder]);

/**
 * Runs in Node or in the page: logits of the prompt's first positions in base64, then greedy
 * tokens.
 */
async function measure({ source, options, prompt, decoder, positions, count }) {
  const engine = await Engine.load(source, {
    cache: 'none',
    contextLength: prompt.length + (decoder?.length ?? 0) + 32,
    ...options,
  });
  try {
    const bytes = new Uint8Array(
      (
        await (decoder
          ? engine.logits(prompt, { decoderTokens: decoder.slice(0, positions) })
          : engine.logits(prompt.slice(0, positions)))
      ).buffer,
    );
    const out = {
      tokens: [],
      leads: [],
      kernels: engine.stats().kernels,
      memory: engine.memory(),
      minimum: engine.info.plan.minimum,
      logits: '',
    };
    for (let i = 0; i < bytes.length; i += 8192)
      out.logits += String.fromCharCode(...bytes.subarray(i, i + 8192));
    out.logits = btoa(out.logits);
    if (count === 0) return out;
    const settings = {
      maxTokens: count,
      temperature: 0,
      ignoreEos: true,
      cachePrompt: false,
      logprobs: 2,
    };
    for await (const { token, topLogprobs } of engine.generate(prompt, settings)) {
      if (!topLogprobs) continue; // text that the last token left incomplete
      out.tokens.push(token);
      out.leads.push(topLogprobs[0].logprob - topLogprobs[1].logprob);
    }
    return out;
  } finally {
    await engine.dispose();
  }
}

function floats(text, model) {
  const bytes = Buffer.from(text, 'base64');
  assert.equal(bytes.length, 4 * model.reference.length, `${model.name}: number of logits`);
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

/** A token may differ only if its lead is below the error that the tolerance allows for a logit. */
function checkTokens(model, { tokens, leads }, label) {
  assert.equal(tokens.length, model.greedy.length, label);
  const at = tokens.findIndex((token, i) => token !== model.greedy[i]);
  if (at < 0) return;
  const rms = Math.sqrt(
    model.reference.reduce((sum, x) => sum + x * x, 0) / model.reference.length,
  );
  const bound = 4 * Math.sqrt(kLogitsNmse) * rms;
  const what = `${label}: token ${at} is ${tokens[at]}, not ${model.greedy[at]}`;
  assert.ok(leads[at] < bound && model.greedy_min_gap < bound, what);
}

/** `run(model, args)` calls measure() on one model in Node or in the page. */
async function checkFamilies(models, kernels, run) {
  for (const model of models) {
    const { prompt, decoder } = model;
    const rows = decoder ?? prompt;
    // An encoder-decoder generates from the start token, not after all of `decoder`.
    const greedy = decoder ? Array(kStreamed) : model.greedy;
    const label = `${model.name} on ${kernels}`;
    const resident = await run(model, {
      prompt,
      decoder,
      count: greedy.length,
      options: { kernels, threads: 2 },
    });
    assert.equal(resident.kernels, kernels, label);
    assert.equal(resident.memory.resident, true, label);
    const ours = floats(resident.logits, model);
    for (let t = 0; t < rows.length; t++) {
      const error = nmse(ours, model.reference, t * model.n_vocab, (t + 1) * model.n_vocab);
      assert.ok(error <= kLogitsNmse, `${label}: NMSE ${error} at position ${t}`);
    }
    if (!decoder) checkTokens(model, resident, label);
    // With bidirectional attention every position matters, and there is no generation.
    const few = model.causal === false ? { count: 0 } : { count: kStreamed, positions: kStreamed };
    const memoryBudget = Math.ceil(resident.minimum / 65536) * 65536;
    const streamed = await run(model, {
      prompt,
      decoder,
      ...few,
      options: { kernels, threads: 2, memoryBudget },
    });
    assert.equal(streamed.memory.resident, false, `${label}, smallest budget`);
    assert.ok(
      resident.logits.startsWith(streamed.logits),
      `${label}: different bits at the smallest budget`,
    );
    for (const what of ['tokens', 'leads']) {
      assert.deepEqual(
        streamed[what],
        resident[what].slice(0, kStreamed),
        `${label}, smallest budget: ${what}`,
      );
    }
  }
}

async function checkTypes(models, kernels, run) {
  for (const model of models) {
    const label = `${model.name} on ${kernels}`;
    const measured = await run(model, {
      prompt: model.prompt,
      count: 0,
      options: { kernels, threads: 2 },
    });
    assert.equal(measured.kernels, kernels, label);
    const error = nmse(floats(measured.logits, model), model.reference);
    assert.ok(error <= Math.max(kFloor, model.llama_cpp_nmse), `${label}: NMSE ${error}`);
  }
}

/**
 * Defines the tests for these kernel tables. `lacking(table)` returns why a table cannot run here. The
 * tables differ in the kernels of quantization types, so the last one runs the architectures.
 */
function everything(tables, run, lacking = () => undefined) {
  for (const kernels of tables) {
    const on = (title, check) =>
      test(`${title} on ${kernels}`, (t) =>
        lacking(kernels) ? t.skip(lacking(kernels)) : check());
    on(`${quant.length + decoded.length} quantization types`, () =>
      checkTypes([...quant, ...decoded], kernels, run),
    );
    if (all || kernels === tables.at(-1))
      on(`${arch.length} architecture fixtures`, () => checkFamilies(arch, kernels, run));
  }
}

/** The kernel table that is chosen by default; `run` as above. */
const chosen = async (run) =>
  (await run(quant[0], { prompt: quant[0].prompt, count: 0, options: {} })).kernels;
const saturates = 'wasmrelaxed: the relaxed dot product saturates on this machine';

describe('in Node', () => {
  before(async () => {
    globalThis.Engine = (await import(pathToFileURL(join(dist, 'node.js')).href)).Engine;
  });
  const run = (model, args) => measure({ source: model.path, ...args });
  everything(['wasm128'], run);
  test(`${families.length + further.length} further families`, () =>
    checkFamilies([...families, ...further], 'wasm128', run));
  const reason = `Node ${process.versions.node} has no complete relaxed SIMD`;
  const skip = Number(process.versions.node.split('.')[0]) < 22 ? reason : false;
  test('relaxed SIMD', { skip }, async () => checkTypes(quant, await chosen(run), run));
});

/** Starts Chromium with extra `args`, the models and a page; `use(run)` defines the tests. */
function inChromium(args, use) {
  let browser;
  let files;
  let tab;
  before(async () => {
    browser = await launch({ args: [...chromiumArgs, ...args] });
    files = await serve(mounts, crossOrigin);
    tab = await openPage(browser, dist);
    await tab.page.evaluate(`window.measure = ${measure}`);
  });
  after(async () => {
    await tab.close();
    await browser.close();
    await files.close();
  });
  const run = (model, args) => {
    const [prefix] = mounts.find(([, folder]) => folder === model.folder);
    return tab.page.evaluate(
      (all) =>
        measure(all).catch((e) => {
          throw new Error(`${e.code}: ${e.message}`);
        }),
      { source: `${files.url}${prefix}${model.file}`, ...args },
    );
  };
  use(run);
}

describe('in Chromium', () =>
  inChromium([], (run) => {
    let best;
    before(async () => (best = await chosen(run)));
    // Node has the plain kernels.
    everything([...(all ? ['wasm128'] : []), 'wasmrelaxed', 'wasmrelaxed16'], run, (kernels) =>
      kernels === 'wasmrelaxed' && best !== kernels ? saturates : undefined,
    );
    // The kernels have seen every shape by now, so a third of the other families is enough.
    const part = [...families, ...further.filter((_, i) => i % 3 === 0)];
    test(`${part.length} further families`, () => checkFamilies(part, best, run));
  }));

describe(
  'in Chromium without AVX-VNNI',
  { skip: process.arch !== 'x64' && 'V8 has a flag for x64' },
  () =>
    inChromium(['--js-flags=--no-enable-avx-vnni'], (run) => {
      test('wasmrelaxed16 is chosen', async () => assert.equal(await chosen(run), 'wasmrelaxed16'));
      test('forcing wasmrelaxed is an error', async () => {
        const { prompt } = quant[0];
        await assert.rejects(
          run(quant[0], { prompt, count: 0, options: { kernels: 'wasmrelaxed' } }),
          /INVALID_ARGUMENT: .*"wasmrelaxed" is unknown or not available/,
        );
      });
    }),
);
