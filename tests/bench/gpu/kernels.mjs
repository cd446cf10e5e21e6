// Every kernel against its reference in double precision, then the speed of matrix multiplications
// as a share of what copying takes, in Node. Without a part of bench:gpu, --kernels compares them
// with naive shaders in a browser (../gpu.mjs).
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { kernelPages } from './bundles.mjs';
import { isSoftware, openDawn } from './driver.mjs';
import { allGroups, codedGroups, reducedGroups } from './groups.mjs';

const kTypes = ['F16', 'Q8_0', 'Q4_0', 'Q4_K', 'Q6_K'];
const kTokens = [1, 4, 64];

/** Rows and columns of the multiplications, on a GPU and on a software adapter. */
const kSize = 4096,
  kSoftwareSize = 512;

/** Results of checks and of times, each given to `done` as soon as it is there. */
export async function kernels(done, groups = allGroups) {
  const close = await openDawn();
  try {
    const { info } = await navigator.gpu.requestAdapter();
    const size = isSoftware(info) ? kSoftwareSize : kSize;
    const pages = await kernelPages();
    const load = (name) => import(pathToFileURL(join(pages, name)).href);
    const { check } = await load('check.js');
    const coded = { gemv: true, gemm: true };
    const paths = [
      ['as the GPU is', {}, groups],
      [
        'without subgroups',
        { subgroups: false },
        groups.filter((group) => reducedGroups.includes(group)),
      ],
      ['int8 activations', { coded }, groups.filter((group) => codedGroups.includes(group))],
    ];
    for (const [path, options, all] of paths)
      for (const group of all) {
        const { failures, worst, pipelines, ms } = await check(group, options);
        done({ check: group, path, failures, worst, pipelines, ms });
      }
    const { time, weightBytes } = await load('page.js');
    for (const type of kTypes)
      for (const tokens of kTokens) {
        const shape = { type, rows: size, cols: size, tokens, times: 2 };
        const { ours, codes, plain, nmse } = await time(shape);
        const best = Math.min(ours, codes ?? Infinity);
        done({
          product: type,
          tokens,
          ms: ours,
          int8Ms: codes,
          naiveMs: plain,
          nmse,
          weightBytesPerSecond: (1000 * weightBytes(shape)) / best,
          flopsPerSecond: (2000 * size * size * tokens) / best,
        });
      }
  } finally {
    close();
  }
}
