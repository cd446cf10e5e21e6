// npm run bench:convert: quality of `sluice convert` on a trained model. For each quantization type
// and mix it prints the file's bytes and the mean squared error of the weights. On pieces of a
// held-out text it compares with the source model: normalized error of the logits, perplexity, and
// KL divergence of the next token's distribution in nats per token.
//   --sizes           --target-size at the sizes of these mixes, with and without calibration on the
//                     other half of the text, and with --gptq if that is given
//   --min-cosine      --min-cosine of --sizes
//   --importance      every type again, with an importance matrix of that half
//   --gptq            every type again, with --calibrate on that half and --gptq
//   --pure            every matrix in the type itself, without a mix
//   --embedding       only the embedding in each of these types, whole and split into cluster
//                     centres and residuals
//   --speed           seconds to convert a large model
//   --llama-quantize  the same figures for the files of this program; with --speed its seconds, in
//                     turns with ours
//   --llama-logits    compares llama.cpp's logits of our files with our own
//   npm run bench:convert -- [--model FILE] [--text FILE] [--stretches 12] [--tokens 400] [--types a,b,…]
//                            [--sizes a,b,…] [--min-cosine C] [--importance] [--gptq] [--pure] [--embedding a,b,…] [--speed FILE|SHAPE:TYPE] [--threads 2] [--rounds 2]
//                            [--llama-quantize PROGRAM] [--llama-logits PROGRAM] [--no-build]
// The programs are called as PROGRAM IN OUT TYPE [THREADS [IMATRIX]] and PROGRAM MODEL TOKENS OUT.
// quantize.py and logits.py of tests/bench/baselines do this with llama.cpp's library.
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cmakeBuild } from '../../web/scripts/wasm.mjs';
import { inRoot, markdownTable, run } from '../../web/scripts/lib.mjs';
import { scratchFolder } from './browser.mjs';
import { jsonOf, modelFile, modelLabel } from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: inRoot('examples', 'models', 'sluice-tales-F16.gguf') },
    text: { type: 'string', default: inRoot('examples', 'models', 'heldout.txt') },
    stretches: { type: 'string', default: '12' },
    tokens: { type: 'string', default: '400' },
    types: {
      type: 'string',
      default:
        'q8_0,q6_k,q5_k_m,q5_1,q5_0,q4_k_m,q4_k_s,q4_1,iq4_nl,iq4_xs,q4_0,mxfp4,q3_k_m,q2_k,tq2_0,tq1_0',
    },
    sizes: { type: 'string', default: 'q8_0,q6_k,q5_k_m,q4_k_m,q3_k_m' },
    'min-cosine': { type: 'string' },
    importance: { type: 'boolean' },
    gptq: { type: 'boolean' },
    pure: { type: 'boolean' },
    embedding: { type: 'string' },
    speed: { type: 'string' },
    threads: { type: 'string', default: '2' },
    rounds: { type: 'string', default: '2' },
    'llama-quantize': { type: 'string' },
    'llama-logits': { type: 'string' },
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
const tokens = await jsonOf(sluice, ['tokenize', values.model, '--file', text]);
const length = Number(values.tokens);
const starts = Array.from({ length: Number(values.stretches) }, (_, i) => i * length).filter(
  (at) => at + length <= tokens.length,
);

function logitsOf(file, start, program) {
  const out = join(folder, 'logits'),
    ids = tokens.slice(start, start + length).join();
  if (program) run(program, [file, ids, out], { stdio: 'ignore' });
  else run(sluice, ['logits', file, '--tokens', ids, '--out', out], { stdio: 'ignore' });
  const bytes = readFileSync(out);
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

function logSum(row) {
  const top = row.reduce((a, b) => Math.max(a, b));
  return top + Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0));
}

/**
 * Compares with the source model, or with the logits that `others(start)` returns: { nmse,
 * divergence }, the latter in nats per token.
 */
