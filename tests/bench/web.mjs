// npm run bench:web: this package and wllama (llama.cpp in WebAssembly, CPU only) run the same
// model in the same headless Chromium with the same number of threads, in turns. Prints rates and
// ratios.
//   npm run bench:web -- [--model SHAPE:TYPE|FILE]… [--threads 1,2] [-p 128] [-n 32] [--rounds 2]
//                        [--kernels wasm128] [--kv-type q4_0] [--native] [--ours-only] [--json]
// --native: also measures decode with llama.cpp's native library, in the same turns.
// -p 2000 -n 16 measures decode at 2000 tokens of context (wllama allows at most 2048 with
// TinyLlama).
import { statSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from '../../web/scripts/build.mjs';
import { chromiumArgs, chromiumPath, inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { setup } from '../../web/scripts/setup.mjs';
import { measureWllama } from './baselines/wllama.mjs';
import {
  inTurns,
  installPeer,
  measureLlama,
  modelFile,
  modelLabel,
  promptWords,
  table,
} from './lib.mjs';
import { fitPrompt, loadOurs, measureOurs } from './ours.mjs';

const { values } = parseArgs({
  options: {
    model: {
      type: 'string',
      multiple: true,
      default: [
        'tinyllama-1.1b:q4_0',
        'tinyllama-1.1b:q4_k_m',
        'tinyllama-1.1b:q8_0',
        'qwen3-0.6b:q8_0',
      ],
    },
    threads: { type: 'string', default: '1,2' },
    prompt: { type: 'string', short: 'p', default: '128' },
    generate: { type: 'string', short: 'n', default: '32' },
    rounds: { type: 'string', default: '2' },
    kernels: { type: 'string', default: '' },
    'kv-type': { type: 'string', default: 'f16' },
    native: { type: 'boolean' },
    'ours-only': { type: 'boolean' },
    'no-build': { type: 'boolean' },
    json: { type: 'boolean' },
  },
});
const nPrompt = Number(values.prompt);
const nGenerate = Number(values.generate);

// --- in the page (functions sent as text) --------------------------------------------------------

async function loadPeer({ url, threads, context, kvType }) {
  const { Wllama } = await import('/wllama/index.js');
  globalThis.peer = new Wllama(
    { default: '/wllama/wasm/wllama.wasm' },
    { suppressNativeLog: true },
  );
  const blob = await (await fetch(url)).blob();
  await peer.loadModel([blob], {
    n_ctx: context,
    n_threads: threads,
    n_gpu_layers: 0,
    n_batch: 2048,
    seed: 1,
    cache_type_k: kvType,
    cache_type_v: kvType,
    ...(kvType === 'f16' ? {} : { flash_attn: true }),
  });
}

async function dispose() {
  await globalThis.ours?.dispose();
  await globalThis.peer?.exit();
}

// --- in Node -------------------------------------------------------------------------------------

async function compare(browser, file, threads) {
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
  const page = await browser.newPage();
  page.setDefaultTimeout(0);
  try {
    await page.goto(server.url);
    const url = `/model/${basename(file)}`;
    const context = nPrompt + nGenerate + 64;
    const budget = Math.min(
      4 * 2 ** 30 - 65536,
      Math.ceil(statSync(file).size * 1.3) + 512 * 2 ** 20,
    );
    const kvType = values['kv-type'];
    await page.evaluate(loadOurs, {
      url,
      threads,
      budget,
      context,
      kernels: values.kernels,
      kvType,
    });
    if (!values['ours-only']) await page.evaluate(loadPeer, { url, threads, context, kvType });
    const prompt = await page.evaluate(fitPrompt, { words: promptWords(nPrompt), n: nPrompt });
    const work = { prompt, n: nGenerate };
    const sides = { ours: () => page.evaluate(measureOurs, work) };
    if (!values['ours-only']) sides.peer = () => page.evaluate(measureWllama, work);
    if (values.native)
      sides.native = () => measureLlama(file, threads, values.prompt, values.generate);
    const best = await inTurns(Object.values(sides), Number(values.rounds));
    await page.evaluate(dispose);
    const named = Object.fromEntries(Object.keys(sides).map((side, i) => [side, best[i]]));
    return { model: modelLabel(file), threads, ...named };
  } finally {
    await page.close();
    await server.close();
  }
}

setup('bench');
if (!values['no-build']) await build(['wasm', 'web']);
if (values.native) installPeer('node-llama-cpp');
const { chromium } = await import('playwright-core');
const files = values.model.map(modelFile);
const browser = await chromium.launch({ executablePath: chromiumPath, args: chromiumArgs });
const results = [];
try {
  for (const file of files) {
    for (const threads of values.threads.split(',').map(Number)) {
      results.push(await compare(browser, file, threads));
      const { model, ours, peer } = results.at(-1);
      const said = (side) => `${side.prefill.toFixed(1)} and ${side.decode.toFixed(1)}`;
      console.error(
        `  ${model}, ${threads} thread(s): ${said(ours)}${peer ? `, wllama ${said(peer)}` : ''}`,
      );
      if (peer && ours.promptTokens !== peer.promptTokens) {
        console.log(`  (prompt tokens: ours ${ours.promptTokens}, wllama ${peer.promptTokens})`);
      }
    }
  }
} finally {
  await browser.close();
}
if (values.json) console.log(JSON.stringify(results, null, 1));
else {
  console.log(
    `\nChromium, tokens per second; prefill of ${nPrompt} tokens, decode of ${nGenerate} after them`,
  );
  console.log(
    table([
      [
        'model',
        'threads',
        'kernels',
        'prefill',
        'wllama',
        'ratio',
        'decode',
        'wllama',
        'ratio',
        ...(values.native ? ['llama.cpp native', 'ratio'] : []),
      ],
      ...results.map(({ model, threads, ours, peer, native }) => [
        model,
        String(threads),
        ours.kernels,
        ours.prefill,
        peer?.prefill ?? '-',
        peer ? ours.prefill / peer.prefill : '-',
        ours.decode,
        peer?.decode ?? '-',
        peer ? ours.decode / peer.decode : '-',
        ...(native ? [native.decode, ours.decode / native.decode] : []),
      ]),
    ]),
  );
}
