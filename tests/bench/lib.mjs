// What the benchmarks share: models of published shapes with random weights, made on the first use
// (speed does not depend on the values), and tables. Both sides of a ratio are measured in turns in
// the same run, and the best of several rounds counts, so that a busy machine hurts both alike.
import { existsSync, mkdirSync, renameSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { cmakeBuild } from '../../web/scripts/wasm.mjs';
import { capture, inRoot, run } from '../../web/scripts/lib.mjs';

export const modelFolder = process.env.SLUICE_BENCH_MODELS ?? inRoot('.cache', 'bench');

/** 'tinyllama-1.1b:q4_0' → the path of such a model; a path stays what it is. */
export function modelFile(name) {
  if (!/^[\w.-]+:\w+$/.test(name)) {
    if (!existsSync(name)) throw new Error(`${name}: no such file (nor SHAPE:TYPE)`);
    return name;
  }
  const [shape, type] = name.split(':');
  const file = join(modelFolder, `${shape}-${type}.gguf`);
  if (!existsSync(file)) {
    mkdirSync(modelFolder, { recursive: true });
    cmakeBuild('native', { targets: ['sluice-make-model'] });
    run(inRoot('build', 'native', 'sluice-make-model'), [
      '--quiet',
      '-s',
      shape,
      '-t',
      type,
      `${file}.part`,
    ]);
    renameSync(`${file}.part`, file);
  }
  return file;
}

export const modelLabel = (file) =>
  `${basename(file, '.gguf')} (${(statSync(file).size / 2 ** 20).toFixed(0)} MB)`;

/** n words: at least n tokens in any vocabulary. */
export function promptWords(n) {
  const words = [
    'the',
    'river',
    'ran',
    'past',
    'a',
    'small',
    'mill',
    'and',
    'turned',
    'its',
    'wheel',
  ];
  return Array.from({ length: n }, (_, i) => words[(i * 7) % words.length]);
}

/** rows: arrays of cells; the first one is the head. Numbers are right-aligned. */
export function table(rows) {
  const text = rows.map((row) =>
    row.map((c) => (typeof c === 'number' ? c.toFixed(c < 100 ? 2 : 0) : String(c))),
  );
  const width = text[0].map((_, i) => Math.max(...text.map((row) => row[i].length)));
  const line = (row, r) =>
    row
      .map((cell, i) =>
        r > 0 && typeof rows[r][i] === 'number' ? cell.padStart(width[i]) : cell.padEnd(width[i]),
      )
      .join('  ');
  return text.map((row, r) => line(row, r).trimEnd()).join('\n');
}

/**
 * Runs measures in turns, `rounds` times after one warm-up, where that is wanted; keeps the best
 * rates of each.
 */
export async function inTurns(measures, rounds, warmUp = true) {
  const best = measures.map(() => ({ prefill: 0, decode: 0 }));
  for (let round = warmUp ? 0 : 1; round <= rounds; round++) {
    for (const [i, measure] of measures.entries()) {
      const { prefill, decode, ...rest } = await measure();
      if (round === 0) continue;
      best[i] = {
        ...rest,
        prefill: Math.max(best[i].prefill, prefill),
        decode: Math.max(best[i].decode, decode),
      };
    }
  }
  return best;
}

/** The JSON that a program prints last. */
export async function jsonOf(command, args) {
  const { code, output } = await capture(command, args);
  if (code !== 0) throw new Error(`${command} ended with ${code}\n${output.slice(-2000)}`);
  return JSON.parse(output.slice(output.search(/^[[{]/m)));
}

const peerFolder = inRoot('tests', 'bench', 'baselines');

/** Installs what the benchmarks compare with, once. */
export function installPeer(name) {
  if (existsSync(join(peerFolder, 'node_modules', name))) return;
  // Without the optional packages: of llama.cpp they are the same library for GPUs, hundreds of
  // megabytes.
  run(
    'npm',
    ['install', '--no-package-lock', '--omit=optional', '--ignore-scripts', '--loglevel=error'],
    { cwd: peerFolder },
  );
}

/** llama.cpp natively: { prefill, decode } in tokens per second, the best of two runs. */
export const measureLlama = (
  file,
  threads,
  nPrompt,
  nGenerate,
  { repeats = 2, kvType = 'f16' } = {},
) =>
  jsonOf(process.execPath, [
    `${peerFolder}/llama.mjs`,
    file,
    String(threads),
    nPrompt,
    nGenerate,
    String(repeats),
    kvType,
  ]);
