// What the benchmarks share: models of published shapes with random weights, made on first use
// (speed does not depend on the values), and tables. Both sides of a ratio run in turns in the same
// run, and the best of several rounds counts, so a busy machine affects both alike.
import { existsSync, mkdirSync, renameSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { cmakeBuild } from '../../web/scripts/wasm.mjs';
import { capture, inRoot, run } from '../../web/scripts/lib.mjs';
import { withinMemory } from './memory-limit.mjs';

process.env.SLUICE_CACHE ??= 'none'; // not the user's

export const modelFolder = process.env.SLUICE_BENCH_MODELS ?? inRoot('.cache', 'bench');

/**
 * Path of a model: SHAPE:TYPE, such as 'tinyllama-1.1b:q4_0', is made on first use; a path is
 * returned unchanged.
 */
export function modelFile(name) {
  if (!/^[\w.-]+:\w+$/.test(name)) {
    if (!existsSync(name)) throw new Error(`${name}: no such file, and not SHAPE:TYPE`);
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

/** n words, which are at least n tokens in any vocabulary. */
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

/** Formats rows (arrays of cells, the first is the header) as text. Numbers are right-aligned. */
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
 * Runs the measures in turns for `rounds` rounds, by default after one warm-up round. Returns the
 * best rates of each.
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

/** Runs a program and parses the JSON at the end of its output. */
export async function jsonOf(command, args) {
  const { code, output } = await capture(command, args.map(String));
  if (code !== 0) throw new Error(`${command} exited with status ${code}\n${output.slice(-2000)}`);
  return JSON.parse(output.slice(output.search(/^[[{]/m)));
}

const peerFolder = inRoot('tests', 'bench', 'baselines');

/** Installs the programs that the benchmarks compare with, once. */
export function installPeer(name) {
  if (existsSync(join(peerFolder, 'node_modules', name))) return;
  // Without optional packages: llama.cpp's are the same library for GPUs, hundreds of megabytes.
  run(
    'npm',
    ['install', '--no-package-lock', '--omit=optional', '--ignore-scripts', '--loglevel=error'],
    { cwd: peerFolder },
  );
}

/**
 * Measures native llama.cpp: { prefill, decode } in tokens per second, the best of `repeats` runs.
 */
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
    threads,
    nPrompt,
    nGenerate,
    repeats,
    kvType,
  ]);

/** Evicts a file's pages from the page cache. */
export const evict = (file) => run('dd', [`if=${file}`, 'iflag=nocache', 'count=0', 'status=none']);

/**
 * Measures llama.cpp's decode with the model mapped from its file, which nothing has cached before,
 * in a process that gets `limit` bytes of memory, pages of the file included: tokens per second.
 */
export async function measureMappedLlama(file, { limit, threads, warmup, generate }) {
  evict(file);
  const command = ['python3', `${peerFolder}/mapped.py`, file, threads, warmup, generate];
  const { decode } = await withinMemory(limit, ([shell, ...words]) =>
    jsonOf(shell, [...words, ...command]),
  );
  return decode;
}
