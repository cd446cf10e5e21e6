// The WGSL kernels against references in double precision, on every code path that Node and Firefox
// have: Dawn on lavapipe (subgroups of 8, halves), Dawn on SwiftShader (subgroups of 4) and Firefox on
// lavapipe (no subgroups, another WGSL compiler). Validation errors, writes outside of the output, and
// pipelines that were not precompiled are failures.
import assert from 'node:assert/strict';
import { build } from 'esbuild';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import {
  allGroups,
  codedGroups,
  formGroups,
  reducedGroups,
  subgroupGroups,
} from '../bench/gpu/groups.mjs';
import { extent } from '../extent.mjs';
import { wgsl } from '../../web/scripts/wgsl.mjs';
import { servePages } from './chromium.mjs';
import { launchFirefoxGpu, noFirefoxGpu } from './gpu-drivers.mjs';
import {
  noSoftwareAdapter,
  noSwiftShader,
  useSoftwareAdapter,
  useSwiftShader,
  withDawn,
} from './gpu-node.mjs';
import { root } from './helpers.mjs';
import { noKeptShaders } from './lavapipe.mjs';

const out = join(root, 'build', 'web-tests', 'gpu-kernels');
// SwiftShader takes longer to compile than lavapipe. So Firefox runs every kind of case, Node in the
// short suite those that have kernels with subgroups.
const some = extent([...formGroups, 'everyType', 'rows'], allGroups);
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
 * `open` resolves to a function that checks a group of cases, and one that closes. `paths`: kernel
 * options, with the feature that each requires.
 */
function checkIn(name, skip, open, paths) {
  describe(name, { skip }, () => {
    let opened;
    before(async () => {
      opened = await open();
    });
    after(() => opened?.close());
    for (const { path, options, feature, groups } of paths) {
      for (const group of groups) {
        test(`${group}, ${path}`, limits, async (t) => {
          const verdict = await opened.check(group, options);
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
          if (group === 'layer') assert.equal(verdict.dispatches, 7, 'dispatches of a token'); // two for attention
        });
      }
    }
  });
}

test('the table of groups names all of them', { skip: noSoftwareAdapter }, async () => {
  const { groupNames } = await import(pathToFileURL(join(out, 'page.js')).href);
  assert.deepEqual([...groupNames].sort(), [...allGroups].sort());
});

test(
  'selective scans with too many states are not supported',
  { skip: noSoftwareAdapter },
  async () => {
    const { missing } = await import(pathToFileURL(join(out, 'page.js')).href);
    const [embed, scan] = [0, 21]; // OpKind
    const refused = (keys) =>
      missing({
        ops: [embed, scan].map((kind) => ({ kind, rec: 0, parts: [], att: {} })),
        pool: 2,
        caches: [],
        recurrences: [[0, 1, 1, 0, keys]],
      });
    assert.equal(refused(256), null);
    assert.equal(refused(257), 'more than 256 states per channel');
  },
);

/** Each adapter has a copy of the module, which keeps the device. */
const openDawn = (useAdapter) => async () => {
  const close = await withDawn(useAdapter);
  const { check } = await import(`${pathToFileURL(join(out, 'page.js')).href}?${useAdapter.name}`);
  return { check, close };
};

async function openFirefox() {
  const browser = await launchFirefoxGpu();
  const pages = await servePages(out);
  const page = await browser.open(`${pages.url}/`);
  return {
    check: (group, options) =>
      page.evaluate(
        async ({ group, options }) => (await import('/dist/page.js')).check(group, options),
        { group, options },
      ),
    close: async () => {
      await pages.close();
      await browser.close();
    },
  };
}

checkIn('Node on SwiftShader', noSwiftShader, openDawn(useSwiftShader), [
  {
    path: 'by subgroups',
    options: {},
    feature: 'subgroups',
    // Sampling takes SwiftShader 11 s; gpu.test.mjs has its queues, with subgroups.
    groups: extent(
      subgroupGroups.filter((group) => group !== 'sampling'),
      allGroups,
    ),
  },
  // The kernels with reductions; Firefox has the rest.
  { path: 'without subgroups', options: { subgroups: false }, groups: reducedGroups },
  {
    path: 'with codes',
    options: { coded },
    groups: extent(['experts', 'layer'], codedGroups),
  },
]);

checkIn('Node on lavapipe', noKeptShaders, openDawn(useSoftwareAdapter), [
  {
    path: 'by subgroups',
    options: {},
    feature: 'subgroups',
    // Whole models have the rest, and sampling, which takes lavapipe minutes with subgroups.
    groups: extent(
      ['norms', 'layer'],
      allGroups.filter((group) => group !== 'sampling'),
    ),
  },
]);

checkIn('Firefox on lavapipe', noFirefoxGpu, openFirefox, [
  { path: 'with halves', options: {}, feature: 'shader-f16', groups: some },
  {
    path: 'without halves',
    options: { f16: false },
    groups: extent(['layer'], ['products', 'rows', 'attention', 'layer']),
  },
  {
    path: 'with codes',
    options: { coded },
    // Node has the experts.
    groups: extent(['everyType'], ['everyType', 'products', 'moreProducts', 'experts']),
  },
]);