function compare(file, others = (start) => logitsOf(values.model, start)) {
  let error = 0,
    power = 0,
    divergence = 0;
  for (const start of starts) {
    const whole = others(start),
      made = logitsOf(file, start);
    const width = whole.length / length;
    for (let at = 0; at < whole.length; at += width) {
      const p = whole.subarray(at, at + width),
        q = made.subarray(at, at + width);
      const logP = logSum(p),
        logQ = logSum(q);
      for (let i = 0; i < width; i++) {
        error += (p[i] - q[i]) ** 2;
        power += p[i] ** 2;
        divergence += Math.exp(p[i] - logP) * (p[i] - logP - (q[i] - logQ));
      }
    }
  }
  return { nmse: error / power, divergence: divergence / (length * starts.length) };
}

async function measured(file) {
  const { perplexity } = await jsonOf(sluice, ['perplexity', file, '--file', text, '--json']);
  return { bytes: statSync(file).size, perplexity, ...compare(file) };
}

/** QSF's own types are written as QSF. */
const fileFor = (args) =>
  join(folder, args.some((a) => a.startsWith('qsf')) ? 'made.qsf' : 'made.gguf');

async function converted(args, { from = values.model, out = fileFor(args) } = {}) {
  const report = await jsonOf(sluice, ['convert', '--force', from, out, '--json', ...args]);
  let count = 0,
    squared = 0;
  for (const t of report.tensors) {
    count += t.values;
    squared += t.values * t.mse;
  }
  return { report, mse: squared / count, ...(await measured(out)) };
}

const figure = (x) =>
  x === 0 ? '0' : x === undefined ? '' : x < 0.001 ? x.toExponential(1) : x.toPrecision(3);
const print = (head, rows) => console.log(markdownTable(head, rows));
const cells = (r) =>
  r
    ? [r.bytes, figure(r.mse), figure(r.nmse), r.perplexity.toFixed(4), figure(r.divergence)]
    : ['needs a matrix', '', '', '', ''];

const head = ['type', 'bytes', 'MSE of weights', 'NMSE of logits', 'perplexity', 'KL'];
const types = values.types.split(',').filter(Boolean);
const sizes = values.sizes.split(',').filter(Boolean);
const typed = (type) => ['--type', type, ...(values.pure ? ['--pure'] : [])];
const made = new Map();
for (const type of new Set([...types, ...sizes])) {
  try {
    made.set(type, await converted(typed(type)));
  } catch (error) {
    if (!/importance matrix/.test(String(error))) throw error;
    made.set(type, undefined); // types of one and two bits are not written without
  }
}
console.log(
  `\n${modelLabel(values.model)}; perplexity of the text ${(await measured(values.model)).perplexity.toFixed(4)}\n`,
);
print(
  head,
  types.map((type) => [type, ...cells(made.get(type))]),
);

/** Rows for the files of --llama-quantize, called with further arguments after the type. */
async function theirs(rest) {
  const rows = [];
  for (const type of types) {
    const out = join(folder, 'theirs.gguf');
    try {
      run(values['llama-quantize'], [values.model, out, type, ...rest], { stdio: 'ignore' });
      rows.push([type, ...cells(await measured(out))]);
    } catch {
      rows.push([type, 'refused', '', '', '', '']);
    }
  }
  return rows;
}
if (values['llama-quantize'] && types.length > 0) {
  console.log('\nllama-quantize\n');
  print(head, await theirs([]));
}

if (values.importance) {
  const matrix = join(folder, 'importance.gguf');
  await converted(['--type', 'q8_0', '--calibrate', calibration, '--save-imatrix', matrix]);
  const rows = [];
  for (const type of types)
    rows.push([type, ...cells(await converted([...typed(type), '--imatrix', matrix]))]);
  console.log('\nwith an importance matrix of the other half of the text\n');
  print(head, rows);
  if (values['llama-quantize']) {
    console.log('\nllama-quantize with the same matrix\n');
    print(head, await theirs([values.threads, matrix]));
  }
}

if (values.gptq) {
  const rows = [];
  for (const type of types)
    rows.push([
      type,
      ...cells(await converted([...typed(type), '--calibrate', calibration, '--gptq'])),
    ]);
  console.log('\nwith --gptq on the other half of the text\n');
  print(head, rows);
}

