// The parts of the worker that most models do without, in files of their own beside its script.

import type { Safetensors } from '../io/directory.js';
import { asset } from './asset.js';

export const modules = {
  gpu: () => asset('gpu.js', new URL('./gpu.js', import.meta.url)),
  qsf: () => asset('qsf.js', new URL('./qsf.js', import.meta.url)),
  async safetensors(): Promise<Safetensors> {
    const { load } = await asset('safetensors.js', new URL('./safetensors.js', import.meta.url));
    return load(() => fetch(new URL('./safetensors.wasm', import.meta.url)));
  },
};
