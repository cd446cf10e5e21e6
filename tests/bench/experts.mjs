// npm run bench:experts: hit rates of cache policies for traces of a router's choices, against
// Belady's rule, which knows the future; and synthetic traces for `sluice bench --expert-trace`.
//   npm run bench:experts -- replay TRACE… [--shares 0.125,0.25,0.5] [--policies lru,lfu,lrfu,…]
//                            [--warmup 64] [--json]
//   npm run bench:experts -- make FILE [--layers 24] [--experts 32] [--used 4] [--tokens 512]
//                            [--skew 0] [--reuse 0] [--distance 1] [--seed 1]
// `measured` is the engine's rule (src/residency/expert_cache.h); `static` never changes what is in
// memory. Shares are those of all experts that fit in memory.
import { writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { policies, simulate } from './expert-policies.mjs';
import { formatTrace, readTrace, syntheticTrace } from './expert-trace.mjs';
import { table } from './lib.mjs';

const kMakeOptions = ['layers', 'experts', 'used', 'tokens', 'skew', 'reuse', 'distance', 'seed'];
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    layers: { type: 'string', default: '24' },
    experts: { type: 'string', default: '32' },
    used: { type: 'string', default: '4' },
    tokens: { type: 'string', default: '512' },
    skew: { type: 'string', default: '0' },
    reuse: { type: 'string', default: '0' },
    distance: { type: 'string', default: '1' },
    seed: { type: 'string', default: '1' },
    shares: { type: 'string', default: '0.125,0.25,0.5' },
    policies: { type: 'string', default: Object.keys(policies).join() },
    warmup: { type: 'string', default: '64' },
    json: { type: 'boolean' },
  },
});

function make([file]) {
  const options = Object.fromEntries(kMakeOptions.map((name) => [name, Number(values[name])]));
  writeFileSync(file, formatTrace(syntheticTrace(options)));
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
  if (values.json) {
    console.log(JSON.stringify(rows, null, 2));
    return;
  }
  const cell = (value) => (typeof value === 'number' ? String(Number(value.toFixed(3))) : value);
  console.log(table([Object.keys(rows[0]), ...rows.map((row) => Object.values(row).map(cell))]));
}

const [command, ...files] = positionals;
if (command === 'make' && files.length === 1) make(files);
else if (command === 'replay' && files.length > 0) replay(files);
else throw new Error('usage: replay TRACE… or make FILE; options are in the head of this script');
