// The adapter and the device that are asked for, and what is told of them.

import { SluiceError } from '../protocol/errors.js';
import type { GpuKernels } from '../protocol/types.js';
import type { Coded, Features } from './kernels.js';

const kFeatures = ['subgroups', 'shader-f16'];

export const adapterFor = async (): Promise<GPUAdapter | null> =>
  (await globalThis.navigator?.gpu?.requestAdapter({ powerPreference: 'high-performance' })) ??
  null;

/** A GPU that is a program on the CPU, which the engine's own kernels outrun. */
export const isSoftware = ({ info }: GPUAdapter): boolean =>
  info.isFallbackAdapter ||
  /swiftshader|llvmpipe/i.test(`${info.architecture} ${info.device} ${info.description}`);

/** As far as the browser tells. */
export const adapterName = ({ info }: GPUAdapter): string =>
  info.description ||
  [info.vendor, info.architecture, info.device].filter(Boolean).join(' ') ||
  'a GPU';

/** Errors: NOT_SUPPORTED. */
export async function deviceOf(adapter: GPUAdapter): Promise<GPUDevice> {
  const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
  return adapter
    .requestDevice({
      requiredFeatures: kFeatures.filter((feature) =>
        adapter.features.has(feature),
      ) as GPUFeatureName[],
      requiredLimits: { maxBufferSize, maxStorageBufferBindingSize },
    })
    .catch((cause: Error) => {
      throw new SluiceError('NOT_SUPPORTED', `The GPU cannot be had: ${cause.message}`, {
        cause,
      });
    });
}

/** What is told of how it computes. */
export const kernelsOf = ({ subgroups, f16 }: Features, int8: Coded): GpuKernels => ({
  subgroups,
  f16,
  int8,
});
