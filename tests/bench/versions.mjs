// npm run bench:versions: two built checkouts on the same models, in turns. Prints the median of each
// and of the ratio in each round, with the interval that holds the median with a probability of 95 %.
//   npm run bench:versions -- --before DIR [--part native,web] [--model SHAPE:TYPE|FILE]…
//                             [--threads 2] [-p 128] [-n 32] [--rounds 10] [--budget 200M] [--json]
//                             [--before-options '{"cachePrompt":false}']
// DIR has been built by `npm run build`, and so has this checkout. --budget: natively, also under
// this budget. --before-options: of a generation in DIR's package, where their names were others.
import { statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { chromiumArgs, chromiumPath, root } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { jsonOf, modelFile, modelLabel, promptWords, table } from './lib.mjs';
import { fitPrompt, loadOurs, measureOurs } from './ours.mjs';
import { interval, median } from './statistics.mjs';

const { values } = parseArgs({
  options: {
    before: { type: 'string' },
    part: { type: 'string', default: 'native,web' },
    model: {
      type: 'string',
      multiple: true,
      default: ['qwen3-0.6b:q4_0', 'qwen3-0.6b:q4_k_m', 'qwen3-0.6b:q8_0'],
    },
    threads: { type: 'string', default: '2' },
    prompt: { type: 'string', short: 'p', default: '128' },
    generate: { type: 'string', short: 'n', default: '32' },
    rounds: { type: 'string', default: '10' },
    budget: { type: 'string' },
    'before-options': { type: 'string', default: '{"cachePrompt":false}' },
    json: { type: 'boolean' },
  },
});
if (!values.before) throw new Error('--before DIR: the checkout to compare with');
const checkouts = [resolve(values.before), root];
const rounds = Number(values.rounds);
const threads = Number(values.threads);

/** Runs both in turns, the first to run alternating, after a round that does not count. */
async function inTurns(measure) {
  const rates = [[], []];
  for (let round = 0; round <= rounds; round++) {
    const order = round % 2 ? [1, 0] : [0, 1];
    for (const i of order) {
      const rate = await measure(i);
      if (round > 0) rates[i].push(rate);
    }
  }
  return rates;
}

async function native(file, budget) {
  const limit = budget ? ['--memory-budget', budget] : [];
  const sizes = ['-p', values.prompt, '-n', values.generate, '-t', values.threads, '-r', '1'];
  return inTurns(async (i) => {
    const program = join(checkouts[i], 'build', 'native', 'sluice');
    const [row] = await jsonOf(program, ['bench', file, ...sizes, '-o', 'json', ...limit]);
    return { prefill: row.prefillTokensPerSecond, decode: row.decodeTokensPerSecond };
  });
}

/** A page of each checkout, both in one browser. */
async function web(browser, file) {
  const answer = (request, response) => {
    if (request.url !== '/') return false;
    response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>bench</title>');
    return true;
  };
  const servers = await Promise.all(
    checkouts.map((checkout) =>
      serve(
        [
          ['/dist/', join(checkout, 'dist')],
          ['/model/', dirname(resolve(file))],
        ],
        { onRequest: answer },
      ),
    ),
  );
  const pages = [];
  try {
    for (const server of servers) {
      const page = await browser.newPage();
      page.setDefaultTimeout(0);
      await page.goto(server.url);
      await page.evaluate(loadOurs, {
        url: `/model/${basename(file)}`,
        threads,
        budget: Math.ceil(statSync(file).size * 1.3) + 512 * 2 ** 20,
        context: Number(values.prompt) + Number(values.generate) + 64,
        kernels: '',
        kvType: 'f16',
      });
      pages.push(page);
    }
    const words = { words: promptWords(Number(values.prompt)), n: Number(values.prompt) };
    const prompt = await pages[1].evaluate(fitPrompt, words);
    const work = { prompt, n: Number(values.generate) };
    const options = [JSON.parse(values['before-options']), { cachePrompt: false }];
    return await inTurns((i) => pages[i].evaluate(measureOurs, { ...work, options: options[i] }));
  } finally {
    for (const page of pages) await page.close();
    for (const server of servers) await server.close();
  }
}

const results = [];

function report(name, [before, after]) {
  for (const kind of ['prefill', 'decode']) {
    const old = before.map((rate) => rate[kind]);
    const now = after.map((rate) => rate[kind]);
    const ratios = now.map((rate, i) => rate / old[i]);
    const [low, high] = interval(ratios);
    results.push({
      name,
      kind,
      before: median(old),
      after: median(now),
      ratio: median(ratios),
      low,
      high,
    });
    console.error(`  ${name}, ${kind}: ${median(ratios).toFixed(3)}`);
  }
}

const files = values.model.map(modelFile);
if (values.part.includes('native'))
  for (const file of files) {
    report(`native ${modelLabel(file)}`, await native(file));
    if (values.budget)
      report(`native ${modelLabel(file)} in ${values.budget}`, await native(file, values.budget));
  }
if (values.part.includes('web')) {
  const { chromium } = await import('playwright-core');
  const browser = await chromium.launch({ executablePath: chromiumPath, args: chromiumArgs });
  try {
    for (const file of files) report(`Chromium ${modelLabel(file)}`, await web(browser, file));
  } finally {
    await browser.close();
  }
}
if (values.json) console.log(JSON.stringify(results, null, 1));
else
  console.log(
    table([
      ['', 'tokens/s', 'before', 'after', 'ratio', 'interval'],
      ...results.map(({ name, kind, before, after, ratio, low, high }) => [
        name,
        kind,
        before,
        after,
        ratio.toFixed(3),
        `${low.toFixed(3)} to ${high.toFixed(3)}`,
      ]),
    ]),
  );
