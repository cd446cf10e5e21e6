// Entry of gpu.js: finds a GPU and attaches it to an engine. worker/loading.ts imports this module
// only if a GPU was requested.

import { SluiceError, type Warn } from '../protocol/errors.js';
import type { LoadSpec } from '../protocol/messages.js';
import type { GpuKernels, ProgressEvent } from '../protocol/types.js';
import { adapterFor, adapterName } from './adapter.js';
import { asset } from '../io/asset.js';
import type * as Auto from './auto-device.js';
import { autoTools } from './auto-tools.js';
import { GpuExecutor, type GpuCounts } from './executor.js';
import { openDevice } from './open-device.js';
import { CpuFallback, Word, type Program } from './program.js';
import { wordsOf } from './resources.js';

export { advise, findGpu };

/** The part of the engine's worker that is used here. */
export interface GpuHost {
  /** An opened engine. Only engine.gpu*.wasm has attachGpu() and offloadLayers(). */
  binding: {
    attachGpu?: () => string;
    offloadLayers?: (layers: number) => boolean;
    error(): { code: string; message: string };
  };
  memory: WebAssembly.Memory;
  /** The model's files. */
  io: { read(file: number, offset: number, length: number, weights: boolean): Promise<Uint8Array> };
  spec: LoadSpec;
  /** The engine has no memory for the KV cache. */
  kvOnGpu: boolean;
  /** Receives warnings: the GPU is lost, or the CPU computes something in its place. */
  progress(event: ProgressEvent): void;
}

/** A GPU that was found, for an engine that is not open yet. */
export interface GpuPath {
  /** Default budget for the CPU's weights, above the minimum, in bytes. 0: no special default. */
  beside: number;
  /**
   * Attaches the GPU to an engine. Null if the GPU is lost, and with device 'auto' also if it
   * cannot run the model. Errors: those of openGpu.
   */
  open(host: GpuHost): Promise<Gpu | null>;
}

/** A GPU that computes for an engine. */
export interface Gpu {
  /** Computes the passes that the engine requests. */
  readonly executor: GpuExecutor;
  /** Its fields of EngineStats; none once it is lost. */
  readonly device: {
    device?: 'webgpu';
    gpuName?: string;
    gpuKernels?: GpuKernels;
    gpuLayers?: number;
  };
  /** Counters. Emits a warning, once per kind, for work that fell back to the CPU. */
  counts(): GpuCounts;
  /** Frees the memory. Returns whether the device is kept for another engine of this worker. */
  close(): boolean;
  /**
   * Opens the GPU again after close(), with the same kernels. Null, with a warning, if it fails.
   */
  reopen(): Promise<Gpu | null>;
}

type AdviseArguments =
  Parameters<typeof Auto.advise> extends [unknown, ...infer Given] ? Given : never;

/** Selects CPU or GPU for device 'auto': auto-device.ts. Errors: MODULE_LOAD. */
async function advise(...given: AdviseArguments): ReturnType<typeof Auto.advise> {
  const url = new URL('./gpu-auto.js', import.meta.url);
  return (await asset<typeof Auto>('gpu-auto.js', url)).advise(autoTools, ...given);
}

/** Interface of this module. */
export interface GpuModule {
  advise: typeof advise;
  findGpu: typeof findGpu;
}

const kBeside = 64 << 20;
/** More for a vision encoder that is left to the CPU: as much as the default without a GPU. */
const kEncoder = 512 << 20;

/** Finds a GPU. Null if the CPU was selected. Errors: NOT_SUPPORTED if there is no GPU. */
async function findGpu(spec: LoadSpec): Promise<GpuPath | null> {
  const { device, gpuMinBatch, gpuLayers, projectorSource, powerPreference } = spec;
  const auto = device === 'auto';
  if (gpuMinBatch === Infinity || gpuLayers === 0) return null;
  const adapter = await adapterFor(powerPreference);
  if (adapter) {
    const open = (host: GpuHost): Promise<Gpu | null> =>
      openGpu(adapter, host).catch((error: SluiceError) => {
        if (!auto) throw error;
        warner(host)(error.code, `${error.message} The CPU computes.`);
        return null;
      });
    const beside = kBeside + (projectorSource ? kEncoder : 0);
    return { beside: gpuMinBatch > 1 || gpuLayers ? 0 : beside, open };
  }
  if (auto) return null;
  throw new SluiceError(
    'NOT_SUPPORTED',
    "No WebGPU adapter is available: load with device 'wasm'.",
  );
}

