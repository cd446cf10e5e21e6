// A mixture under budgets from the smallest to all of its weights, natively, with replayed traces
// of a router's choices: tokens per second, hit rate, that of the oracle (Belady's rule), and bytes
// read per token. Beside it llama.cpp, whose model is mapped, in a process with that much memory.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inRoot } from '../../web/scripts/lib.mjs';
import { simulate } from './expert-policies.mjs';
import { formatTrace, readTrace, syntheticTrace } from './expert-trace.mjs';
import { jsonOf, measureMappedLlama } from './lib.mjs';

// What a process of llama.cpp gets beside the budget: Python, the library, buffers of a forward pass.
const kProcessBytes = 256 * 2 ** 20;

const sluice = (...args) => jsonOf(inRoot('build', 'native', 'sluice'), args);

const kLlama = 'llama.cpp, mapped, own router';

/** `points` budgets in equal steps: the smallest that works, …, one that holds everything. */
export const budgetsOf = ({ minimum, total }, points) =>
  Array.from({ length: points }, (_, i) =>
    Math.round(minimum + ((total - minimum) * i) / (points - 1)),
  );

/** What the engine's cache sees: `count` tokens of `layers` layers, from the trace's first token. */
export function unrolled({ layers: own, tokens, ...rest }, layers, count) {
  return {
    ...rest,
    layers,
    tokens: Array.from({ length: count }, (_, t) => {
      const token = tokens[t % tokens.length];
      return Array.from({ length: layers }, (_, layer) => token[layer % own]);
    }),
  };
}

/** By name: uniform routing, the recorded trace if there is one, and a synthetic trace. */
function tracesOf(
  { layers, experts, expertsUsed: used },
  { trace, tokens, skew, reuse, distance },
) {
  const shape = { layers, experts, used, tokens };
  return {
    uniform: syntheticTrace(shape),
    ...(trace && { recorded: readTrace(trace) }),
    [`skew ${skew}, reuse ${reuse}, distance ${distance}`]: syntheticTrace({
      ...shape,
      skew,
      reuse,
      distance,
    }),
  };
}

/** One row: the model under a budget, with the trace in a file. */
async function measure(plan, { trace, path, share, generate, warmup, bench }) {
  const [row] = await sluice('bench', ...plan, ...bench, '--expert-trace', path);
  const uses = row.expertHits + row.expertMisses; // none while all weights are in memory
  const layers = Math.round(uses / (generate * trace.used));
  const seen = unrolled(trace, layers, warmup + generate);
  const capacity = Math.round(share * layers * trace.experts);
  return {
    tokensPerSecond: row.decodeTokensPerSecond,
    hitRate: uses > 0 ? row.expertHits / uses : 1,
    oracle: uses > 0 ? simulate(seen, 'belady', capacity, warmup).hitRate : 1,
    bytesPerToken: row.bytesPerToken,
    directIo: row.directIo,
    readsPerToken: row.readsPerToken,
    bytesPerRead: row.bytesPerRead,
    readRate: row.cacheBytesPerSecond,
  };
}

/**
 * The rows of all traces under all budgets: { trace, budget, expertsInMemory, tokensPerSecond,
 * hitRate, oracle, bytesPerToken, directIo, readsPerToken, bytesPerRead, readRate }, rates in bytes
 * per second. The first `warmup` tokens of a trace are a prompt; then `generate` tokens are measured.
 * `progress` gets each row as it is known. With `llama` a row of each budget is llama.cpp's.
 */
export async function curve(model, options) {
  const { points, generate, warmup, threads, ctx, noPageCache, llama, progress } = options;
  const size = [model, '-c', String(ctx), '-t', String(threads)];
  const whole = await sluice('info', ...size, '--json');
  if (whole.experts === 0) throw new Error(`${model} is no mixture of experts`);
  const tokens = ['-p', '0', '-d', String(warmup), '-n', String(generate)];
  const bench = [...tokens, '-r', '1', '-o', 'json', ...(options.benchOptions ?? [])];
  if (noPageCache) bench.push('--no-page-cache');
  const folder = mkdtempSync(join(tmpdir(), 'sluice-curve-'));
  const rows = [];
  const add = (row) => {
    rows.push(row);
    progress(row);
  };
  try {
    const traces = Object.entries(tracesOf(whole, { ...options, tokens: warmup + generate }));
    traces.forEach(([, trace], i) => writeFileSync(join(folder, `${i}.jsonl`), formatTrace(trace)));
    for (const budget of options.budgets ?? budgetsOf(whole.plan, points)) {
      const plan = [...size, '--memory-budget', String(budget)];
      const { expertsInMemory } = (await sluice('info', ...plan, '--json')).speed;
      for (const [i, [name, trace]] of traces.entries()) {
        const path = join(folder, `${i}.jsonl`);
        const given = { trace, path, share: expertsInMemory, generate, warmup, bench };
        add({ trace: name, budget, expertsInMemory, ...(await measure(plan, given)) });
      }
      if (llama) {
        const limit = budget + kProcessBytes;
        const given = { limit, threads, warmup, generate };
        add({ trace: kLlama, budget, tokensPerSecond: await measureMappedLlama(model, given) });
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return rows;
}
