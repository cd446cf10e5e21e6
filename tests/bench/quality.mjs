// npm run bench:quality: speed against accuracy of the approximate options. For each option and
// level it prints tokens per second with all weights resident and under a streaming budget, the
// perplexity of a text, and the share of positions whose most likely token is unchanged.
// The model is first converted with what the options need: --calibrate with the second half of the
// text (perplexity is of the first half) and --cluster-head. --speed names a model of the same
// family with random weights for the speeds, in case the trained model is too small to show them.
// Levels run in turns and the best round counts.
// `known` is the share of logits rows whose largest value is proven to be that of the whole
// vocabulary; `layers` is how many layers a token of a greedy completion computes.
//   npm run bench:quality -- [--model FILE] [--text FILE] [--tokens 400] [--speed SHAPE:TYPE|FILE]
//                            [--share 0.5] [-n 16] [--rounds 3] [--threads 1] [--svg] [--no-build]
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cmakeBuild } from '../../web/scripts/wasm.mjs';
import { inRoot, run, write } from '../../web/scripts/lib.mjs';
import { scratchFolder } from './browser.mjs';
import { drawPanels } from './quality-plot.mjs';
import { inTurns, jsonOf, modelFile, modelLabel, table } from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: inRoot('examples', 'models', 'sluice-tales-Q8_0.gguf') },
    text: { type: 'string', default: inRoot('examples', 'models', 'heldout.txt') },
    tokens: { type: 'string', default: '400' },
    speed: { type: 'string' }, // default: --model
    share: { type: 'string', default: '0.5' }, // streaming budget as a share of the speed file
    generate: { type: 'string', short: 'n', default: '16' },
    rounds: { type: 'string', default: '3' },
    threads: { type: 'string', default: '1' },
    svg: { type: 'boolean' },
    'no-build': { type: 'boolean' },
  },
});
const sluice = inRoot('build', 'native', 'sluice');
const folder = scratchFolder();
if (!values['no-build']) cmakeBuild('native', { targets: ['sluice'] });

const skipping = (ratio) => ['--skip-layers-ratio', String(ratio), '--head-clusters', 'off'];
const switches = [
  {
    name: 'skipped layers (--skip-layers-ratio)',
    levels: [0, 0.25, 0.5, 0.75, 1].map((ratio) => [String(ratio), skipping(ratio)]),
  },
  {
    name: 'clustered output head (--head-clusters)',
    levels: ['off', 'exact', 64, 32, 16, 8, 4, 2, 1].map((n) => [
      String(n),
      ['--head-clusters', String(n)],
    ]),
  },
  {
    name: 'early exit (--early-exit)',
    levels: [1, 0.99, 0.95, 0.9, 0.8, 0.6, 0.4, 0.2, 0].map((p) => [
      String(p),
      ['--early-exit', String(p)],
    ]),
  },
];

const halves = readFileSync(values.text, 'utf8').split('\n');
const calibration = join(folder, 'calibration.txt');
writeFileSync(calibration, halves.splice(halves.length / 2).join('\n'));
const text = join(folder, 'text.txt');
writeFileSync(text, halves.join('\n'));

/** Converts a file with what the approximate options need. */
function prepared(file, name) {
  const out = join(folder, name);
  run(sluice, ['convert', '--force', file, out, '--calibrate', calibration, '--cluster-head'], {
    stdio: 'ignore',
  });
  return out;
}

/** The logits of every position: [tokens][vocabulary]. */
function logitsOf(file, tokens, args) {
  const out = join(folder, 'logits');
  run(sluice, ['logits', file, '--tokens', tokens.join(), '--out', out, ...args], {
    stdio: 'ignore',
  });
  const bytes = readFileSync(out);
  const all = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const width = all.length / tokens.length;
  return tokens.map((_, i) => all.subarray(i * width, (i + 1) * width));
}

const largest = (row) => row.reduce((best, value, i) => (value > row[best] ? i : best), 0);

function perplexityOf(rows, tokens) {
  let sum = 0;
  for (let i = 1; i < tokens.length; i++) {
    const row = rows[i - 1];
    const top = row.reduce((a, b) => Math.max(a, b));
    sum += top + Math.log(row.reduce((s, x) => s + Math.exp(x - top), 0)) - row[tokens[i]];
  }
  return Math.exp(sum / (tokens.length - 1));
}

