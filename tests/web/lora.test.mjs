// LoRA adapters through the package, in Node and in Chromium, against the references of
// ../shared/fixtures/lora: set on load and later, bit-identical at the smallest budget. Sessions
// continue with changed adapters, and a change that fails leaves everything as it was.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { crossOrigin, launch, openPage } from './chromium.mjs';
import { root } from './helpers.mjs';
import { peftOf, readGguf } from './peft.mjs';

const dist = join(root, 'dist');
const fixtures = join(root, '..', 'shared', 'fixtures');
const skip = existsSync(join(fixtures, 'lora')) ? false : 'no ../shared/fixtures/lora';
const cases = skip ? [] : JSON.parse(readFileSync(join(fixtures, 'lora', 'manifest.json'), 'utf8'));
const positions = 4;

/**
 * Runs in Node or in the page: the logits of some positions, first as loaded, then after each of
 * `steps` (lists of adapters).
 */
async function measure({ source, prompt, steps, options, smallest }) {
  const load = { cache: 'none', contextLength: 64, threads: 2, ...options };
  if (smallest) {
    const refused = await Engine.load(source, { ...load, memoryBudget: 65536 }).catch((e) => e);
    load.memoryBudget =
      Math.ceil(Number(/smallest that works is (\d+)/.exec(refused.message)[1]) / 65536) * 65536;
  }
  const engine = await Engine.load(source, load);
  try {
    const out = [];
    for (const lora of [null, ...(steps ?? [])]) {
      if (lora) await engine.setAdapters(lora);
      out.push(Array.from(await engine.logits(prompt)));
    }
    return { out, adapters: engine.memory().adapters };
  } finally {
    await engine.dispose();
  }
}

function check({ logits, n_vocab, llama_cpp_nmse }, ours, label) {
  const bytes = readFileSync(join(fixtures, 'lora', logits));
  const reference = new Float32Array(
    bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
  );
  assert.equal(ours.length, positions * n_vocab, label);
  for (let t = 0; t < positions; t++) {
    let difference = 0;
    let size = 0;
    for (let i = t * n_vocab; i < (t + 1) * n_vocab; i++) {
      difference += (ours[i] - reference[i]) ** 2;
      size += reference[i] ** 2;
    }
    const error = difference / size;
    assert.ok(error <= Math.max(1e-4, llama_cpp_nmse), `${label}, position ${t}: NMSE ${error}`);
  }
}

const adaptersAt = (place, { adapters }) =>
  adapters.map(({ file, scale }) => ({ source: place('lora', file), scale }));

async function checkAll(run, place, models) {
  assert.ok(models.length > 0);
  for (const one of models) {
    const args = { source: place('', one.model), prompt: one.prompt.slice(0, positions) };
    const lora = adaptersAt(place, one);
    const loaded = await run({ ...args, options: { lora } });
    assert.ok(loaded.adapters > 0, one.name);
    check(one, loaded.out[0], `${one.name} on loading`);
    const streamed = await run({ ...args, options: { lora }, smallest: true });
    assert.deepEqual(streamed.out, loaded.out, `${one.name} at the smallest budget`);
    const none = lora.map((adapter) => ({ ...adapter, scale: 0 }));
    const [bare, set, zero, empty] = (await run({ ...args, steps: [lora, none, []] })).out;
    assert.deepEqual(set, loaded.out[0], `${one.name} set later`);
    assert.notDeepEqual(bare, set, one.name);
    assert.deepEqual(zero, bare, `${one.name} with a scale of 0`);
    assert.deepEqual(empty, bare, `${one.name} without`);
  }
}

/** Writes PEFT directories of the GGUF adapters; returns their names, contents and scales. */
function writePeft({ model, adapters }, into) {
  const { metadata } = readGguf(readFileSync(join(fixtures, model)));
  return adapters.map(({ file, scale }) => {
    const { config, weights } = peftOf(readFileSync(join(fixtures, 'lora', file)), metadata);
    const folder = join(into, file);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'adapter_config.json'), config);
    writeFileSync(join(folder, 'adapter_model.safetensors'), weights);
    return { folder: file, config, weights, scale };
  });
}
const peftCases = cases.filter(({ name }) => name === 'llama.ab' || name === 'qwen3.ab');

