// npm run bench:stream: one model under shrinking budgets, natively and in headless Chromium out of
// the browser's file store. What does not fit is read again in every pass, so the limit of decode is
// the store's bandwidth over the bytes per pass; the last column says how near that limit is.
//   npm run bench:stream -- [--model SHAPE:TYPE|FILE] [--shares 1.2,0.75,0.5,0.25] [-n 8]
//                           [--threads N] [--native] [--web] [--no-build]
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from '../../web/scripts/build.mjs';
import { capture, chromiumArgs, chromiumPath, inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { setup } from '../../web/scripts/setup.mjs';
import { modelFile, modelLabel, table } from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'tinyllama-1.1b:q4_0' },
    shares: { type: 'string', default: '1.3,0.75,0.5,0.25' },
    generate: { type: 'string', short: 'n', default: '8' },
    threads: { type: 'string', default: '2' },
    native: { type: 'boolean' },
    web: { type: 'boolean' },
    'no-build': { type: 'boolean' },
  },
});
const both = !values.native && !values.web;
const nGenerate = Number(values.generate);
const threads = Number(values.threads);

// Bytes per second of plain reads of 4 MB, the second time over: out of the system's cache, as the
// engine's reads are when the model fits in the machine's memory.
function fileBandwidth(file) {
  const chunk = Buffer.allocUnsafe(4 << 20);
  let rate = 0;
  for (let round = 0; round < 2; round++) {
    const descriptor = openSync(file, 'r');
    const start = performance.now();
    let total = 0;
    for (let n = 1; n > 0; total += n) n = readSync(descriptor, chunk, 0, chunk.length, null);
    rate = (total * 1000) / (performance.now() - start);
    closeSync(descriptor);
  }
  return rate;
}

async function nativeRow(file, budget) {
  const { code, output } = await capture(inRoot('build', 'native', 'sluice'), [
    'bench', file, '-p', '0', '-n', String(nGenerate), '-t', String(threads), '-r', '2', '-o', 'json',
    '--memory-budget', String(budget),
  ]);
  if (code !== 0) return { error: output.trim().split('\n').at(-1) };
  const [row] = JSON.parse(output.slice(output.indexOf('[')));
  return { decode: row.decodeTokensPerSecond, perPass: row.bytesPerPass };
}

// In the page. The store's bandwidth is measured by the engine's own counters in the same run.
async function webRow({ url, budget, n, threads }) {
  const { Engine } = await import('/dist/index.js');
  let engine;
  try {
    engine = await Engine.load(new URL(url, location.href), {
      memoryBudget: budget, threads, contextLength: 256,
    });
    await engine.downloaded;
    const options = { maxTokens: n + 1, temperature: 0, ignoreEos: true, reusePrefix: false };
    await engine.generate('the mill', options).result;
    const before = engine.stats();
    const { usage, timings } = await engine.generate('the river', options).result;
    await new Promise((done) => setTimeout(done, 300));
    const after = engine.stats();
    const bytes = after.bytesFromStore + after.bytesFetched - before.bytesFromStore - before.bytesFetched;
    return {
      decode: ((usage.completionTokens - 1) * 1000) / timings.generateMs,
      perPass: bytes / usage.completionTokens, heap: engine.memory().heap,
    };
  } catch (e) {
    return { error: e.message };
  } finally {
    await engine?.dispose();
  }
}

// In the page: reads the stored file by 4 MB in a worker, as the engine's I/O worker does.
async function storeBandwidth({ bytes }) {
  const code = `onmessage = async ({ data: bytes }) => {
    const root = await navigator.storage.getDirectory();
    const handle = await (await root.getFileHandle('bandwidth', { create: true })).createSyncAccessHandle();
    const chunk = new Uint8Array(4 << 20);
    for (let at = 0; at < bytes; at += chunk.length) handle.write(chunk, { at });
    const start = performance.now();
    for (let at = 0; at < bytes; at += chunk.length) handle.read(chunk, { at });
    const rate = bytes * 1000 / (performance.now() - start);
    handle.close();
    await root.removeEntry('bandwidth');
    postMessage(rate);
  };`;
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));
  return new Promise((done) => {
    worker.onmessage = ({ data }) => done(data);
    worker.postMessage(bytes);
  });
}

function report(title, file, bandwidth, rows) {
  const size = statSync(file).size;
  console.log(`\n${title}: ${modelLabel(file)}, ${threads} threads; the store reads ${(bandwidth / 1e6).toFixed(0)} MB/s`);
  console.log(table([
    ['budget', 'of the model', 'decode tok/s', 'MB per token', 'MB/s', 'limit tok/s', 'of the limit'],
    ...rows.map(([budget, row]) => {
      const head = [`${(budget / 2 ** 20).toFixed(0)} MB`, `${((budget / size) * 100).toFixed(0)} %`];
      if (row.error) return [...head, row.error, '', '', '', ''];
      const limit = row.perPass > 0 ? bandwidth / row.perPass : Infinity;
      return [...head, row.decode, row.perPass / 1e6, (row.decode * row.perPass) / 1e6,
        Number.isFinite(limit) ? limit : 'resident', Number.isFinite(limit) ? `${((row.decode / limit) * 100).toFixed(0)} %` : ''];
    }),
  ]));
}

async function measureWeb(file, budgets) {
  const { chromium } = await import('playwright-core');
  const server = await serve([['/dist/', inRoot('dist')], ['/model/', dirname(resolve(file))]], {
    onRequest(request, response) {
      if (request.url !== '/') return false;
      response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>bench</title>');
      return true;
    },
  });
  const browser = await chromium.launch({ executablePath: chromiumPath, args: chromiumArgs });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    await page.goto(server.url);
    const bandwidth = await page.evaluate(storeBandwidth, { bytes: 256 << 20 });
    const rows = [];
    for (const budget of budgets) {
      const work = { url: `/model/${basename(file)}`, budget, n: nGenerate, threads };
      rows.push([budget, await page.evaluate(webRow, work)]);
    }
    report('Chromium', file, bandwidth, rows);
  } finally {
    await browser.close();
    await server.close();
  }
}

setup('bench');
if (!values['no-build']) await build([]);
const file = modelFile(values.model);
const budgets = values.shares.split(',').map((s) => Math.ceil((Number(s) * statSync(file).size) / 65536) * 65536);
if (both || values.native) {
  const rows = [];
  for (const budget of budgets) rows.push([budget, await nativeRow(file, budget)]);
  report('Native', file, fileBandwidth(file), rows);
}
if (both || values.web) await measureWeb(file, budgets.map((b) => Math.min(b, 4 * 2 ** 30 - 65536)));
