// npm run bench:stream: decode speed of one model under budgets from the smallest to more than its
// size, natively and in headless Chromium from the browser's model cache (OPFS). Weights that do
// not fit are read again in every forward pass. Decode therefore has two limits: storage bandwidth
// divided by bytes per pass, and the rate with all weights resident. Prints tokens per second,
// bytes per pass, both limits and the share of the lower one that is reached; --svg draws the plot.
// A file smaller than RAM would come from the page cache, at the speed of memory. --no-page-cache
// drops it from there while it is read (natively by the program, in the browser by a helper with
// dd's nocache), as if it were larger than RAM. Bandwidth is measured with plain 4 MB reads of the
// same file by one thread, in turns with decoding. The best round counts; with --no-page-cache the
// median, because disk speed varies.
//   npm run bench:stream -- [--model SHAPE:TYPE|FILE] [--shares 0,0.25,0.5,0.75,1.3] [-n 6]
//                           [--rounds 3] [--threads N] [--native] [--web] [--no-page-cache] [--svg] [--no-build]
import { spawn } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from '../../web/scripts/build.mjs';
import { capture, inRoot, write } from '../../web/scripts/lib.mjs';
import { setup } from '../../web/scripts/setup.mjs';
import { Bench } from './browser.mjs';
import { drawCurve } from './stream-plot.mjs';
import { modelFile, modelLabel, table } from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'tinyllama-1.1b:q4_0' },
    // As shares of the file; 0 is the smallest budget.
    shares: { type: 'string', default: '0,0.25,0.5,0.75,1.3' },
    generate: { type: 'string', short: 'n', default: '6' },
    rounds: { type: 'string', default: '3' },
    threads: { type: 'string', default: '0' }, // 0: the engine chooses, native builds use 2
    native: { type: 'boolean' },
    web: { type: 'boolean' },
    'no-page-cache': { type: 'boolean' },
    svg: { type: 'boolean' },
    'no-build': { type: 'boolean' },
  },
});
const both = !values.native && !values.web;
const nGenerate = Number(values.generate);
const rounds = Number(values.rounds);
const threads = Number(values.threads);
const kContext = 64;
const kSample = 256 << 20; // bytes read to measure bandwidth
const kDropRate = 12e9; // bytes per second: several times the bandwidth of a disk

const dropInterval = (file) => statSync(file).size / kDropRate;

/** Runs `work` while a helper keeps dropping `file` from the page cache. */
async function uncached(file, work) {
  if (!values['no-page-cache']) return work();
  // Often enough that no page is read twice from the cache, rarely enough that the system's
  // read-ahead is not lost.
  const seconds = dropInterval(file);
  const loop =
    'while kill -0 "$2"; do dd if="$1" iflag=nocache count=0 status=none; sleep "$3"; done';
  const helper = spawn('sh', ['-c', loop, 'sh', file, String(process.pid), String(seconds)], {
    stdio: 'ignore',
  });
  try {
    return await work();
  } finally {
    helper.kill();
  }
}

// --- native ------------------------------------------------------------------------------------

async function nativeJson(args) {
  const { code, output } = await capture(inRoot('build', 'native', 'sluice'), args);
  if (code !== 0) throw new Error(output.trim().split('\n').at(-1));
  return JSON.parse(output.slice(output.search(/^[[{]/m)));
}

async function measureNative(file, budgets) {
  const rows = [];
  for (const budget of budgets) {
    const [row] = await nativeJson([
      'bench',
      file,
      '-p',
      '0',
      '-n',
      String(nGenerate),
      '-t',
      String(threads || 2),
      '-r',
      String(rounds),
      '-o',
      'json',
      '--ctx',
      String(kContext),
      '--memory-budget',
      String(budget),
      ...(values['no-page-cache'] ? ['--no-page-cache'] : []),
    ]);
    rows.push({
      budget,
      decode: row.decodeTokensPerSecond,
      perPass: row.bytesPerPass,
      bandwidth: row.cacheBytesPerSecond,
    });
  }
  return rows;
}

// --- in Chromium (functions sent to the page as text) ------------------------------------------

async function fillStore({ url }) {
  const { Engine } = await import('/dist/index.js');
  const engine = await Engine.load(new URL(url, location.href), {
    memoryBudget: 512 << 20,
    contextLength: 64,
  });
  await engine.downloaded;
  await engine.dispose();
  return (await Engine.modelCache.size()) > 0;
}

async function smallestBudget({ url, context }) {
  const { Engine } = await import('/dist/index.js');
  return (await Engine.inspect(new URL(url, location.href), { contextLength: context })).plan
    .minimum;
}

async function webRow({ url, budget, n, rounds, threads, context, sample, settleMs }) {
  // Reads the cached model in blocks of 4 MB in a worker, as the engine's I/O worker does.
  const code = `onmessage = async ({ data: [bytes, first] }) => {
    const store = await (await navigator.storage.getDirectory()).getDirectoryHandle('sluice-llm');
    for await (const entry of store.values()) {
      const file = await entry.getFileHandle('data');
      const handle = await file.createSyncAccessHandle({ mode: 'readwrite-unsafe' });
      const chunk = new Uint8Array(4 << 20);
      const from = first + bytes > handle.getSize() ? 0 : first;
      const start = performance.now();
      for (let at = from; at < from + bytes; at += chunk.length) handle.read(chunk, { at });
      const rate = (bytes * 1000) / (performance.now() - start);
      handle.close();
      postMessage(rate);
    }
  };`;
  const bandwidth = () =>
    new Promise((done) => {
      const worker = new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));
      worker.onmessage = ({ data }) => {
        worker.terminate();
        done(data);
      };
      worker.postMessage([sample, rates.length * sample]);
    });
  const rates = [],
    decodes = [];
  const { Engine } = await import('/dist/index.js');
  const engine = await Engine.load(new URL(url, location.href), {
    memoryBudget: budget,
    threads,
    contextLength: context,
  });
  const options = { maxTokens: n + 1, temperature: 0, ignoreEos: true, cachePrompt: false };
  await engine.generate('the mill', options).result;
  for (let round = 0; round < rounds; round++) {
    await new Promise((done) => setTimeout(done, settleMs));
    rates.push(await bandwidth());
    const { timings } = await engine.generate('the river', options).result;
    decodes.push(timings.tokensPerSecond);
  }
  const { bytesPerPass } = engine.info.plan;
  await engine.dispose();
  const typical = (list) =>
    list.sort((a, b) => a - b)[settleMs > 0 ? list.length >> 1 : list.length - 1];
  return { budget, decode: typical(decodes), perPass: bytesPerPass, bandwidth: typical(rates) };
}

