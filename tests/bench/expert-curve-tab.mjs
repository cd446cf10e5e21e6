// A mixture under a range of budgets in headless Chromium, with the model's own router: tokens per
// second, hit rate, and bytes read per token. The profile is on disk, and the first run stores the
// model there, so weights stream from the model cache. Each budget has a browser of its own.
import { basename, dirname, resolve } from 'node:path';
import { Bench } from './browser.mjs';
import { promptWords } from './lib.mjs';

const kMaxBudget = 4 * 2 ** 30 - 65536; // of a WebAssembly engine

/** In the page: plans the model without a budget, and stores it. */
async function planInTab({ url, ...options }) {
  const { Engine } = await import('/dist/index.js');
  const model = new URL(url, location.href);
  const { plan, experts } = await Engine.inspect(model, options);
  const engine = await Engine.load(model, { ...options, memoryBudget: plan.minimum });
  await engine.downloaded;
  return { minimum: plan.minimum, total: plan.total, experts };
}

/** In the page: rates of `generate` tokens after `warmup` tokens and a prompt. */
async function measureInTab({ url, prompt, warmup, generate, ...options }) {
  const { Engine } = await import('/dist/index.js');
  const model = new URL(url, location.href);
  const { speed } = await Engine.inspect(model, options);
  const engine = await Engine.load(model, options);
  const session = engine.session();
  const run = (text, maxTokens) =>
    session.generate(text, { maxTokens, seed: 1, ignoreEos: true }).result;
  await run(prompt, warmup);
  const before = engine.stats().engine;
  const start = performance.now();
  const { usage } = await run(' the', generate);
  const seconds = (performance.now() - start) / 1000;
  const after = engine.stats().engine;
  const grown = (name) => after[name] - before[name];
  const uses = grown('expertHits') + grown('expertMisses'); // none while all weights are in memory
  return {
    expertsInMemory: speed.expertsInMemory,
    tokensPerSecond: usage.completionTokens / seconds,
    hitRate: uses > 0 ? grown('expertHits') / uses : 1,
    bytesPerToken: grown('filledBytes') / usage.completionTokens,
  };
}

/** The budgets of a curve, at most what a tab can have. */
const budgetsOf = ({ minimum, total }, points) => {
  const most = Math.min(total, kMaxBudget);
  return Array.from({ length: points }, (_, i) =>
    Math.round(minimum + ((most - minimum) * i) / (points - 1)),
  );
};

/**
 * Rows { trace, budget, expertsInMemory, tokensPerSecond, hitRate, bytesPerToken }; `progress` gets
 * each as it is known.
 */
export async function curveInTab(file, options) {
  const { budgets, points, generate, warmup, threads, ctx, progress } = options;
  const bench = await Bench.open([['/model/', dirname(resolve(file))]]);
  const given = { url: `/model/${basename(file)}`, contextLength: ctx, threads };
  try {
    const { result: plan } = await bench.run(planInTab, given);
    if (plan.experts === 0) throw new Error(`${file} is no mixture of experts`);
    const rows = [];
    for (const memoryBudget of budgets ?? budgetsOf(plan, points)) {
      const work = { ...given, memoryBudget, prompt: promptWords(8).join(' '), warmup, generate };
      const { result } = await bench.run(measureInTab, work);
      rows.push({ trace: 'own router, in a tab', budget: memoryBudget, ...result });
      progress(rows.at(-1));
    }
    return rows;
  } finally {
    await bench.close();
  }
}
