// npm run bench:convert: what `sluice convert` makes of a trained model. For each type and mixture: the
// file's bytes, the mean squared error of its weights, and against the model itself on a held-out text the
// normalized error of logits, perplexity and the divergence of the next token's distribution (KL, nats a
// token). Then --target-size at the sizes of five mixtures, with a calibration on the other half of the text
// and without, by perplexity. Where a program `llama-quantize` is given, its files are measured alike.
//   npm run bench:convert -- [--model FILE] [--text FILE] [--tokens 400] [--types a,b,…] [--sizes a,b,…]
//                            [--llama-quantize PROGRAM] [--no-build]
// PROGRAM IN OUT TYPE is what is called; tests/bench/peer/quantize.py is llama.cpp's library so.
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cmakeBuild } from '../../web/scripts/build.mjs';
import { inRoot, run } from '../../web/scripts/lib.mjs';
import { scratchFolder } from './browser.mjs';
import { jsonOf, modelLabel } from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: inRoot('examples', 'models', 'sluice-tales-F16.gguf') },
    text: { type: 'string', default: inRoot('examples', 'models', 'heldout.txt') },
    tokens: { type: 'string', default: '400' },
    types: { type: 'string', default: 'q8_0,q6_k,q5_k_m,q5_1,q5_0,q4_k_m,q4_k_s,q4_1,iq4_nl,iq4_xs,q4_0,mxfp4,q3_k_m,q2_k,tq2_0,tq1_0' },
    sizes: { type: 'string', default: 'q8_0,q6_k,q5_k_m,q4_k_m,q3_k_m' },
    'llama-quantize': { type: 'string' },
    'no-build': { type: 'boolean' },
  },
});
const sluice = inRoot('build', 'native', 'sluice');
const folder = scratchFolder();
if (!values['no-build']) cmakeBuild('native', { targets: ['sluice'] });

const lines = readFileSync(values.text, 'utf8').split('\n');
const calibration = join(folder, 'calibration.txt');
writeFileSync(calibration, lines.splice(lines.length / 2).join('\n'));
const text = join(folder, 'text.txt');
writeFileSync(text, lines.join('\n'));
const tokens = (await jsonOf(sluice, ['tokenize', values.model, '--text-file', text])).slice(0, Number(values.tokens));

function logitsOf(file) {
  const out = join(folder, 'logits');
  run(sluice, ['logits', file, '--tokens', tokens.join(), '--out', out], { stdio: 'ignore' });
  const bytes = readFileSync(out);
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}
const whole = logitsOf(values.model);
const width = whole.length / tokens.length;

function logSum(row) {
  const top = row.reduce((a, b) => Math.max(a, b));
  return top + Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0));
}

/** Against the model itself: the normalized error of logits, and the divergence of distributions in nats a token. */
function compare(file) {
  const made = logitsOf(file);
  let error = 0, power = 0, divergence = 0;
  for (let at = 0; at < whole.length; at += width) {
    const p = whole.subarray(at, at + width), q = made.subarray(at, at + width);
    const logP = logSum(p), logQ = logSum(q);
    for (let i = 0; i < width; i++) {
      error += (p[i] - q[i]) ** 2;
      power += p[i] ** 2;
      divergence += Math.exp(p[i] - logP) * (p[i] - logP - (q[i] - logQ));
    }
  }
  return { nmse: error / power, divergence: divergence / tokens.length };
}

async function measured(file) {
  const { perplexity } = await jsonOf(sluice, ['perplexity', file, '--file', text, '--json']);
  return { bytes: statSync(file).size, perplexity, ...compare(file) };
}

async function converted(args) {
  const out = join(folder, 'made.gguf');
  const report = await jsonOf(sluice, ['convert', values.model, out, '--json', ...args]);
  let count = 0, squared = 0;
  for (const t of report.tensors) {
    count += t.values;
    squared += t.values * t.mse;
  }
  return { mse: squared / count, ...await measured(out) };
}

const figure = (x) => (x === 0 ? '0' : x === undefined ? '' : x < 0.001 ? x.toExponential(1) : x.toPrecision(3));
const print = (head, rows) => console.log([head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n'));
const cells = (r) => [r.bytes, figure(r.mse), figure(r.nmse), r.perplexity.toFixed(4), figure(r.divergence)];

const types = values.types.split(',');
const sizes = values.sizes === '' ? [] : values.sizes.split(',');
const made = new Map();
for (const type of [...new Set([...types, ...sizes])]) made.set(type, await converted(['--type', type]));
console.log(`\n${modelLabel(values.model)}; the text has perplexity ${(await measured(values.model)).perplexity.toFixed(4)}\n`);
print(['type', 'bytes', 'MSE of weights', 'NMSE of logits', 'perplexity', 'KL'], types.map((type) => [type, ...cells(made.get(type))]));

if (values['llama-quantize']) {
  const rows = [];
  for (const type of types) {
    const out = join(folder, 'theirs.gguf');
    try {
      run(values['llama-quantize'], [values.model, out, type], { stdio: 'ignore' });
      rows.push([type, ...cells(await measured(out))]);
    } catch {
      rows.push([type, 'refused', '', '', '', '']);
    }
  }
  console.log('\nllama-quantize\n');
  print(['type', 'bytes', '', 'NMSE of logits', 'perplexity', 'KL'], rows);
}

if (sizes.length > 0) console.log('\n--target-size\n');
const rows = [];
for (const type of sizes) {
  const mixture = made.get(type), size = ['--target-size', String(mixture.bytes)];
  const plain = await converted(size), read = await converted([...size, '--calibrate', calibration]);
  const pair = (r) => [r.bytes, r.perplexity.toFixed(4), figure(r.divergence)];
  rows.push([type, ...pair(mixture), ...pair(plain), ...pair(read)]);
}
if (sizes.length > 0) print(['mixture', 'bytes', 'perplexity', 'KL', '--target-size: bytes', 'perplexity', 'KL', 'calibrated: bytes', 'perplexity', 'KL'], rows);
