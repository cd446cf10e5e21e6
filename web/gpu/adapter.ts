// Requests the WebGPU adapter and device, and describes them.

import { SluiceError } from '../protocol/errors.js';
import type { GpuKernels } from '../protocol/types.js';
import type { Coded, Features } from './kernels.js';

const kFeatures = ['subgroups', 'shader-f16'];

export const adapterFor = async (powerPreference: GPUPowerPreference): Promise<GPUAdapter | null> =>
  (await globalThis.navigator?.gpu?.requestAdapter({ powerPreference })) ?? null;

/**
 * Whether the adapter is implemented in software. The engine's CPU kernels are faster than those.
 */
export const isSoftware = ({ info }: GPUAdapter): boolean =>
  info.isFallbackAdapter ||
  /swiftshader|llvmpipe/i.test(`${info.architecture} ${info.device} ${info.description}`);

/** Name of the GPU, as far as the browser reports it. */
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
      throw new SluiceError('NOT_SUPPORTED', `The GPU cannot be opened: ${cause.message}`, {
        cause,
      });
    });
}

/** The public description of the optional kernels in use. */
export const kernelsOf = ({ subgroups, f16 }: Features, int8: Coded): GpuKernels => ({
  subgroups,
  f16,
  int8,
});
