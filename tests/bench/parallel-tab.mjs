// One session against parallel sessions in a headless Chromium tab: total decode throughput after
// prompts that are already in the KV cache, and the time between two tokens of a session. One
// engine with `slots` sequences runs both, in turns.
import { basename, dirname, resolve } from 'node:path';
import { statSync } from 'node:fs';
import { Bench } from './browser.mjs';
import { at } from './client.mjs';
import { promptWords, table } from './lib.mjs';

/** In the page: the best round for each list of prompts, with one session per prompt. */
async function measureInTab({ url, prompts, n, rounds, ...options }) {
  const { Engine } = await import('/dist/index.js');
  const engine = await Engine.load(new URL(url, location.href), { ...options, cache: 'none' });
  // Loads the weights.
  await engine.generate('the mill', { maxTokens: 4, ignoreEos: true }).result;
  const greedy = { temperature: 0, ignoreEos: true };
  const best = prompts.map(({ length }) => ({ sessions: length, rate: 0, between: [] }));
  for (let i = 0; i < rounds * prompts.length; i++) {
    const turn = prompts[i % prompts.length];
    const sessions = turn.map(() => engine.session());
    await Promise.all(
      sessions.map((session, j) => session.generate(turn[j], { ...greedy, maxTokens: 2 }).result),
    );
    const between = [];
    const start = performance.now();
    const tokens = await Promise.all(
      sessions.map(async (session) => {
        const generation = session.generate(' the', { ...greedy, maxTokens: n });
        let last = 0;
        for await (const _ of generation) {
          const now = performance.now();
          if (last) between.push(now - last);
          last = now;
        }
        return (await generation.result).usage.completionTokens;
      }),
    );
    const rate = (tokens.reduce((a, b) => a + b) * 1000) / (performance.now() - start);
    await Promise.all(sessions.map((session) => session.dispose()));
    if (rate > best[i % prompts.length].rate)
      Object.assign(best[i % prompts.length], { rate, between });
  }
  return { best, kernels: engine.stats().kernels };
}

export async function measureTab({ file, label, threads, slots, length, most, rounds }) {
  const bench = await Bench.open([['/model/', dirname(resolve(file))]]);
  try {
    const memoryBudget = Math.min(
      4 * 2 ** 30 - 65536,
      Math.ceil(statSync(file).size * 1.3) + 768 * 2 ** 20,
    );
    const prompts = [1, slots].map((sessions) =>
      Array.from({ length: sessions }, (_, i) =>
        promptWords(length + i)
          .slice(i)
          .join(' '),
      ),
    );
    const {
      result: { best, kernels },
    } = await bench.run(measureInTab, {
      url: `/model/${basename(file)}`,
      prompts,
      n: most,
      rounds,
      threads,
      memoryBudget,
      contextLength: 4 * length + most + 16,
      parallel: slots,
    });
    console.log(
      `\n${label}, Chromium, ${kernels}, ${threads} threads, prompts of ${length} words, ${most} tokens each`,
    );
    console.log(
      table([
        ['sessions', 'tokens/s', 'between: p50 ms', 'p99'],
        ...best.map(({ sessions, rate, between }) => [
          String(sessions),
          rate,
          at(between, 0.5),
          at(between, 0.99),
        ]),
      ]),
    );
    console.log(`${(best[1].rate / best[0].rate).toFixed(2)} times the throughput of one session`);
  } finally {
    await bench.close();
  }
}
