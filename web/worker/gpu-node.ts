// WebGPU in Node, which has none of its own: the npm package `webgpu` (Dawn), an optional peer
// dependency, imported when a model is loaded with device 'webgpu' or 'auto'. Runtimes that have
// navigator.gpu, such as Deno, need no package. The GPU module is the browser's, beside this script.
//
// Dawn aborts the process if a worker ends within a call of it, or while one of its promises is
// pending. So the owner of the worker (api/node-port.ts) asks for the end in shared memory. The worker
// then starts nothing more, waits for the promises, and parks itself.

import { parentPort } from 'node:worker_threads';

import { onlyCpu } from '../gpu/device-selection.js';
import type { GpuModule } from '../gpu/gpu.js';
import { SluiceError } from '../protocol/errors.js';
import { GpuWork } from '../protocol/gpu-work.js';
import { pollWithPauses } from './gpu-polling.js';

const kInstall =
  'Node has no WebGPU of its own: install the npm package webgpu beside sluice-llm ' +
  "(npx -p sluice-llm -p webgpu sluice-llm …), or load with device 'wasm'.";

/** Calls of WebGPU that return promises, by class. */
const kPromised: Record<string, string[]> = {
  GPU: ['requestAdapter'],
  GPUAdapter: ['requestDevice'],
  GPUDevice: ['createComputePipelineAsync', 'popErrorScope'],
  GPUBuffer: ['mapAsync'],
  GPUQueue: ['onSubmittedWorkDone'],
};

type Classes = Record<string, { prototype: Record<string, (...given: unknown[]) => unknown> }>;

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

/**
 * Defines navigator.gpu and WebGPU's classes, once per worker. SLUICE_DAWN has options of Dawn,
 * separated by semicolons.
 */
async function provideWebGpu(): Promise<void> {
  if (globalThis.navigator?.gpu) return;
  const work = (shared ??= shareWork());
  const { create, globals } = await import('webgpu');
  for (const [name, methods] of Object.entries(kPromised)) {
    const { prototype } = (globals as Classes)[name]!;
    for (const method of methods) prototype[method] = counted(prototype[method]!, work);
  }
  Object.assign(globalThis, globals);
  pollWithPauses();
  const options = process.env['SLUICE_DAWN']?.split(';').filter(Boolean) ?? [];
  Object.defineProperty(globalThis.navigator, 'gpu', { value: create(options) });
}

let shared: Int32Array | undefined;

/** Counters that the owner has too. Parks this worker when the owner asks for its end. */
function shareWork(): Int32Array {
  const work = new Int32Array(new SharedArrayBuffer(4 * GpuWork.Count));
  parentPort?.postMessage({ event: 'gpuWork', work });
  const park = (): void => {
    if (Atomics.load(work, GpuWork.Pending)) return void setTimeout(park, 1);
    Atomics.store(work, GpuWork.Parked, 1);
    Atomics.notify(work, GpuWork.Parked);
    Atomics.wait(work, GpuWork.Parked, 1);
  };
  // A timer, because Dawn may be on the stack of a promise's continuation.
  const { waitAsync } = Atomics as unknown as {
    waitAsync(memory: Int32Array, at: number, value: number): { value: PromiseLike<string> };
  };
  void waitAsync(work, GpuWork.Ending, 0).value.then(() => setTimeout(park));
  return work;
}

/** `method`, counting its pending promises. Once the worker is to end, it does nothing. */
function counted(method: (...given: unknown[]) => unknown, work: Int32Array) {
  return function (this: unknown, ...given: unknown[]): unknown {
    if (Atomics.load(work, GpuWork.Ending)) return new Promise(() => {});
    const promise = method.apply(this, given) as Promise<unknown>;
    Atomics.add(work, GpuWork.Pending, 1);
    const settled = (): void => void Atomics.sub(work, GpuWork.Pending, 1);
    promise.then(settled, settled);
    return promise;
  };
}
