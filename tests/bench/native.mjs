// npm run bench: sluice and llama.cpp (node-llama-cpp's prebuilt CPU library, the faster of its
// attention settings) on the same models, machine and thread counts, in turns. Prints rates and
// ratios.
//   npm run bench -- [--model SHAPE:TYPE|FILE]… [--threads 1,2] [-p 128] [-n 32] [--rounds 2]
//                    [--kernels avx2] [--kv-type q4_0] [--depth 4096] [--ours-only] [--json]
// --depth: measures decode at this many tokens of context, one run of each side, without prefill.
import { parseArgs } from 'node:util';
import { build } from '../../web/scripts/build.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';
import { setup } from '../../web/scripts/setup.mjs';
import {
  inTurns,
  installPeer,
  jsonOf,
  measureLlama,
  modelFile,
  modelLabel,
  table,
} from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: {
      type: 'string',
      multiple: true,
      default: [
        'tinyllama-1.1b:q4_0',
        'tinyllama-1.1b:q4_k_m',
        'tinyllama-1.1b:q8_0',
        'tinyllama-1.1b:q6_k',
        'qwen3-0.6b:q8_0',
      ],
    },
    threads: { type: 'string', default: '1,2' },
    prompt: { type: 'string', short: 'p', default: '128' },
    generate: { type: 'string', short: 'n', default: '32' },
    rounds: { type: 'string', default: '2' },
    kernels: { type: 'string', default: '' },
    'kv-type': { type: 'string', default: 'f16' },
    depth: { type: 'string', default: '' },
    'ours-only': { type: 'boolean' },
    'no-build': { type: 'boolean' },
    json: { type: 'boolean' },
  },
});
const kvType = values['kv-type'];

async function measureOurs(file, threads) {
  const args = [
    'bench',
    file,
    '-p',
    values.depth ? '0' : values.prompt,
    '-n',
    values.generate,
    '-t',
    String(threads),
    '-r',
    '2',
    '-o',
    'json',
    '--kv-type',
    kvType,
  ];
  if (values.depth) args.push('-d', values.depth);
  if (values.kernels) args.push('--kernels', values.kernels);
  const [row] = await jsonOf(inRoot('build', 'native', 'sluice'), args);
  return {
    prefill: row.prefillTokensPerSecond,
    decode: row.decodeTokensPerSecond,
    kernels: row.kernels,
    gbytes: row.decodeGBytes,
    gmacs: row.prefillGmacs,
  };
}

setup('bench');
if (!values['no-build']) await build(['native']);
if (!values['ours-only']) installPeer('node-llama-cpp');
const results = [];
for (const file of values.model.map(modelFile)) {
  for (const threads of values.threads.split(',').map(Number)) {
    const sides = [
      () => measureOurs(file, threads),
      () =>
        measureLlama(file, threads, values.depth || values.prompt, values.generate, {
          kvType,
          repeats: values.depth ? 1 : 2,
        }),
    ];
    const [ours, peer] = await inTurns(
      sides.slice(0, values['ours-only'] ? 1 : 2),
      Number(values.rounds),
      !values.depth,
    );
    results.push({ model: modelLabel(file), threads, ours, peer });
  }
}
if (values.json) console.log(JSON.stringify(results, null, 1));
else {
  console.log(
    `\nNative, tokens per second; ${values.depth ? `context of ${values.depth} tokens` : `prefill of ${values.prompt} tokens`}, decode of ${values.generate}, ${kvType} KV cache`,
  );
  const ratio = (a, b) => (b ? a / b : '-');
  console.log(
    table([
      [
        'model',
        'threads',
        'kernels',
        'prefill',
        'llama.cpp',
        'ratio',
        'decode',
        'llama.cpp',
        'ratio',
        'GB/s',
      ],
      ...results.map(({ model, threads, ours, peer }) => [
        model,
        String(threads),
        ours.kernels,
        ...(values.depth
          ? ['-', '-', '-']
          : [ours.prefill, peer?.prefill ?? '-', ratio(ours.prefill, peer?.prefill)]),
        ours.decode,
        peer?.decode ?? '-',
        ratio(ours.decode, peer?.decode),
        ours.gbytes,
      ]),
    ]),
  );
}
