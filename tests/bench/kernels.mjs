// npm run bench:kernels: matrix multiplication in WebAssembly on one thread, in GMAC/s, for each
// quantization type and kernel table. `--node` runs the table of plain SIMD in Node instead.
//   npm run bench:kernels -- [--types IQ2_XXS,Q4_0] [--tokens 1,128] [--seconds 0.3] [--node] [--no-build] [--json]
import { parseArgs } from 'node:util';
import { finishBinary } from '../../web/scripts/wasm.mjs';
import { launchChromium } from '../web/drivers.mjs';
import { buildProgram, runInBrowser, runInNode } from '../wasm/gtest.mjs';
import { table } from './lib.mjs';

const decoded = 'IQ1_S,IQ1_M,IQ2_XXS,IQ2_XS,IQ2_S,IQ3_XXS,IQ3_S,NVFP4,Q1_0,Q2_0';
const { values } = parseArgs({
  options: {
    types: { type: 'string', default: `Q4_0,${decoded}` },
    tokens: { type: 'string', default: '1,128' },
    seconds: { type: 'string', default: '0.3' },
    node: { type: 'boolean' },
    'no-build': { type: 'boolean' },
    json: { type: 'boolean' },
  },
});

const variants = values.node ? ['simd128'] : ['relaxed', 'simd128'];
if (!values['no-build']) {
  // Optimized as the engines are.
  await buildProgram('matmul_bench', variants, {
    below: 'bench/',
    variables: ['-DSLUICE_BENCH=ON'],
    finish: finishBinary,
  });
}

const rates = [];
for (const variant of variants) {
  const program = ['bench/matmul_bench', variant, [values.types, values.tokens, values.seconds]];
  const { code, output } = values.node
    ? await runInNode(...program)
    : await runInBrowser(launchChromium, ...program);
  if (code !== 0) throw new Error(output);
  for (const line of output.split('\n')) {
    const [kernels, type, tokens, rate] = line.split(' ');
    rates.push({ kernels, type, tokens: Number(tokens), gigamacsPerSecond: Number(rate) });
  }
}

if (values.json) {
  console.log(JSON.stringify(rates, null, 2));
} else {
  const types = [...new Set(rates.map(({ type }) => type))];
  const lines = new Map();
  for (const { kernels, type, tokens, gigamacsPerSecond } of rates) {
    const name = `${kernels}, ${tokens} token${tokens === 1 ? '' : 's'}`;
    if (!lines.has(name)) lines.set(name, new Map());
    lines.get(name).set(type, gigamacsPerSecond);
  }
  console.log(
    table([
      ['GMAC/s', ...types],
      ...[...lines].map(([name, each]) => [name, ...types.map((type) => each.get(type))]),
    ]),
  );
}
