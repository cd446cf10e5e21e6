// npm run bench:ttft: time to first token in headless Chromium against wllama on the same file.
// Cold runs download from a server that this program throttles; warm runs read from the browser's
// model cache. The download time is that of a plain fetch from the same server. A warm run also
// prints how much of the model had been read at the first matrix multiplication. Fails if the cold
// first token takes longer than the download and 10 %, or if the warm computation starts after more
// than 5 % of the model.
//   npm run bench:ttft -- [--model SHAPE:TYPE|FILE] [--rate 60M] [--threads N] [--no-baseline] [--no-build]
import { basename, dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from '../../web/scripts/build.mjs';
import { inRoot, parseBytes } from '../../web/scripts/lib.mjs';
import { setup } from '../../web/scripts/setup.mjs';
import { Bench } from './browser.mjs';
import { modelFile, modelLabel, table } from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'tinyllama-1.1b:q4_0' },
    rate: { type: 'string', default: '60M' },
    threads: { type: 'string', default: '2' },
    'no-baseline': { type: 'boolean' },
    'no-build': { type: 'boolean' },
  },
});
const kPrompt = 'Once upon a time there was';

// --- in the page (functions sent as text) ------------------------------------------------------

async function plainDownload({ url }) {
  const start = performance.now();
  const reader = (await fetch(url, { cache: 'no-store' })).body.getReader();
  while (!(await reader.read()).done);
  return { ms: performance.now() - start };
}

async function ours({ url, threads, prompt }) {
  const { Engine } = await import('/dist/index.js');
  const start = performance.now();
  const engine = await Engine.load(new URL(url, location.href), { threads, contextLength: 256 });
  const generation = engine.generate(prompt, { maxTokens: 1, temperature: 0, ignoreEos: true });
  for await (const _ of generation) break;
  const ms = performance.now() - start;
  await engine.downloaded;
  await new Promise((done) => setTimeout(done, 300));
  const { engine: counters, bytesTotal } = engine.stats();
  await engine.dispose();
  return { ms, before: counters.filledAtFirstUse / bytesTotal };
}

async function theirs({ url, threads, prompt }) {
  const { Wllama } = await import('/wllama/index.js');
  const peer = new Wllama({ default: '/wllama/wasm/wllama.wasm' }, { suppressNativeLog: true });
  const start = performance.now();
  await peer.loadModelFromUrl(new URL(url, location.href).href, {
    n_ctx: 256,
    n_threads: threads,
    n_gpu_layers: 0,
  });
  await peer.createCompletion({ prompt, max_tokens: 1, temperature: 0, ignore_eos: true });
  const ms = performance.now() - start;
  await peer.exit();
  return { ms };
}

// --- in Node -------------------------------------------------------------------------------------

setup('bench');
if (!values['no-build']) await build(['wasm', 'web']);
const file = modelFile(values.model);
const bench = await Bench.open(
  [
    ['/wllama/', inRoot('node_modules', '@wllama', 'wllama', 'esm')],
    ['/model/', dirname(resolve(file))],
  ],
  { rate: parseBytes(values.rate) },
);
const work = { url: `/model/${basename(file)}`, threads: Number(values.threads), prompt: kPrompt };
const run = async (side) => (await bench.run(side, work)).result;
const rows = [];
let warm;
try {
  const download = (await run(plainDownload)).ms;
  const add = (name, { ms }) =>
    rows.push([name, ms / 1000, `${((ms / download) * 100).toFixed(0)} %`]);
  add('plain download', { ms: download });
  const cold = await run(ours);
  add('cold', cold);
  warm = await run(ours);
  add('warm', warm);
  if (!values['no-baseline']) {
    add('cold, wllama', await run(theirs));
    add('warm, wllama', await run(theirs));
  }
  if (cold.ms > download * 1.1) process.exitCode = 1;
} finally {
  await bench.close();
}
console.log(
  `\nTime to first token: ${modelLabel(file)}, ${values.rate}B/s, ${values.threads} threads, a prompt of ${kPrompt.split(' ').length} words`,
);
console.log(table([['', 'seconds', 'of the download'], ...rows]));
console.log(
  `warm: ${(warm.before * 100).toFixed(1)} % of the file had been read at the first matrix multiplication`,
);
if (!(warm.before < 0.05)) process.exitCode = 1;
