// A whole model with all layers on the GPU, in sluice and in wllama (n_gpu_layers), in turns on one
// page of Firefox. wllama does not use a GPU without shader-f16, which SwiftShader lacks, and
// silently computes on the CPU. Without a real GPU this therefore runs on lavapipe, where a submit
// takes a tenth of a second, so the rates mostly show how often each engine waits.
import { basename, dirname, resolve } from 'node:path';
import { inRoot } from '../../../web/scripts/lib.mjs';
import { serve } from '../../../web/scripts/serve.mjs';
import { launchFirefoxGpu } from '../../web/gpu-drivers.mjs';
import { measureWllama } from '../baselines/wllama.mjs';
import { inTurns, promptWords } from '../lib.mjs';

// --- in the page (functions sent as text) --------------------------------------------------------

async function loadBoth({ url, context }) {
  const { Engine } = await import('/dist/index.js');
  const { Wllama } = await import('/wllama/index.js');
  globalThis.ours = await Engine.load(new URL(url, location.href), {
    device: 'webgpu',
    contextLength: context,
    threads: 1,
    cache: 'none',
  });
  const said = [];
  const note = (...words) => said.push(words.join(' '));
  globalThis.peer = new Wllama(
    { default: '/wllama/wasm/wllama.wasm' },
    { logger: { debug: note, log: note, warn: note, error: note } },
  );
  const blob = await (await fetch(url)).blob();
  await peer.loadModel([blob], { n_ctx: context, n_threads: 1, n_gpu_layers: 999, seed: 1 });
  return {
    device: ours.stats().device,
    offloaded: said.find((line) => /offloaded \d+\/\d+ layers/.test(line)),
  };
}

async function measureOurs({ prompt, n }) {
  const { usage, timings } = await ours.generate(prompt, {
    maxTokens: n,
    temperature: 0,
    ignoreEos: true,
    cachePrompt: false,
  }).result;
  return {
    // The forward pass of the prompt yields the first token.
    prefill: (usage.promptTokens * 1000) / timings.promptMs,
    decode: ((usage.completionTokens - 1) * 1000) / timings.generateMs,
    promptTokens: usage.promptTokens,
  };
}

// --- in Node -------------------------------------------------------------------------------------

/** Prints tokens per second of both engines, the best of `rounds` rounds, and their ratio. */
export async function againstPeer(file, nPrompt, nGenerate, rounds) {
  const server = await serve(
    [
      ['/dist/', inRoot('dist')],
      ['/wllama/', inRoot('node_modules', '@wllama', 'wllama', 'esm')],
      ['/model/', dirname(resolve(file))],
    ],
    {
      onRequest(request, response) {
        if (request.url !== '/') return false;
        response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>bench</title>');
        return true;
      },
    },
  );
  // wllama waits for the GPU in the middle of a call. That takes JSPI, which this Firefox has
  // behind a preference.
  const browser = await launchFirefoxGpu({
    'javascript.options.wasm_js_promise_integration': true,
  });
  try {
    const page = await browser.open(`${server.url}/`);
    const { device, offloaded } = await page.evaluate(loadBoth, {
      url: `/model/${basename(file)}`,
      context: 4 * nPrompt + nGenerate,
    });
    if (device !== 'webgpu' || !offloaded)
      throw new Error(`sluice runs on ${device}, wllama reports ${offloaded ?? 'no GPU layers'}`);
    const work = { prompt: promptWords(nPrompt).join(' '), n: nGenerate };
    const [ours, peer] = await inTurns(
      [() => page.evaluate(measureOurs, work), () => page.evaluate(measureWllama, work)],
      rounds,
    );
    console.log(
      `${basename(file)}, prompts of ${ours.promptTokens} and ${peer.promptTokens} tokens; ${offloaded.trim()}`,
    );
    for (const what of ['prefill', 'decode']) {
      console.log(
        `${what}: ${ours[what].toFixed(2)} tokens/s, wllama ${peer[what].toFixed(2)}, ${(ours[what] / peer[what]).toFixed(1)} times`,
      );
    }
  } finally {
    await browser.close();
    await server.close();
  }
}
