// Latency of cancellation in Node: from abort() to the rejection, and to the next token (or load)
// of the same engine. Aborts at random moments of each phase; prints median and longest of --times.
//   npm run bench:abort -- [MODEL] [--times 50] [--budget 300M] [--ctx 512] [--rate 20M]      needs dist/ (npm run build)
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { inRoot, parseBytes } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    times: { type: 'string', default: '50' },
    budget: { type: 'string' },
    ctx: { type: 'string', default: '512' },
    rate: { type: 'string', default: '20M' },
  },
});
const model = resolve(positionals[0] ?? inRoot('examples', 'models', 'sluice-tales-F16.gguf'));
const times = Number(values.times);
const contextLength = Number(values.ctx);
const memoryBudget = values.budget
  ? parseBytes(values.budget)
  : Math.floor(statSync(model).size * 1.5);
const { Engine } = await import(inRoot('dist', 'node.js'));
const folder = mkdtempSync(join(tmpdir(), 'sluice-abort-'));
const server = await serve([['/', dirname(model)]], { rate: parseBytes(values.rate) });
const url = `${server.url}/${basename(model)}`;
const next = { maxTokens: 1, temperature: 0 };

/** Aborts `work` after a random time below `most` ms; null if it had finished before. */
async function abortOnce(most, work) {
  const control = new AbortController();
  const settled = work(control.signal).then(
    () => null,
    () => performance.now(),
  );
  await sleep(Math.random() * most);
  const at = performance.now();
  control.abort();
  const rejected = await settled;
  return rejected === null ? null : rejected - at;
}

async function phase(name, most, work, again) {
  const rejections = [];
  const recoveries = [];
  for (let tries = 0; rejections.length < times && tries < 4 * times; tries++) {
    const ms = await abortOnce(most, work);
    if (ms === null) continue;
    rejections.push(ms);
    const at = performance.now();
    await again();
    recoveries.push(performance.now() - at);
  }
  const show = (list) => {
    const sorted = list.sort((a, b) => a - b);
    return `${(sorted[sorted.length >> 1] ?? 0).toFixed(1).padStart(8)} ${(sorted.at(-1) ?? 0).toFixed(1).padStart(8)}`;
  };
  console.log(
    `${name.padEnd(22)} ${String(rejections.length).padStart(4)} ${show(rejections)}   ${show(recoveries)}`,
  );
}

console.log(
  `${basename(model)}, budget ${memoryBudget}\n${''.padEnd(27)}   rejected (ms)       works again (ms)`,
);
console.log(`${'phase'.padEnd(22)}    n   median  longest     median  longest`);
const engine = await Engine.load(model, { memoryBudget, contextLength });
const tokens = await engine.tokenize('Once upon a time there was a little fox. '.repeat(400));
const prompt = tokens.subarray(0, engine.info.plan.contextLength - 8);
const started = performance.now();
await engine.generate(prompt, { ...next, cachePrompt: false }).result;
const promptMs = performance.now() - started;
const works = () => engine.generate('Once upon', next).result;
await phase(
  'prefill',
  promptMs,
  (signal) => engine.generate(prompt, { ...next, cachePrompt: false, signal }).result,
  works,
);
await phase(
  'decode',
  300,
  (signal) => engine.generate('Once', { temperature: 0, ignoreEos: true, signal }).result,
  works,
);
await engine.generate(prompt.subarray(0, prompt.length >> 1), next).result;
const saved = await engine.saveState();
await phase('saving', 5, (signal) => engine.saveState({ signal }), works);
await phase('restoring', 5, (signal) => engine.restoreState(saved, { signal }), works);
const session = engine.session();
await session.generate('Once upon a time', next).result;
await phase(
  'a session',
  30,
  (signal) => session.generate(' and', { maxTokens: 50, signal }).result,
  works,
);
let large = false;
await phase(
  'setMemoryBudget',
  20,
  (signal) =>
    engine.setMemoryBudget((large = !large) ? memoryBudget : Math.ceil(memoryBudget * 0.9), {
      signal,
    }),
  works,
);
await engine.dispose();
const fresh = () => ({
  memoryBudget,
  contextLength,
  cacheDir: mkdtempSync(join(folder, 'store-')),
});
const header = async () => (await Engine.load(url, fresh())).dispose();
await phase('load', 120, (signal) => Engine.load(url, { ...fresh(), signal }), header);
const options = fresh();
await phase(
  'download',
  150,
  async (signal) => {
    const loaded = await Engine.load(url, { ...options, signal });
    signal.throwIfAborted();
    try {
      await loaded.generate('Once', { temperature: 0, ignoreEos: true, signal }).result;
    } finally {
      loaded.dispose();
    }
  },
  async () => (await Engine.load(url, options)).dispose(),
);
await server.close();
rmSync(folder, { recursive: true, force: true });
