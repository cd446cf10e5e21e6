// Runs in the page: checks a group of cases by name.
import type { Options } from '../../../web/gpu/kernels.js';
import { groups } from './cases.js';
import { Harness, type Verdict } from './harness.js';

let device: Promise<GPUDevice> | undefined;

async function open(): Promise<GPUDevice> {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error('no adapter');
  const wanted: GPUFeatureName[] = ['subgroups', 'shader-f16'];
  return adapter.requestDevice({
    requiredFeatures: wanted.filter((feature) => adapter.features.has(feature)),
  });
}

export { missing } from '../../../web/gpu/fusion.js';

/** What check() knows. */
export const groupNames = Object.keys(groups);

export async function check(group: string, options: Options): Promise<Verdict & { ms: number }> {
  const harness = new Harness(await (device ??= open()), options);
  const began = performance.now();
  groups[group]!(harness);
  const verdict = await harness.run();
  return { ...verdict, ms: performance.now() - began };
}