if (values['llama-logits']) {
  const rows = [];
  for (const type of ['f32', 'f16', ...types]) {
    const out = join(folder, 'made.gguf');
    await jsonOf(sluice, ['convert', '--force', values.model, out, '--type', type, '--json']);
    rows.push([
      type,
      figure(compare(out, (start) => logitsOf(out, start, values['llama-logits'])).nmse),
    ]);
  }
  console.log(
    '\nour files in llama.cpp: normalized error of our logits against those of llama.cpp\n',
  );
  print(['type', 'NMSE'], rows);
}

if (sizes.length > 0) console.log('\n--target-size\n');
const rows = [];
for (const type of sizes) {
  const calibrated = ['--calibrate', calibration];
  const mixture = made.get(type) ?? (await converted([...typed(type), ...calibrated]));
  const size = ['--target-size', String(mixture.bytes)];
  if (values['min-cosine']) size.push('--min-cosine', values['min-cosine']);
  const results = [mixture, await converted(size), await converted([...size, ...calibrated])];
  if (values.gptq) results.push(await converted([...size, ...calibrated, '--gptq']));
  rows.push([type, ...results.flatMap((r) => [r.bytes, figure(r.divergence), figure(r.nmse)])]);
}
if (sizes.length > 0)
  print(
    [
      'mix',
      'bytes',
      'KL',
      'NMSE',
      '--target-size: bytes',
      'KL',
      'NMSE',
      'calibrated: bytes',
      'KL',
      'NMSE',
      ...(values.gptq ? ['--gptq: bytes', 'KL', 'NMSE'] : []),
    ],
    rows,
  );

if (values.embedding) {
  // A tied output head would change with the embedding, so it becomes a matrix of its own first.
  const parts = join(folder, 'parts.qsf'),
    untied = join(folder, 'untied.gguf');
  await jsonOf(sluice, ['convert', values.model, parts, '--cluster-embedding', 'f32', '--json']);
  await jsonOf(sluice, ['convert', parts, untied, '--json']);
  const as = async (...args) => {
    const made = await converted(args, { from: untied, out: join(folder, 'made.qsf') });
    const embedding = made.report.tensors.find((t) => t.name.startsWith('token_embd'));
    return [made.bytes, figure(embedding.mse), figure(made.nmse), figure(made.divergence)];
  };
  const rows = [];
  for (const type of values.embedding.split(',')) {
    rows.push([
      type,
      ...(await as('--tensor-type', `token_embd=${type}`)),
      ...(await as('--cluster-embedding', type)),
    ]);
  }
  console.log('\nonly the embedding, whole and split into centres and residuals\n');
  print(['type', 'bytes', 'its MSE', 'NMSE', 'KL', 'split: bytes', 'its MSE', 'NMSE', 'KL'], rows);
}

if (values.speed) {
  const large = modelFile(values.speed),
    out = join(folder, 'timed.gguf');
  const ours = (type) => [
    sluice,
    ['convert', '--force', large, out, '--type', type, '--threads', values.threads, '--json'],
  ];
  const theirs = (type) => [values['llama-quantize'], [large, out, type, values.threads]];
  const seconds = ([program, args]) => {
    const start = performance.now();
    run(program, args, { stdio: 'ignore' });
    return (performance.now() - start) / 1000;
  };
  const rows = types
    .filter((type) => type !== 'mxfp4')
    .map((type) => {
      let mine = Infinity,
        peer = Infinity;
      for (let round = 0; round < Number(values.rounds); round++) {
        mine = Math.min(mine, seconds(ours(type)));
        if (values['llama-quantize']) peer = Math.min(peer, seconds(theirs(type)));
      }
      return [
        type,
        mine.toFixed(2),
        ...(Number.isFinite(peer) ? [peer.toFixed(2), (peer / mine).toFixed(2)] : ['', '']),
      ];
    });
  console.log(`\n${modelLabel(large)}, ${values.threads} threads, seconds\n`);
  print(['type', 'sluice convert', 'llama-quantize', 'speedup'], rows);
}
