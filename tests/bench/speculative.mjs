// npm run bench:speculative: decoding with and without speculative decoding. N-grams run on texts
// that repeat and on one that does not; a draft model runs with a target that accepts as often as
// it was made to.
//   node tests/bench/speculative.mjs [--model FILE|SHAPE:TYPE] [--budget 512M] [--no-page-cache] [--threads 2]
//     [--rounds 3] [--tokens N] [--prompts summary,edit,prose] [--draft SMALLER_MODEL] [--tab]
// --tokens limits the completions, and is the length of a model's own text (128). --draft compares
// on what the model itself generates, without the prompts. --tab does so in Chromium with the built
// package: without drafts, with n-grams and, with --draft, with that model. --budget may then be a
// list; 0 is enough for all weights. Streamed weights come from the browser's model cache.
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

import { inRoot, parseBytes } from '../../web/scripts/lib.mjs';
import { Bench } from './browser.mjs';
import { jsonOf, modelFile, table } from './lib.mjs';
import { prompts } from './prompts.mjs';

const { values: options } = parseArgs({
  options: {
    model: { type: 'string', default: 'tinyllama-1.1b:q4_0' },
    budget: { type: 'string' },
    'no-page-cache': { type: 'boolean', default: false },
    threads: { type: 'string', default: '2' },
    rounds: { type: 'string', default: '3' },
    tokens: { type: 'string' },
    prompts: { type: 'string', default: 'summary,edit,prose' },
    draft: { type: 'string' },
    tab: { type: 'boolean' },
  },
});
const sluice = inRoot('build', 'native', 'sluice');
const model = modelFile(options.model);
const folder = mkdtempSync(join(tmpdir(), 'sluice-drafts-'));

/**
 * Token ids of a text, in Llama 2's vocabulary if that file exists (the models have as many
 * tokens), else in the model's own.
 */
async function ids(text) {
  const file = join(folder, 'text');
  writeFileSync(file, text);
  const vocabulary = inRoot('..', 'shared', 'fixtures', 'tokenizer', 'ggml-vocab-llama-spm.gguf');
  return jsonOf(sluice, ['tokenize', existsSync(vocabulary) ? vocabulary : model, '--file', file]);
}

const common = [
  '--threads',
  options.threads,
  '-r',
  options.rounds,
  '-o',
  'json',
  ...(options.budget ? ['--memory-budget', options.budget] : []),
  ...(options['no-page-cache'] ? ['--no-page-cache'] : []),
];
const rows = [
  ['text', 'draft', 'tokens/s', 'ratio', 'tokens/pass', 'drafted', 'accepted', 'passes'],
];

async function measure(name, drafts, more) {
  for (const row of await jsonOf(sluice, ['bench', model, '--draft', drafts, ...common, ...more])) {
    rows.push([
      name,
      row.draft.split('/').pop(),
      row.tokensPerSecond,
      row.ratio,
      row.tokensPerPass,
      `${row.draftedTokens}`,
      `${row.acceptedTokens}`,
      `${row.forwardPasses}`,
    ]);
  }
}

const kPrompt = 32;
const nTokens = Number(options.tokens ?? 128); // length of a model's own text

/** In the page: the best of `rounds` generations from the prompt that the native program takes. */
async function answerInTab({ url, draft, memoryBudget, threads, prompt, tokens, rounds }) {
  const { Engine } = await import('/dist/index.js');
  const contextLength = prompt + tokens + 1;
  const at = (address) => new URL(address, location.href).href;
  const engine = await Engine.load(at(url), {
    memoryBudget,
    threads,
    contextLength,
    draft: draft !== '' && (draft === 'ngram' ? draft : at(draft)),
  });
  await engine.downloaded;
  const ids = Array.from({ length: prompt }, (_, i) => (i * 7919 + 13) % 251);
  const told = () => new Promise((later) => setTimeout(() => later(engine.stats()), 200));
  let best;
  for (let round = 0; round <= rounds; round++) {
    // Round 0 loads the weights.
    const before = await told();
    const { usage, timings } = await engine.generate(ids, {
      maxTokens: tokens,
      temperature: 0,
      ignoreEos: true,
      cachePrompt: false,
    }).result;
    const after = await told();
    const [draftedTokens, acceptedTokens, forwardPasses] = [
      'draftedTokens',
      'acceptedTokens',
      'forwardPasses',
    ].map((name) => after[name] - before[name]);
    const rate = ((usage.completionTokens - 1) * 1000) / timings.generateMs;
    const tokensPerPass =
      (usage.completionTokens - 1) / (usage.completionTokens - 1 - acceptedTokens);
    if (round > 0 && !(best?.rate >= rate))
      best = { rate, tokensPerPass, draftedTokens, acceptedTokens, forwardPasses };
  }
  const { heap, draft: held } = engine.memory();
  const { kernels, threads: used } = engine.stats();
  await engine.dispose();
  return { ...best, heap, held, kernels, threads: used };
}

async function measureTab() {
  const small = options.draft && modelFile(options.draft);
  const bench = await Bench.open([
    ['/model/', dirname(resolve(model))],
    ...(small ? [['/draft/', dirname(resolve(small))]] : []),
  ]);
  const size = statSync(model).size + (small ? statSync(small).size : 0);
  const whole = Math.min(2 ** 32 - 65536, Math.ceil(1.3 * size) + 512 * 2 ** 20);
  try {
    for (const budget of (options.budget ?? '0').split(',')) {
      let plain;
      for (const draft of ['', 'ngram', ...(small ? [`/draft/${basename(small)}`] : [])]) {
        const { result } = await bench.run(answerInTab, {
          url: `/model/${basename(model)}`,
          draft,
          memoryBudget: parseBytes(budget) || whole,
          threads: Number(options.threads),
          prompt: kPrompt,
          tokens: nTokens,
          rounds: Number(options.rounds),
        });
        plain ??= result.rate;
        rows.push([
          `its own, ${budget === '0' ? 'resident' : budget}`,
          draft.split('/').pop() || 'off',
          result.rate,
          result.rate / plain,
          result.tokensPerPass,
          `${result.draftedTokens}`,
          `${result.acceptedTokens}`,
          `${result.forwardPasses}`,
        ]);
        console.error(
          `  ${rows.at(-1).slice(0, 3).join(' ')} (${result.kernels}, ${result.threads} thread(s), heap ${(result.heap / 1e6).toFixed(0)} MB, draft ${(result.held / 1e6).toFixed(0)} MB)`,
        );
      }
    }
  } finally {
    await bench.close();
  }
}

try {
  if (options.tab) await measureTab();
  else if (options.draft)
    await measure('its own', `off,${options.draft}`, ['-p', `${kPrompt}`, '-n', `${nTokens}`]);
  else {
    for (const name of options.prompts.split(',')) {
      const replay = join(folder, `${name}.json`);
      const prompt = await ids(prompts[name].prompt);
      const answer = (await ids(prompts[name].answer)).slice(1, 1 + Number(options.tokens ?? 1000));
      writeFileSync(replay, JSON.stringify({ prompt, answer }));
      await measure(name, 'off,ngram', ['--replay', replay]);
    }
  }
} finally {
  rmSync(folder, { recursive: true });
}
console.log(table(rows));
