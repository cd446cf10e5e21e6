// Answers with and without guesses: n-grams on texts that repeat and on one that does not, and a
// draft model on a target that agrees with it as often as was asked for.
//   node tests/bench/drafts.mjs [--model FILE|SHAPE:TYPE] [--budget 512M] [--past-cache] [--threads 2]
//     [--rounds 3] [--tokens N] [--scenes summary,edit,prose] [--draft SMALLER_MODEL]
// --tokens cuts the answers short. --draft compares on what the model itself writes, without scenes.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { inRoot } from '../../web/scripts/lib.mjs';
import { jsonOf, modelFile, table } from './lib.mjs';
import { scenes } from './scenes.mjs';

const { values: options } = parseArgs({ options: {
  model: { type: 'string', default: 'tinyllama-1.1b:q4_0' }, budget: { type: 'string' }, 'past-cache': { type: 'boolean', default: false },
  threads: { type: 'string', default: '2' }, rounds: { type: 'string', default: '3' }, tokens: { type: 'string', default: '1000' },
  scenes: { type: 'string', default: 'summary,edit,prose' }, draft: { type: 'string' },
} });
const sluice = inRoot('build', 'native', 'sluice');
const model = modelFile(options.model);
const folder = mkdtempSync(join(tmpdir(), 'sluice-drafts-'));

/** Ids of a text, in the vocabulary of Llama 2 where it is there (the models have as many tokens), or the model's own. */
async function ids(text) {
  const file = join(folder, 'text');
  writeFileSync(file, text);
  const vocabulary = inRoot('..', 'shared', 'fixtures', 'tokenizer', 'ggml-vocab-llama-spm.gguf');
  return jsonOf(sluice, ['tokenize', existsSync(vocabulary) ? vocabulary : model, '--text-file', file]);
}

const common = ['--threads', options.threads, '-r', options.rounds, '-o', 'json',
  ...(options.budget ? ['--memory-budget', options.budget] : []), ...(options['past-cache'] ? ['--past-cache'] : [])];
const rows = [['text', 'guesses', 'tokens/s', 'ratio', 'tokens/pass', 'drafted', 'accepted', 'passes']];

async function measure(name, drafts, more) {
  for (const row of await jsonOf(sluice, ['bench', model, '--draft', drafts, ...common, ...more])) {
    rows.push([name, row.draft.split('/').pop(), row.tokensPerSecond, row.ratio, row.tokensPerPass, `${row.draftedTokens}`, `${row.acceptedTokens}`, `${row.passes}`]);
  }
}

try {
  if (options.draft) await measure('its own', `off,${options.draft}`, ['-p', '32', '-n', `${Math.min(options.tokens, 128)}`]);
  else {
    for (const name of options.scenes.split(',')) {
      const scene = join(folder, `${name}.json`);
      const prompt = await ids(scenes[name].prompt);
      const answer = (await ids(scenes[name].answer)).slice(1, 1 + Number(options.tokens));
      writeFileSync(scene, JSON.stringify({ prompt, answer }));
      await measure(name, 'off,ngram', ['--scene', scene]);
    }
  }
} finally {
  rmSync(folder, { recursive: true });
}
console.log(table(rows));
