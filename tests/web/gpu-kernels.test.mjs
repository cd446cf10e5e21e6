// The WGSL kernels against references in double precision, on every code path that two browsers
// have. Validation errors, writes outside of the output, and pipelines that were not precompiled
// are failures.
import assert from 'node:assert/strict';
import { build } from 'esbuild';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { extent } from '../extent.mjs';
import { wgsl } from '../../web/scripts/wgsl.mjs';
import { servePages } from './chromium.mjs';
import { launchChromiumGpu, launchFirefoxGpu, noLavapipe } from './gpu-drivers.mjs';
import { root } from './helpers.mjs';

const out = join(root, 'build', 'web-tests', 'gpu-kernels');
// SwiftShader takes seconds to compile what lavapipe compiles at once. So Chromium runs each kind
// of case, Firefox every size.
const forms = [
  'everyRow',
  'products',
  'norms',
  'vectors',
  'attention',
  'experts',
  'recurrent',
  'layer',
];
const all = [...forms, 'everyType', 'moreProducts', 'rows', 'moreAttention'];
const some = extent([...forms, 'everyType', 'rows'], all);
const coded = { gemv: true, gemm: true };
const limits = { timeout: 300_000 };

before(() =>
  build({
    entryPoints: [join(root, 'tests', 'web', 'gpu', 'page.ts')],
    outdir: out,
    bundle: true,
    format: 'esm',
    target: 'es2022',
    plugins: [wgsl],
    logLevel: 'warning',
  }),
);

/**
 * `launch` and `newPage` open pages. `paths`: kernel options, with the feature that each requires.
 */
function checkIn(name, skip, launch, newPage, paths) {
  describe(name, { skip }, () => {
    let browser, pages, page;
    before(async () => {
      browser = await launch();
      pages = await servePages(out);
      page = await newPage(browser, `${pages.url}/`);
    });
    after(async () => {
      await pages?.close();
      await browser?.close();
    });
    for (const { path, options, feature, groups } of paths) {
      for (const group of groups) {
        test(`${group}, ${path}`, limits, async (t) => {
          const verdict = await page.evaluate(
            async ({ group, options }) => (await import('/dist/page.js')).check(group, options),
            { group, options },
          );
          if (feature)
            assert.ok(
              verdict.features.includes(feature),
              `no ${feature} among ${verdict.features}`,
            );
          if (options.coded) assert.ok(verdict.dots, 'no int8 dot product');
          t.diagnostic(
            `${verdict.calls} calls, ${verdict.dispatches} dispatches, ${verdict.pipelines} pipelines, worst error ${verdict.worst.toExponential(1)}, ${(verdict.ms / 1000).toFixed(1)} s`,
          );
          assert.deepEqual(verdict.failures, []);
          assert.ok(verdict.calls > 0 && verdict.dispatches > 0, 'nothing was computed');
          if (group === 'layer' && !options.coded)
            assert.ok(verdict.dispatches <= 8, `${verdict.dispatches} dispatches of a token`);
        });
      }
    }
  });
}

checkIn(
  'Chromium on SwiftShader',
  false,
  launchChromiumGpu,
  async (browser, url) => {
    const page = await browser.newPage();
    await page.goto(url);
    return page;
  },
  [
    {
      path: 'by subgroups',
      options: {},
      feature: 'subgroups',
      groups: process.env.SLUICE_GPU_MODELS === 'all' ? all : forms,
    },
    // The kernels with reductions; Firefox has the rest.
    { path: 'without subgroups', options: { subgroups: false }, groups: ['norms'] },
    {
      path: 'with codes',
      options: { coded },
      groups: extent(['experts'], ['products', 'experts']),
    },
  ],
);

checkIn('Firefox on lavapipe', noLavapipe, launchFirefoxGpu, (browser, url) => browser.open(url), [
  { path: 'with halves', options: {}, feature: 'shader-f16', groups: some },
  {
    path: 'without halves',
    options: { f16: false },
    groups: extent(['products', 'layer'], ['products', 'rows', 'attention', 'layer']),
  },
  {
    path: 'with codes',
    options: { coded },
    groups: extent(
      ['everyType', 'products', 'experts'],
      ['everyType', 'products', 'moreProducts', 'experts'],
    ),
  },
]);
