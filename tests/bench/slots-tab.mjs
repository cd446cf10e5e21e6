// One session and several at once in a headless Chromium tab: tokens a second of all together, behind prompts that
// are computed already, and the time between two tokens of each. One engine with so many slots does both, in turns.
import { basename, dirname, resolve } from 'node:path';
import { statSync } from 'node:fs';
import { chromiumArgs, chromiumPath, inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { at } from './client.mjs';
import { promptWords, table } from './lib.mjs';

// --- in the page (sent there as text) --------------------------------------------------------------

async function load({ url, ...options }) {
  const { Engine } = await import('/dist/index.js');
  globalThis.engine = await Engine.load(new URL(url, location.href), { ...options, cache: 'none' });
  await engine.generate('the mill', { maxTokens: 4, ignoreEos: true }).result; // the weights are there
  return engine.stats();
}

async function measure({ prompts, n }) {
  const sessions = prompts.map(() => engine.session());
  const greedy = { temperature: 0, ignoreEos: true };
  await Promise.all(sessions.map((session, i) => session.generate(prompts[i], { ...greedy, maxTokens: 2 }).result));
  const between = [];
  const start = performance.now();
  const tokens = await Promise.all(sessions.map(async (session) => {
    const generation = session.generate(' the', { ...greedy, maxTokens: n });
    let last = 0;
    for await (const _ of generation) {
      const now = performance.now();
      if (last) between.push(now - last);
      last = now;
    }
    return (await generation.result).usage.completionTokens;
  }));
  const seconds = (performance.now() - start) / 1000;
  await Promise.all(sessions.map((session) => session.dispose()));
  return { rate: tokens.reduce((a, b) => a + b) / seconds, between };
}

// --- here ------------------------------------------------------------------------------------------

export async function measureTab({ file, label, threads, slots, length, most, rounds }) {
  const { chromium } = await import('playwright-core');
  const browser = await chromium.launch({ executablePath: chromiumPath, args: chromiumArgs });
  const server = await serve([['/dist/', inRoot('dist')], ['/model/', dirname(resolve(file))]], {
    onRequest(request, response) {
      if (request.url !== '/') return false;
      response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>bench</title>');
      return true;
    },
  });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    await page.goto(server.url);
    const memoryBudget = Math.min(4 * 2 ** 30 - 65536, Math.ceil(statSync(file).size * 1.3) + 768 * 2 ** 20);
    const { kernels } = await page.evaluate(load, { url: `/model/${basename(file)}`, threads, memoryBudget, contextLength: 4 * length + most + 16, parallel: slots });
    const best = [1, slots].map((sessions) => ({ sessions, rate: 0, between: [] }));
    for (let round = 0; round < rounds; round++) {
      for (const one of best) {
        const prompts = Array.from({ length: one.sessions }, (_, i) => promptWords(length + i).slice(i).join(' '));
        const { rate, between } = await page.evaluate(measure, { prompts, n: most });
        if (rate > one.rate) Object.assign(one, { rate, between });
      }
    }
    console.log(`\n${label}, Chromium, ${kernels}, ${threads} threads, prompts of ${length} words, ${most} tokens each`);
    console.log(table([
      ['sessions', 'tokens/s', 'between: p50 ms', 'p99'],
      ...best.map(({ sessions, rate, between }) => [String(sessions), rate, at(between, 0.5), at(between, 0.99)]),
    ]));
    console.log(`${(best[1].rate / best[0].rate).toFixed(2)} times the tokens a second of one session`);
  } finally {
    await browser.close();
    await server.close();
  }
}
