// Products on a graphics card against the plain way, an invocation for each row and token: how many times as
// long the plain one takes, both in one run, the best of --times passes that last long enough, less what an empty one takes.
//   npm run bench:card -- [--browser chromium|firefox] [--types Q4_0,Q4_K] [--rows 1024] [--cols 2048] [--times 3]
// Without a card it is SwiftShader or lavapipe that computes, programs on the CPU: of cards that says how many
// instructions a product takes, not how it reads memory.
import { build } from 'esbuild';
import { parseArgs } from 'node:util';
import { inRoot } from '../../web/scripts/lib.mjs';
import { wgsl } from '../../web/scripts/wgsl.mjs';
import { servePages } from '../web/chromium.mjs';
import { launchChromiumGpu, launchFirefoxGpu } from '../web/gpu-drivers.mjs';

const { values } = parseArgs({
  options: {
    browser: { type: 'string', default: 'chromium' }, types: { type: 'string', default: 'F16,Q8_0,Q4_0,Q4_K,Q6_K' },
    rows: { type: 'string', default: '1024' }, cols: { type: 'string', default: '2048' }, times: { type: 'string', default: '3' },
  },
});
const outdir = inRoot('build', 'web-tests', 'bench-card');
await build({ entryPoints: [inRoot('tests', 'bench', 'card', 'page.ts')], outdir, bundle: true, format: 'esm', target: 'es2022', plugins: [wgsl], logLevel: 'warning' });
const browser = await (values.browser === 'firefox' ? launchFirefoxGpu() : launchChromiumGpu());
const pages = await servePages(outdir);
try {
  const url = `${pages.url}/`;
  const page = browser.open ? await browser.open(url) : await browser.newPage().then(async (opened) => (await opened.goto(url), opened));
  console.log(`${values.rows} rows of ${values.cols}: ms of ours, of the plain way, and how many times as long that is`);
  for (const type of values.types.split(',')) {
    for (const tokens of [1, 4, 64]) {
      const shape = { type, rows: Number(values.rows), cols: Number(values.cols), tokens, times: Number(values.times) };
      const { ours, plain, nmse } = await page.evaluate(async (given) => (await import('/dist/page.js')).time(given), shape);
      if (!(nmse < 1e-6)) throw new Error(`${type}: the two are ${nmse} apart`);
      console.log(`${type.padEnd(6)} ${String(tokens).padStart(3)} tokens ${ours.toFixed(2).padStart(8)} ${plain.toFixed(2).padStart(8)} ${(plain / ours).toFixed(2).padStart(6)}`);
    }
  }
} finally {
  await browser.close();
  await pages.close();
}
