// Runs real models, which are too large for the repository: each GGUF file of a directory is loaded,
// generates, and is compared with llama.cpp where its programs are. Prints a table; the exit status
// is 1 if a model failed or disagrees.
//   node tests/real-models.mjs DIR [--llama-cpp DIR] [--memory-budget 512M]
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { inRoot } from '../web/scripts/lib.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { 'llama-cpp': { type: 'string' }, 'memory-budget': { type: 'string' } },
});
const [folder] = positionals;
const program = inRoot('build', 'native', 'sluice');
if (!folder || !existsSync(folder)) throw new Error('give a directory of GGUF files');
if (!existsSync(program))
  throw new Error('build/native/sluice is missing: npm run build -- native');
const budget = values['memory-budget'] ? ['--memory-budget', values['memory-budget']] : [];

function sluice(...args) {
  const { status, stdout, stderr } = spawnSync(program, args, {
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  return { status, stdout, error: stderr.trim().split('\n').at(-1) };
}

/** One line of the table, and whether all went well. */
function tryModel(path) {
  const run = sluice(
    'run',
    path,
    ...budget,
    '-p',
    'The capital of France is',
    '-n',
    '32',
    '--json',
  );
  if (run.status !== 0) return { ok: false, loads: run.error };
  const { generatedTokens, generateMs } = JSON.parse(run.stdout);
  const row = { loads: 'yes', 'tokens/s': (generatedTokens / (generateMs / 1000)).toFixed(1) };
  const where = values['llama-cpp'] ? ['--llama-cpp', values['llama-cpp']] : [];
  const compared = sluice('compare', path, ...budget, ...where, '--json');
  if (compared.status === 2) {
    const absent = compared.error.includes('there is no llama-perplexity');
    return { ok: absent, ...row, 'llama.cpp': absent ? 'not found' : compared.error };
  }
  const { greedy, logits, perplexity, speed, disagrees } = JSON.parse(compared.stdout);
  const equal = greedy.reduce((sum, each) => sum + each.equalTokens, 0);
  const all = greedy.reduce((sum, each) => sum + each.tokens, 0);
  return {
    ok: compared.status === 0,
    ...row,
    'llama.cpp': disagrees.length ? disagrees.join('; ') : 'agrees',
    'greedy tokens': `${equal} of ${all}`,
    'KL divergence': logits.meanKl.toExponential(1),
    perplexity: `${perplexity.ours.toFixed(3)}, ${perplexity.other.toFixed(3)}`,
    'its tokens/s': speed.other?.decodeTokensPerSecond.toFixed(1) ?? '-',
  };
}

const files = readdirSync(folder)
  .filter((name) => /\.gguf$/i.test(name) && !/-(?!00001)\d{5}-of-\d{5}\.gguf$/i.test(name))
  .sort();
if (!files.length) throw new Error(`${folder} has no GGUF files`);
const rows = {};
for (const name of files) {
  const { ok, ...row } = tryModel(join(folder, name));
  rows[name] = row;
  if (!ok) process.exitCode = 1;
  console.error(`${name}: ${ok ? 'ok' : 'failed'}`);
}
console.table(rows);
