// Parts of the worker that most models do not need. They are separate files beside its script.

import type { GpuModule } from '../gpu/gpu.js';
import type { Safetensors } from '../io/directory.js';
import type { PicturesModule } from './pictures/types.js';
import { asset } from '../io/asset.js';

export const modules = {
  gpu: () => asset<GpuModule>('gpu.js', new URL('./gpu.js', import.meta.url)),
  qsf: () => asset<typeof import('../io/qsf.js')>('qsf.js', new URL('./qsf.js', import.meta.url)),
  hosts: () =>
    asset<typeof import('../io/hosts.js')>('hosts.js', new URL('./hosts.js', import.meta.url)),
  pictures: () => asset<PicturesModule>('pictures.js', new URL('./pictures.js', import.meta.url)),
  async safetensors(): Promise<Safetensors> {
    const { load } = await asset<typeof import('../io/safetensors.js')>(
      'safetensors.js',
      new URL('./safetensors.js', import.meta.url),
    );
    return load(() => fetch(new URL('./safetensors.wasm', import.meta.url)));
  },
};