describe('in Node', { skip }, () => {
  const place = (folder, file) => join(fixtures, folder, file);
  before(async () => {
    globalThis.Engine = (await import(pathToFileURL(join(dist, 'node.js')).href)).Engine;
  });

  for (const model of [...new Set(cases.map(({ model }) => model))]) {
    test(model, { skip: !/llama-gqa|qwen3moe/.test(model) && longOnly }, () =>
      checkAll(
        measure,
        place,
        cases.filter((one) => one.model === model && /\.(a05|ab)$/.test(one.name)),
      ),
    );
  }

  test('sessions continue with other adapters and with another budget', async () => {
    const one = cases.find(({ name }) => name === 'llama.a1');
    const greedy = { maxTokens: 8, temperature: 0, ignoreEos: true };
    const source = place('', one.model);
    const lora = adaptersAt(place, one);
    const load = { cache: 'none', contextLength: 64 };
    const fresh = async (options) => {
      const engine = await Engine.load(source, { ...load, ...options });
      const text = await engine.generate(one.prompt, greedy).text();
      await engine.dispose();
      return text;
    };
    const bare = await fresh({});
    const changed = await fresh({ lora });
    assert.notEqual(bare, changed);
    const engine = await Engine.load(source, load);
    const told = () => engine.generate(one.prompt, greedy).text();
    try {
      assert.equal(await told(), bare);
      const saved = await engine.saveState();
      await engine.setAdapters([lora[0].source]); // a source without a scale has scale 1
      assert.equal(await told(), changed);
      await assert.rejects(engine.restoreState(saved), { code: 'CORRUPT' });
      assert.equal(await told(), changed);
      await engine.setMemoryBudget(64 << 20);
      assert.equal(await told(), changed);
      await assert.rejects(engine.setAdapters([{ source: place('lora', 'qwen3.a.lora.gguf') }]), {
        code: 'UNSUPPORTED_ARCHITECTURE',
      });
      assert.equal(await told(), changed);
      await engine.setAdapters([]);
      assert.equal(await told(), bare);
    } finally {
      await engine.dispose();
    }
  });

  test('a PEFT adapter is bit-identical to GGUF, as a directory, a file or both files', async () => {
    const scratch = mkdtempSync(join(tmpdir(), 'sluice-peft-'));
    try {
      assert.equal(peftCases.length, 2);
      for (const one of peftCases) {
        const args = { source: place('', one.model), prompt: one.prompt.slice(0, positions) };
        const [, expected] = (await measure({ ...args, steps: [adaptersAt(place, one)] })).out;
        const made = writePeft(one, scratch);
        const forms = [
          ({ folder }) => join(scratch, folder),
          ({ folder }) => join(scratch, folder, 'adapter_model.safetensors'),
          ({ config, weights }) => [
            new File([weights], 'adapter_model.safetensors'),
            new File([config], 'adapter_config.json'),
          ],
        ];
        const steps = forms.map((form) =>
          made.map((each) => ({ source: form(each), scale: each.scale })),
        );
        const { out } = await measure({ ...args, steps, options: { lora: steps[0] } });
        for (const logits of out) assert.deepEqual(logits, expected, one.name);
      }
    } finally {
      rmSync(scratch, { recursive: true });
    }
  });

  test('unsupported PEFT settings are errors that name them', async () => {
    const one = peftCases[0];
    const made = peftOf(
      readFileSync(join(fixtures, 'lora', one.adapters[0].file)),
      readGguf(readFileSync(join(fixtures, one.model))).metadata,
    );
    const config = JSON.parse(made.config);
    const refused = (changes, weights, code, word) => {
      const files = [
        new File([JSON.stringify({ ...config, ...changes })], 'adapter_config.json'),
        new File([weights], 'adapter_model.safetensors'),
      ];
      return assert.rejects(
        Engine.load(place('', cases[0].model), { cache: 'none', lora: [{ source: files }] }),
        (error) => error.code === code && error.message.includes(word),
      );
    };
    const { weights } = made;
    await refused({ peft_type: 'IA3' }, weights, 'UNSUPPORTED_ARCHITECTURE', 'IA3');
    await refused({ use_dora: true }, weights, 'UNSUPPORTED_ARCHITECTURE', 'use_dora');
    await refused(
      { modules_to_save: ['lm_head'] },
      weights,
      'UNSUPPORTED_ARCHITECTURE',
      'modules_to_save',
    );
    await refused({ bias: 'all' }, weights, 'UNSUPPORTED_ARCHITECTURE', 'bias');
    await refused(
      { init_lora_weights: 'pissa' },
      weights,
      'UNSUPPORTED_ARCHITECTURE',
      'init_lora_weights',
    );
    await refused({ lora_alpha: null }, weights, 'BAD_HEADER', 'lora_alpha');
    await refused({}, weights.subarray(0, 4), 'TRUNCATED', 'too short');
    await refused({}, weights.subarray(0, 40), 'TRUNCATED', 'header');
    await refused({}, weights.subarray(0, weights.length - 4), 'TRUNCATED', 'ends after');
    const renamed = (from, to) =>
      Buffer.from(weights.toString('latin1').replace(from, to), 'latin1');
    await refused({}, renamed('q_proj', 'x_proj'), 'UNSUPPORTED_ARCHITECTURE', 'x_proj');
    await refused({}, renamed('"F', '"X'), 'UNSUPPORTED_TYPE', 'type X');
    await refused({}, renamed(/"shape":\[\d/, '"shape":[9'), 'BAD_HEADER', 'shape');
  });

  test('an invalid adapter is an error', async () => {
    const source = place('', cases[0].model);
    const refused = (lora, code) =>
      assert.rejects(Engine.load(source, { cache: 'none', lora }), { code }, JSON.stringify(lora));
    const { source: file } = adaptersAt(place, cases[0])[0];
    await refused('text', 'INVALID_ARGUMENT');
    await refused([{ source: file, scale: '1' }], 'INVALID_ARGUMENT');
    await refused([{ source: file, weight: 1 }], 'INVALID_ARGUMENT');
    await refused([place('lora', 'absent.gguf')], 'NOT_FOUND');
    await refused([source], 'BAD_HEADER');
    await refused([{ source: new Blob(['GGUF']) }], 'TRUNCATED');
    const peft = new File(['x'], 'adapter_model.safetensors');
    await refused([{ source: peft }], 'INVALID_ARGUMENT');
    await refused([{ source: [peft, peft] }], 'INVALID_ARGUMENT');
    await refused(Array(17).fill(file), 'INVALID_ARGUMENT');
  });
});

describe('in Chromium', { skip }, () => {
  let browser;
  let files;
  let tab;
  let scratch;
  let made;
  before(async () => {
    browser = await launch();
    files = await serve([['/', fixtures]], crossOrigin);
    tab = await openPage(browser, dist);
    await tab.page.evaluate(`window.measure = ${measure}`);
    scratch = mkdtempSync(join(tmpdir(), 'sluice-peft-'));
    made = await serve([['/', scratch]], crossOrigin);
  });
  after(async () => {
    rmSync(scratch, { recursive: true });
    await made.close();
    await tab.close();
    await browser.close();
    await files.close();
  });

  test('from a server', () =>
    checkAll(
      (args) => tab.page.evaluate((all) => measure(all), args),
      (folder, file) => `${files.url}/${folder ? `${folder}/` : ''}${file}`,
      cases.filter(({ name }) => name === 'qwen3.ab'),
    ));

  test('a PEFT adapter from a server is bit-identical to GGUF', async () => {
    assert.equal(peftCases.length, 2);
    for (const one of peftCases) {
      const peft = writePeft(one, scratch).map(({ folder, scale }) => ({
        source: `${made.url}/${folder}/`,
        scale,
      }));
      const gguf = adaptersAt((folder, file) => `${files.url}/${folder}/${file}`, one);
      const args = {
        source: `${files.url}/${one.model}`,
        prompt: one.prompt.slice(0, positions),
        steps: [gguf, peft],
      };
      const { out } = await tab.page.evaluate((all) => measure(all), args);
      assert.deepEqual(out[2], out[1], one.name);
    }
  });
});
