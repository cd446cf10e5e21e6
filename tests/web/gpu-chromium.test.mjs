// The GPU in a page: Chromium on its software adapter, which compiles a model's kernels in half a
// minute. gpu.test.mjs has the rest, in Node.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { crossOrigin, openPage } from './chromium.mjs';
import { launchChromiumGpu } from './gpu-drivers.mjs';
import { addressOf, checkLogits, kNmse, models, mountsOf, pageSetup } from './gpu-page.mjs';
import { root } from './helpers.mjs';

const llama = models('arch').find(({ name }) => name === 'llama-gqa');
const kNoGpu = 'GPU.prototype.requestAdapter = async () => null;';
let browser;
let files;
let tab;
const complaints = [];

before(async () => {
  browser = await launchChromiumGpu();
  files = await serve(mountsOf([llama]), crossOrigin);
  tab = await openPage(browser, join(root, 'dist'), {});
  tab.page.on('console', (message) => {
    if (/error|warning/.test(message.type())) complaints.push(message.text());
  });
  await tab.page.evaluate(`(${pageSetup})()`);
});
after(async () => {
  complaints.push(...(await tab.page.evaluate('complaints')));
  await tab.close();
  await browser.close();
  await files.close();
  assert.deepEqual(complaints, [], 'console output');
});

const source = () => addressOf(files, llama);
const inPage = (work, ...args) => tab.page.evaluate(work, args);

test('the GPU module is fetched only on request, and a missing GPU is an error', async () => {
  const fetched = () => tab.server.requested.filter((path) => /gpu/.test(path)).length;
  const before = fetched();
  const plain = await inPage(async ([source]) => {
    const engine = await Engine.load(source, { cache: 'none', contextLength: 64 });
    const out = { device: engine.stats().device, gpu: engine.memory().gpu };
    await engine.dispose();
    return out;
  }, source());
  assert.deepEqual([plain, fetched()], [{ device: 'wasm', gpu: 0 }, before]);
  const found = await inPage(
    async ([source, noGpu]) => {
      const out = {};
      // The adapter here is a software adapter.
      const auto = await load(source, { device: 'auto' });
      out.auto = auto.stats().device;
      await auto.dispose();
      out.wrong = await Engine.load(source, { device: 'gpu' }).catch(({ code }) => code);
      const none = workerAfter(noGpu);
      out.none = await load(source, { workerUrl: none }).catch(({ code }) => code);
      const without = await load(source, { workerUrl: none, device: 'auto' });
      out.without = without.stats().device;
      await without.dispose();
      return out;
    },
    source(),
    kNoGpu,
  );
  assert.ok(fetched() > before, 'the GPU module was fetched');
  assert.deepEqual(found, {
    auto: 'wasm',
    wrong: 'INVALID_ARGUMENT',
    none: 'NOT_SUPPORTED',
    without: 'wasm',
  });
});

test('the GPU computes a Llama', async () => {
  const result = await inPage(([args]) => measure(args), {
    source: source(),
    prompt: llama.prompt,
    positions: 4,
    count: 4,
    options: {},
  });
  assert.equal(result.device, 'webgpu');
  checkLogits(result, llama, kNmse);
  assert.deepEqual(result.tokens, llama.greedy.slice(0, 4));
});

test('two sessions share passes, which need gpu-parallel.js', { skip: longOnly }, async () => {
  const fetched = () => tab.server.requested.some((path) => /gpu-parallel/.test(path));
  assert.equal(fetched(), false);
  const { device, passes, tokens } = await inPage(
    async ([source, prompt]) => {
      const engine = await load(source, { parallel: 2 });
      const sessions = [engine.session(), engine.session()];
      const texts = await Promise.all(sessions.map((session) => tokensOf(session, prompt, 4)));
      const { device, engine: counts } = engine.stats();
      await engine.dispose();
      return { device, passes: counts.gpuPasses, tokens: texts };
    },
    source(),
    'mill river',
  );
  assert.equal(device, 'webgpu');
  assert.ok(fetched());
  assert.equal(tokens[0].length, 4);
  assert.deepEqual(tokens[0], tokens[1]);
  assert.ok(passes < 8, `${passes} passes`);
});
