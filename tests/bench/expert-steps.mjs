// What each step of streaming a mixture's experts brings: `sluice bench` with the step and without
// it, one after the other, so that a disk whose rate drifts slows both alike. Every run begins with
// none of the model's file in the page cache. Either each read is evicted, which takes time of its
// own, or the process gets so little memory that the page cache holds little of the file.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inRoot, markdownTable, parseBytes } from '../../web/scripts/lib.mjs';
import { formatTrace, readTrace, syntheticTrace } from './expert-trace.mjs';
import { evict, jsonOf } from './lib.mjs';
import { withinMemory } from './memory-limit.mjs';
import { interval, median } from './statistics.mjs';

const kDirect = ['--direct-io', 'on'];
const kCached = ['--direct-io', 'off'];

/**
 * By name: options of `sluice bench` with the step and without it. Steps that do not concern the way
 * of reading read without the page cache, so that both sides read alike.
 */
export const steps = {
  'direct I/O': { on: kDirect, off: kCached },
  'automatic choice, against the page cache': { on: [], off: kCached },
  'automatic choice, against direct I/O': { on: [], off: kDirect },
  'joined reads': { on: kDirect, off: [...kDirect, '--no-joined-reads'] },
  'experts in memory first': { on: kDirect, off: [...kDirect, '--ascending-experts'] },
  'experts in memory change': { on: kDirect, off: [...kDirect, '--fixed-experts'] },
};

// What a process gets beside the budget if its memory is limited.
const kProcessBytes = 256 * 2 ** 20;

const kRecords = 'the matrices of an expert side by side';

const program = inRoot('build', 'native', 'sluice');
const sluice = (...args) => jsonOf(program, args);

/** The recorded trace if there is one, or a synthetic one that fits the model. */
function traceOf(model, { trace, tokens, skew, reuse, distance }) {
  if (trace) return readTrace(trace);
  const { layers, experts, expertsUsed: used } = model;
  return syntheticTrace({ layers, experts, used, tokens, skew, reuse, distance });
}

/** One run: the values of its row that a step may change. */
async function measure(file, options, limit) {
  evict(file);
  const args = ['bench', file, ...options];
  const [row] = limit
    ? await withinMemory(limit, ([shell, ...words]) => jsonOf(shell, [...words, program, ...args]))
    : await sluice(...args, '--no-page-cache');
  const { decodeTokensPerSecond: tokensPerSecond, bytesPerToken, readsPerToken, directIo } = row;
  const uses = row.expertHits + row.expertMisses;
  const hitRate = uses > 0 ? row.expertHits / uses : 1;
  return { tokensPerSecond, hitRate, bytesPerToken, readsPerToken, directIo };
}

/** Medians of both sides, and of the ratios of neighbouring runs with the interval of all of them. */
export function summarize(step, pairs) {
  const middle = (side, name) => median(pairs.map((pair) => pair[side][name]));
  const ratios = pairs.map(({ on, off }) => on.tokensPerSecond / off.tokensPerSecond);
  const [low, high] = interval(ratios);
  return {
    step,
    tokensPerSecond: middle('on', 'tokensPerSecond'),
    without: middle('off', 'tokensPerSecond'),
    ratio: median(ratios),
    low,
    high,
    directIo: pairs.filter(({ on }) => on.directIo).length / pairs.length,
    hitRate: middle('on', 'hitRate'),
    bytesPerToken: middle('on', 'bytesPerToken'),
    bytesPerTokenWithout: middle('off', 'bytesPerToken'),
    readsPerToken: middle('on', 'readsPerToken'),
    readsPerTokenWithout: middle('off', 'readsPerToken'),
  };
}

/**
 * The rows of all steps under one budget, by default a quarter of the weights; `progress` gets each
 * run as it ends. The order of the two sides alternates. `records`: the same model as a QSF file of
 * `--expert-records`, one more step. `limited`, as root: the process gets 256 MiB more than the budget.
 */
export async function measureSteps(file, options) {
  const { rounds, generate, warmup, threads, ctx, records, limited, progress } = options;
  const size = ['-c', String(ctx), '-t', String(threads)];
  const model = await sluice('info', file, ...size, '--json');
  if (model.experts === 0) throw new Error(`${file} is no mixture of experts`);
  const quarter = Math.max(model.plan.minimum, Math.round(model.plan.total / 4));
  const budget = options.budget === undefined ? quarter : parseBytes(options.budget);
  const limit = limited ? budget + kProcessBytes : 0;
  const folder = mkdtempSync(join(tmpdir(), 'sluice-steps-'));
  const path = join(folder, 'trace.jsonl');
  const tokens = ['-p', '0', '-d', String(warmup), '-n', String(generate), '-r', '1', '-o', 'json'];
  const given = [...size, ...tokens, '--expert-trace', path, '--memory-budget', String(budget)];
  const all = Object.entries(steps).map(([step, sides]) => ({ step, sides, onFile: file }));
  if (records) all.push({ step: kRecords, sides: { on: [], off: [] }, onFile: records });
  const pairs = all.map(() => []);
  try {
    writeFileSync(path, formatTrace(traceOf(model, { ...options, tokens: warmup + generate })));
    for (let round = 0; round < rounds; round++) {
      for (const [i, { step, sides, onFile }] of all.entries()) {
        const pair = {};
        for (const side of round % 2 === 0 ? ['on', 'off'] : ['off', 'on']) {
          const args = [...given, ...sides[side]];
          pair[side] = await measure(side === 'on' ? onFile : file, args, limit);
          progress({ round, step, side, ...pair[side] });
        }
        pairs[i].push(pair);
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return all.map(({ step }, i) => summarize(step, pairs[i]));
}

/** The rows as a Markdown table. */
export function markdown(rows) {
  const rate = (value) => value.toFixed(value < 10 ? 2 : 1);
  const pair = (with_, without, unit = 1) => `${rate(with_ / unit)}, ${rate(without / unit)}`;
  const lines = rows.map((row) => [
    row.step,
    rate(row.tokensPerSecond),
    rate(row.without),
    `${row.ratio.toFixed(2)} (${row.low.toFixed(2)} to ${row.high.toFixed(2)})`,
    pair(row.bytesPerToken, row.bytesPerTokenWithout, 1e6),
    pair(row.readsPerToken, row.readsPerTokenWithout),
    row.directIo.toFixed(2),
  ]);
  const sides = ['tokens/s with', 'without', 'ratio'];
  const counts = ['MB per token', 'reads per token', 'direct I/O'];
  return markdownTable(['Step', ...sides, ...counts], lines);
}
