// WebGPU in Node, which has none of its own: the npm package `webgpu` (Dawn), an optional peer
// dependency, imported when a model is loaded with device 'webgpu' or 'auto'. Runtimes that have
// navigator.gpu, such as Deno, need no package. The GPU module is the browser's, beside this script.

import { onlyCpu } from '../gpu/device-selection.js';
import type { GpuModule } from '../gpu/gpu.js';
import { SluiceError } from '../protocol/errors.js';

const kInstall =
  'Node has no WebGPU of its own: install the npm package webgpu beside sluice-llm ' +
  "(npx -p sluice-llm -p webgpu sluice-llm …), or load with device 'wasm'.";

/** The WebGPU module. Its calls report why there is no WebGPU; device 'auto' then uses the CPU. */
export async function nodeGpu(): Promise<GpuModule> {
  try {
    await provideWebGpu();
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const missing = code === 'ERR_MODULE_NOT_FOUND' && message.includes("'webgpu'");
    const why = missing ? kInstall : `The npm package webgpu cannot be loaded: ${message}`;
    return {
      advise: async () => onlyCpu(why),
      findGpu: async ({ device }) => {
        if (device === 'auto') return null;
        throw new SluiceError('NOT_SUPPORTED', why, { cause });
      },
    };
  }
  return (await import(new URL('./gpu.js', import.meta.url).href)) as GpuModule;
}

/** Defines navigator.gpu and WebGPU's classes, once per worker. */
async function provideWebGpu(): Promise<void> {
  if (globalThis.navigator?.gpu) return;
  const { create, globals } = await import('webgpu');
  Object.assign(globalThis, globals);
  Object.defineProperty(globalThis.navigator, 'gpu', { value: create([]) });
}