/** The largest file below a directory, which is the cached copy of the model. */
function largestFile(folder) {
  let best = { size: -1 };
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.path, entry.name);
    const { size } = statSync(path);
    if (size > best.size) best = { path, size };
  }
  return best.path;
}

async function measureWeb(file) {
  const bench = await Bench.open([['/model/', dirname(resolve(file))]]);
  const rows = [];
  try {
    const url = `/model/${basename(file)}`;
    await bench.run(fillStore, { url });
    const stored = largestFile(bench.profile);
    // Waits until the page cache has lost the file, which would make the plain reads too fast.
    const settleMs = values['no-page-cache'] ? 2500 * dropInterval(stored) : 0;
    const { result: smallest } = await bench.run(smallestBudget, { url, context: kContext });
    for (const budget of budgets(smallest)) {
      const work = {
        url,
        budget,
        n: nGenerate,
        rounds,
        threads,
        context: kContext,
        sample: kSample,
        settleMs,
      };
      rows.push((await uncached(stored, () => bench.run(webRow, work))).result);
    }
  } finally {
    await bench.close();
  }
  return rows;
}

// --- the report ---------------------------------------------------------------------------------

function report(title, file, rows) {
  const size = statSync(file).size;
  const resident =
    Math.max(...rows.filter((r) => r.perPass === 0).map((r) => r.decode), 0) || Infinity;
  for (const row of rows) {
    row.store = row.perPass > 0 ? row.bandwidth / row.perPass : Infinity;
    row.share = row.decode / Math.min(row.store, resident);
  }
  const finite = (x) => (Number.isFinite(x) ? x : '-');
  console.log(
    `\n${title}: ${modelLabel(file)}, ${threads || 'chosen'} threads, ${values['no-page-cache'] ? 'cold page cache' : 'warm page cache'}`,
  );
  console.log(
    table([
      [
        'budget',
        '% of model',
        'decode tok/s',
        'MB per pass',
        'storage MB/s',
        'storage limit tok/s',
        'compute limit tok/s',
        '% of limit',
      ],
      ...rows.map((r) => [
        `${(r.budget / 2 ** 20).toFixed(0)} MB`,
        `${((r.budget / size) * 100).toFixed(0)} %`,
        r.decode,
        r.perPass / 1e6,
        r.bandwidth / 1e6,
        finite(r.store),
        finite(resident),
        `${(r.share * 100).toFixed(0)} %`,
      ]),
    ]),
  );
}

setup('bench');
if (!values['no-build']) await build([]);
const file = modelFile(values.model);
const { size } = statSync(file);
const plan = (await nativeJson(['info', file, '--json', '--ctx', String(kContext)])).plan;
const shares = values.shares.split(',').map(Number);
const pages = (bytes) => Math.min(4 * 2 ** 30 - 65536, Math.ceil(bytes / 65536) * 65536);
const budgets = (smallest) => shares.map((share) => pages(share > 0 ? share * size : smallest));
const curves = [];
if (both || values.native) {
  const rows = await measureNative(file, budgets(plan.minimum));
  report('Native', file, rows);
  curves.push({ name: 'native', rows });
}
if (both || values.web) {
  const rows = await measureWeb(file);
  report('Chromium', file, rows);
  curves.push({ name: 'Chromium', rows });
}
if (values.svg) {
  write(inRoot('tests', 'bench', 'stream.svg'), drawCurve(curves, size, modelLabel(file)));
  console.log('\ndrawn: tests/bench/stream.svg');
}