const warner =
  ({ progress }: GpuHost): Warn =>
  (code, message) =>
    progress({ phase: 'warning', code, message });

/**
 * Attaches the GPU to the engine, which then uses it for forward passes. Null if it is lost before
 * that. Errors: those of GpuExecutor.open, NOT_SUPPORTED.
 */
async function openGpu(adapter: GPUAdapter, host: GpuHost): Promise<Gpu | null> {
  const again = async (gpuKernels: GpuKernels): Promise<Gpu | null> => {
    const found = await adapterFor(spec.powerPreference); // an adapter provides only one device
    return found && openGpu(found, { ...host, spec: { ...host.spec, gpuKernels: gpuKernels } });
  };
  const { binding, memory, io, spec } = host;
  const warn = warner(host);
  if (!binding.attachGpu) {
    throw new SluiceError(
      'NOT_SUPPORTED',
      'This wasm binary does not support GPUs: pass an engine.gpu*.wasm.',
    );
  }
  const lost = (why: string): void =>
    warn('DEVICE_LOST', `The GPU is lost (${why}); the CPU continues.`);
  const open = await openDevice(adapter, spec.powerPreference);
  const program = JSON.parse(binding.attachGpu()) as Program;
  const words = wordsOf({ memory, program });
  program.deepstack = words[Word.NDeepstack]!;
  program.kvOnGpu = host.kvOnGpu;
  try {
    const executor = await GpuExecutor.open(open, {
      memory,
      program,
      gpuBudget: spec.gpuBudget,
      layers: spec.gpuLayers,
      kernels: spec.gpuKernels,
      read: (file, offset, length) => io.read(file, offset, length, true),
      onLost: lost,
    });
    if (executor.cut && !binding.offloadLayers!(executor.layers)) {
      const { code, message } = binding.error();
      throw new SluiceError(code, message);
    }
    words[Word.Cut] = executor.cut!; // undefined becomes 0
    words[Word.MaxQueue] = executor.maxQueue;
    words[Word.Least] = spec.gpuMinBatch;
    return new AttachedGpu(executor, adapterName(adapter), words, warn, again);
  } catch (error) {
    words[Word.Lost] = 1;
    open.device.destroy();
    if (error instanceof SluiceError) throw error;
    lost((error as Error).message);
    return null;
  }
}

const kLeft: [CpuFallback, string][] = [
  [CpuFallback.Texts, 'Embeddings with KV cache eviction'],
  [CpuFallback.Adapters, 'These LoRA adapters'],
  [CpuFallback.Pictures, 'Pictures with own matrices'],
];

/** A GPU that is attached to an engine. Emits each fallback warning once. */
class AttachedGpu implements Gpu {
  readonly #name: string;
  readonly executor: GpuExecutor;
  readonly #words: Uint32Array;
  readonly #warn: Warn;
  readonly #again: (kernels: GpuKernels) => Promise<Gpu | null>;
  #told = 0;
  #wasLost = false;

  constructor(
    executor: GpuExecutor,
    name: string,
    words: Uint32Array,
    warn: Warn,
    again: (kernels: GpuKernels) => Promise<Gpu | null>,
  ) {
    this.#again = again;
    this.executor = executor;
    this.#name = name;
    this.#words = words;
    this.#warn = warn;
  }

  get device(): Gpu['device'] {
    return this.executor.lost
      ? {}
      : {
          device: 'webgpu',
          gpuName: this.#name,
          gpuKernels: this.executor.kernels,
          gpuLayers: this.executor.layers,
        };
  }
  close(): boolean {
    this.#wasLost = this.executor.lost;
    return this.executor.close();
  }
  async reopen(): Promise<Gpu | null> {
    if (this.#wasLost) return this;
    const gpu = await this.#again(this.executor.kernels).catch(() => null);
    if (!gpu) this.#warn('DEVICE_LOST', 'The GPU cannot be opened again; the CPU continues.');
    return gpu;
  }
  counts(): GpuCounts {
    const left = this.#words[Word.CpuFallback]! & ~this.#told;
    this.#told |= left;
    for (const [bit, what] of kLeft) {
      if (left & bit)
        this.#warn('CPU_FALLBACK', `${what} are not supported on the GPU; the CPU computes.`);
    }
    return this.executor.counts;
  }
}
