// WebGPU: what a GPU can do, the kernels, small models against the CPU, and published shapes with
// random weights. Runs in Node by the package `webgpu` (gpu/kit.mjs), and can be packed for a machine
// with a GPU (gpu/pack.mjs).
//   npm run bench:gpu -- [--only probe,kernels,models,shapes,shape=NAME] [--tokens 32] [--out FILE.json] [FILE…]
//     shapes: [-p 512] [-n 97], tokens of prefill and decode
//   npm run bench:gpu -- --pack [--out FILE.tar.xz]
//   npm run bench:gpu -- --model FILE [-p 32] [-n 8] [--times 2]     a whole model against wllama (gpu/baseline.mjs)
//   npm run bench:gpu -- --kernels [--browser chromium|firefox] [--types Q4_0,Q4_K] [--rows 1024] [--cols 2048] [--times 2]
// --kernels compares WGSL matrix multiplication in a browser with a naive shader, in which an
// invocation computes one row of one token. Prints ms with f32 activations, with activations
// quantized to int8, and of the naive shader, and the two speedups. All run in turns; the best of
// --times runs counts, less the time of an empty run. Without a GPU the shaders run on a software
// adapter, SwiftShader or lavapipe. The figures then show how many instructions a multiplication
// takes, not how it reads memory.
import { parseArgs } from 'node:util';
import { inRoot } from '../../web/scripts/lib.mjs';
import { runKit } from './gpu/kit.mjs';

const kTokens = [1, 4, 64];
/**
 * Largest NMSE with int8 activations. Synthetic weights are all alike, so errors average out less
 * than in a real model.
 */
const kCodesNmse = 1e-3;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    only: { type: 'string' },
    out: { type: 'string' },
    pack: { type: 'boolean' },
    kernels: { type: 'boolean' },
    browser: { type: 'string', default: 'chromium' },
    types: { type: 'string', default: 'F16,Q8_0,Q4_0,Q4_K' },
    rows: { type: 'string', default: '1024' },
    cols: { type: 'string', default: '2048' },
    times: { type: 'string', default: '2' },
    model: { type: 'string' },
    tokens: { type: 'string' },
    prompt: { type: 'string', short: 'p' },
    generate: { type: 'string', short: 'n' },
  },
});

/**
 * Opens a page in the chosen browser; returns time(shape) and close(). What needs packages is imported
 * here, since a packed kit has none but webgpu.
 */
async function openPage() {
  const { servePages } = await import('../web/chromium.mjs');
  const { launchChromiumGpu, launchFirefoxGpu } = await import('../web/gpu-drivers.mjs');
  const { kernelPages } = await import('./gpu/bundles.mjs');
  const firefox = values.browser === 'firefox';
  const pages = await servePages(await kernelPages());
  const browser = await (firefox ? launchFirefoxGpu() : launchChromiumGpu());
  const url = `${pages.url}/`;
  const page = firefox ? await browser.open(url) : await browser.newPage();
  if (!firefox) await page.goto(url);
  return {
    time: (shape) =>
      page.evaluate(async (given) => (await import('/dist/page.js')).time(given), shape),
    close: () => Promise.all([browser.close(), pages.close()]),
  };
}

const ms = (time) => (time === null ? '-' : time.toFixed(2)).padStart(8);
const times = (plain, time) => (time === null ? '-' : (plain / time).toFixed(1)).padStart(6);

async function bench(page, type, tokens) {
  const shape = {
    type,
    rows: Number(values.rows),
    cols: Number(values.cols),
    tokens,
    times: Number(values.times),
  };
  const { ours, codes, plain, nmse } = await page.time(shape);
  if (!(nmse[0] < 1e-6 && nmse[1] < kCodesNmse))
    throw new Error(`${type}: NMSE against the naive shader is ${nmse.join(' and ')}`);
  console.log(
    `${type.padEnd(6)} ${String(tokens).padStart(3)} tokens ${ms(ours)} ${ms(codes)} ${ms(plain)} ${times(plain, ours)} ${times(plain, codes)}`,
  );
}

async function products() {
  const page = await openPage();
  try {
    console.log(
      `${values.rows} rows of ${values.cols}: ms with f32 activations, int8, naive shader; both speedups`,
    );
    for (const type of values.types.split(',')) {
      for (const tokens of kTokens) await bench(page, type, tokens);
    }
  } finally {
    await page.close();
  }
}

if (values.pack) {
  const { pack } = await import('./gpu/pack.mjs');
  await pack(values.out ?? inRoot('build', 'gpu-kit.tar.xz'));
} else if (values.model) {
  const { againstPeer } = await import('./gpu/baseline.mjs');
  const { prompt = 32, generate = 8, times } = values;
  await againstPeer(values.model, Number(prompt), Number(generate), Number(times));
} else if (values.kernels) await products();
else {
  const only = values.only?.split(',') ?? [];
  const { tokens, prompt: prefill, generate: decode } = values;
  const given = Object.entries({ tokens, prefill, decode }).filter(([, value]) => value);
  const sizes = Object.fromEntries(given.map(([name, value]) => [name, Number(value)]));
  await runKit(only, values.out ?? inRoot('build', 'bench-gpu.json'), positionals, sizes);
}
