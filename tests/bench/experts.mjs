// npm run bench:experts: hit rates of cache policies for traces of a router's choices, against
// Belady's rule, which knows the future; synthetic traces for `sluice bench --expert-trace`; a
// mixture's speed under budgets from the smallest to all of its weights, and with and without each
// step of streaming; and the rate at which the device of a file serves random reads.
//   npm run bench:experts -- replay TRACE… [--shares 0.125,0.25,0.5] [--policies lru,lfu,lrfu,…]
//                            [--warmup 64] [--json]
//   npm run bench:experts -- make FILE [--layers 24] [--experts 32] [--used 4] [--tokens 512]
//                            [--skew 0] [--reuse 0] [--distance 1] [--seed 1]
//   npm run bench:experts -- curve MODEL [--trace FILE] [--points 10 | --budgets B,…] [-n 64]
//                            [--warmup 64] [--threads 2] [--ctx 512] [--skew 0.5] [--reuse 0.6]
//                            [--distance 4] [--no-page-cache] [--bench OPTIONS] [--llama] [--json]
//   npm run bench:experts -- curve MODEL --web [--points 10 | --budgets B,…] [-n 64] [--warmup 64]
//                            [--threads 2] [--ctx 512] [--json]
//   npm run bench:experts -- steps MODEL [--budget B] [--trace FILE] [--records FILE.qsf] [-n 64]
//                            [--rounds 3] [--warmup 64] [--threads 2] [--ctx 512] [--skew 0.5]
//                            [--reuse 0.6] [--distance 4] [--limited] [--out FILE.json] [--json]
//   npm run bench:experts -- device FILE [--sizes 64K,256K,1M,4M] [--depths 1,2,4,8,16]
//                            [--seconds 1] [--json]
//   npm run bench:experts -- device --web [--bytes 1024M] [--sizes …] [--depths …] [--json]
// `measured` is the engine's rule (src/residency/expert_cache.h); `static` never changes what is in
// memory. Shares are those of all experts that fit in memory; budgets are in bytes. `curve` replays
// uniform routing, the recorded trace FILE, and a synthetic trace; in a Chromium tab, with --web, the
// model's own router chooses. --llama, as root, adds llama.cpp with its own router, its model mapped,
// in a process that gets no more memory. MODEL is a file or SHAPE:TYPE. --bench passes options to
// `sluice bench`, such as "--direct-io off". Rows appear on stderr as they are measured. `steps`
// prints a Markdown table of medians and ratios, and --out saves the rows as JSON. Its budget is as
// of `sluice`, such as 3G, and a quarter of the weights by default. With --limited, as root, the
// process gets little more memory than that, instead of reads that are evicted. `device` reads
// without the page cache, with as many reads in flight as the depth. With --web, a Chromium tab
// stores a file, and as many workers as the depth read it with a cold page cache.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { inRoot, parseBytes } from '../../web/scripts/lib.mjs';
import { curveInTab } from './expert-curve-tab.mjs';
import { curve } from './expert-curve.mjs';
import { deviceInTab } from './expert-device-tab.mjs';
import { markdown, measureSteps } from './expert-steps.mjs';
import { policies, simulate } from './expert-policies.mjs';
import { formatTrace, readTrace, syntheticTrace } from './expert-trace.mjs';
import { installPeer, modelFile, table } from './lib.mjs';

const kMakeOptions = ['layers', 'experts', 'used', 'tokens', 'skew', 'reuse', 'distance', 'seed'];
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    layers: { type: 'string', default: '24' },
    experts: { type: 'string', default: '32' },
    used: { type: 'string', default: '4' },
    tokens: { type: 'string', default: '512' },
    skew: { type: 'string' },
    reuse: { type: 'string' },
    distance: { type: 'string' },
    seed: { type: 'string', default: '1' },
    shares: { type: 'string', default: '0.125,0.25,0.5' },
    policies: { type: 'string', default: Object.keys(policies).join() },
    warmup: { type: 'string', default: '64' },
    trace: { type: 'string' },
    points: { type: 'string', default: '10' },
    budgets: { type: 'string' },
    generate: { type: 'string', short: 'n', default: '64' },
    threads: { type: 'string', default: '2' },
    ctx: { type: 'string', default: '512' },
    'no-page-cache': { type: 'boolean' },
    bench: { type: 'string', default: '' },
    budget: { type: 'string' },
    records: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    out: { type: 'string' },
    limited: { type: 'boolean' },
    sizes: { type: 'string', default: '64K,256K,1M,4M' },
    depths: { type: 'string', default: '1,2,4,8,16' },
    seconds: { type: 'string', default: '1' },
    bytes: { type: 'string', default: '1024M' },
    llama: { type: 'boolean' },
    web: { type: 'boolean' },
    json: { type: 'boolean' },
  },
});