/**
 * Work of a greedy completion: shares of rows with a proven largest logit and of computed head
 * rows, and layers per token.
 */
async function workOf(file, args, vocabulary) {
  const made = await jsonOf(sluice, [
    'run',
    '--raw',
    file,
    '-p',
    'Once upon a time',
    '-n',
    '64',
    '--temp',
    '0',
    '--json',
    ...args,
  ]);
  const rows = made.clusteredHeadRows || 1;
  return {
    known: made.clusteredHeadKnown / rows,
    products: made.clusteredHeadRows ? made.clusteredHeadProducts / rows / vocabulary : 1,
    layers: made.earlyExitRows ? made.earlyExitLayers / made.earlyExitRows : '',
  };
}

async function decodeRate(file, args) {
  const [row] = await jsonOf(sluice, [
    'bench',
    file,
    '-p',
    '0',
    '-n',
    values.generate,
    '-t',
    values.threads,
    '-r',
    '1',
    '-o',
    'json',
    '--ctx',
    '64',
    ...args,
  ]);
  return { prefill: 0, decode: row.decodeTokensPerSecond };
}

const model = prepared(values.model, 'model.qsf');
const fast = values.speed ? prepared(modelFile(values.speed), 'speed.qsf') : model;
const tokens = (await jsonOf(sluice, ['tokenize', model, '--file', text])).slice(
  0,
  Number(values.tokens),
);
const planOf = async (...more) => {
  const common = ['--json', '--ctx', '64', '--threads', values.threads];
  return (await jsonOf(sluice, ['info', fast, ...common, ...more])).plan;
};
const plan = await planOf();
const least = await planOf('--memory-budget', String(plan.total));
const budget = Math.max(
  least.minimum,
  Math.round(
    Number(values.share) * statSync(values.speed ? modelFile(values.speed) : values.model).size,
  ),
);

const whole = logitsOf(model, tokens, skipping(0)).map((row) => row.slice());
const unchanged = whole.map(largest);
for (const { name, levels } of switches) {
  const rates = (extra) =>
    inTurns(
      levels.map(
        ([, args]) =>
          () =>
            decodeRate(fast, [...args, ...extra]),
      ),
      Number(values.rounds),
    );
  const resident = await rates([]);
  const streaming = await rates(['--memory-budget', String(budget)]);
  const rows = [];
  for (const [i, [level, args]] of levels.entries()) {
    const logits = logitsOf(model, tokens, args);
    const same = logits.filter((row, at) => largest(row) === unchanged[at]).length / tokens.length;
    rows.push({
      level,
      resident: resident[i].decode,
      streaming: streaming[i].decode,
      perplexity: perplexityOf(logits, tokens),
      same,
      ...(await workOf(model, args, whole[0].length)),
    });
  }
  Object.assign(
    switches.find((s) => s.name === name),
    { rows },
  );
  console.log(
    `\n${name}\n${table([
      [
        'level',
        'resident',
        'streaming',
        'perplexity',
        'unchanged %',
        'products %',
        'known %',
        'layers',
      ],
      ...rows.map((r) => [
        r.level,
        r.resident,
        r.streaming,
        r.perplexity,
        100 * r.same,
        100 * r.products,
        100 * r.known,
        r.layers,
      ]),
    ])}`,
  );
}
console.log(
  `\nquality: ${modelLabel(values.model)}, ${tokens.length} tokens; speed: ${modelLabel(fast)}, ` +
    `${values.threads} thread(s), budget ${(budget / 2 ** 20).toFixed(1)} MB`,
);
if (values.svg) {
  write(
    inRoot('tests', 'bench', 'quality.svg'),
    drawPanels(
      switches.map(({ name, rows }) => ({
        name,
        levels: rows.map((r) => r.level),
        panels: [
          {
            title: 'tokens per second',
            lines: [
              ['resident', rows.map((r) => r.resident)],
              ['streaming', rows.map((r) => r.streaming)],
            ],
          },
          { title: 'perplexity', lines: [['', rows.map((r) => r.perplexity)]] },
          {
            title: 'greedy tokens unchanged, %',
            lines: [['', rows.map((r) => 100 * r.same)]],
            most: 100,
          },
        ],
      })),
    ),
  );
}