/** The options of these names as numbers, with defaults for those that are not given. */
const numbers = (names, defaults = {}) =>
  Object.fromEntries(names.map((name) => [name, Number(values[name] ?? defaults[name])]));

function make([file]) {
  const habits = { skew: 0, reuse: 0, distance: 1 };
  writeFileSync(file, formatTrace(syntheticTrace(numbers(kMakeOptions, habits))));
}

function print(rows) {
  if (values.json) {
    console.log(JSON.stringify(rows, null, 2));
    return;
  }
  const cell = (value) => (typeof value === 'number' ? String(Number(value.toFixed(3))) : value);
  const columns = Object.keys(rows[0]);
  console.log(table([columns, ...rows.map((row) => columns.map((name) => cell(row[name] ?? '')))]));
}

function replay(files) {
  const rows = [];
  for (const file of files) {
    const trace = readTrace(file);
    for (const share of values.shares.split(',').map(Number)) {
      const capacity = Math.round(share * trace.layers * trace.experts);
      const row = { trace: basename(file), share, capacity };
      for (const policy of values.policies.split(',')) {
        row[policy] = simulate(trace, policy, capacity, Number(values.warmup)).hitRate;
      }
      rows.push(row);
    }
  }
  print(rows);
}

/** Of a synthetic trace whose tokens repeat experts. */
const repeating = () =>
  numbers(['skew', 'reuse', 'distance'], { skew: 0.5, reuse: 0.6, distance: 4 });

const progress = (row) => console.error(JSON.stringify(row));

async function measureCurve([name]) {
  const counts = numbers(['points', 'generate', 'warmup', 'threads', 'ctx']);
  const { trace, 'no-page-cache': noPageCache, llama } = values;
  const benchOptions = values.bench.split(' ').filter((option) => option !== '');
  counts.budgets = values.budgets?.split(',').map(Number);
  if (llama) installPeer('node-llama-cpp');
  if (!(counts.points >= 2)) throw new Error('a curve has at least 2 points');
  if (values.web) {
    print(await curveInTab(modelFile(name), { ...counts, progress }));
    return;
  }
  if (!trace) console.error('without --trace FILE there is no recorded trace');
  const given = { ...counts, ...repeating(), trace, noPageCache, benchOptions, llama, progress };
  print(await curve(modelFile(name), given));
}

async function compareSteps([name]) {
  const counts = numbers(['rounds', 'generate', 'warmup', 'threads', 'ctx']);
  if (!(counts.rounds >= 1)) throw new Error('there is at least 1 round');
  const { budget, trace, records, limited } = values;
  const given = { ...counts, ...repeating(), budget, trace, records, limited, progress };
  const rows = await measureSteps(modelFile(name), given);
  if (values.out) writeFileSync(values.out, `${JSON.stringify(rows, null, 2)}\n`);
  if (values.json) print(rows);
  else console.log(markdown(rows));
}

/** Bytes of a size such as 64K: blocks of the device. */
function bytesOf(size) {
  const bytes = parseBytes(size);
  if (!(bytes > 0) || bytes % 4096 !== 0) throw new Error(`${size} is no multiple of 4K`);
  return bytes;
}

async function measureDevice([file]) {
  const sizes = values.sizes.split(',').map(bytesOf);
  const depths = values.depths.split(',').map(Number);
  if (!depths.every((depth) => depth >= 1)) throw new Error('a depth is at least 1');
  if (values.web) {
    print(await deviceInTab({ bytes: bytesOf(values.bytes), sizes, depths }));
    return;
  }
  const script = inRoot('tests', 'bench', 'device-reads.py');
  const args = [script, file, values.seconds, sizes.join(), depths.join()];
  const lines = execFileSync('python3', args, { encoding: 'utf8' }).trim().split('\n');
  print(lines.map((line) => JSON.parse(line)));
}

const [command, ...files] = positionals;
if (command === 'make' && files.length === 1) make(files);
else if (command === 'replay' && files.length > 0) replay(files);
else if (command === 'curve' && files.length === 1) await measureCurve(files);
else if (command === 'steps' && files.length === 1) await compareSteps(files);
else if (command === 'device' && files.length === (values.web ? 0 : 1)) await measureDevice(files);
else
  throw new Error(
    'usage: replay TRACE…, make FILE, curve MODEL, steps MODEL, device FILE or device --web; options are in the head of this script',
  );
