// The module that a page fetches when it asks for a GPU: finds one, and has it compute
// for an engine. worker/loading.ts imports it then, and not before.

import { SluiceError } from '../protocol/errors.js';
import type { LoadSpec } from '../protocol/messages.js';
import type { GpuKernels, ProgressEvent } from '../protocol/types.js';
import { adapterFor, adapterName, deviceOf } from './adapter.js';
import { advise } from './auto-device.js';
import { GpuExecutor, type GpuCounts } from './executor.js';
import { CpuFallback, Word, type Program } from './program.js';

export { advise, findGpu };

/** What the engine's worker gives to it. */
export interface GpuHost {
  /** An opened engine, of the binary that is made for this. */
  binding: {
    attachGpu?: () => string;
    offloadLayers?: (layers: number) => boolean;
    error(): { code: string; message: string };
  };
  memory: WebAssembly.Memory;
  /** The model's files. */
  io: { read(file: number, offset: number, length: number, weights: boolean): Promise<Uint8Array> };
  spec: LoadSpec;
  /** For warnings: the GPU is lost, or does not do something; the CPU does. */
  progress(event: ProgressEvent): void;
}

/** A way to a GPU, for an engine that is opened next. */
export interface GpuPath {
  /**
   * Of weights that the CPU is to hold beside the GPU, where nobody says; 0: all that it has room
   * for.
   */
  beside: number;
  /**
   * Has the GPU compute; null where it is lost, and with `auto` where it cannot. Errors:
   * openGpu's.
   */
  open(host: GpuHost): Promise<Gpu | null>;
}

/** A GPU that computes. */
export interface Gpu {
  /**
   * Computes what the engine asks for; false: it asks for nothing. Returns at once when `stopped`.
   */
  serve(stopped: () => boolean): Promise<boolean>;
  /** What EngineStats says of it; nothing once it is lost. */
  readonly device: {
    device?: 'webgpu';
    gpuName?: string;
    gpuKernels?: GpuKernels;
    gpuLayers?: number;
  };
  /** Bytes that it holds; 0 once it is lost. */
  readonly bytes: number;
  /** Counters; warns, once, of what went to the CPU since the last look. */
  counts(): GpuCounts;
  close(): void;
  /**
   * After close(), as it was: the GPU computes again, with the same kernels; null, and a warning,
   * where there is none.
   */
  reopen(): Promise<Gpu | null>;
}

/** This module. */
export interface GpuModule {
  advise: typeof advise;
  findGpu: typeof findGpu;
}

const kBeside = 64 << 20;

/**
 * null, with `auto`, where the CPU is the better one. Errors: NOT_SUPPORTED where there is no GPU.
 */
async function findGpu(spec: LoadSpec): Promise<GpuPath | null> {
  const { device, gpuMinBatch: gpuMinBatch, gpuLayers } = spec;
  const auto = device === 'auto';
  if (gpuMinBatch === Infinity || gpuLayers === 0) return null;
  const adapter = await adapterFor();
  if (adapter) {
    const open = (host: GpuHost): Promise<Gpu | null> =>
      openGpu(adapter, host).catch((error: SluiceError) => {
        if (!auto) throw error;
        warner(host)(error.code, `${error.message} The CPU computes.`);
        return null;
      });
    return { beside: gpuMinBatch > 1 || gpuLayers ? 0 : kBeside, open };
  }
  if (auto) return null;
  throw new SluiceError(
    'NOT_SUPPORTED',
    "There is no WebGPU adapter here: load with device 'wasm'.",
  );
}

type Warn = (code: string, message: string) => void;
const warner =
  ({ progress }: GpuHost): Warn =>
  (code, message) =>
    progress({ phase: 'warning', code, message });

/**
 * Has the GPU compute what this engine is asked from now on; null where it is lost before that.
 * Errors: GpuExecutor.open's, NOT_SUPPORTED.
 */
async function openGpu(adapter: GPUAdapter, host: GpuHost): Promise<Gpu | null> {
  const again = async (gpuKernels: GpuKernels): Promise<Gpu | null> => {
    const found = await adapterFor(); // each gives one device
    return found && openGpu(found, { ...host, spec: { ...host.spec, gpuKernels: gpuKernels } });
  };
  const { binding, memory, io, spec } = host;
  const warn = warner(host);
  if (!binding.attachGpu) {
    throw new SluiceError(
      'NOT_SUPPORTED',
      "The engine's wasm that was given has no way to a GPU: give engine.gpu.wasm.",
    );
  }
  const lost = (why: string): void =>
    warn('DEVICE_LOST', `The GPU is lost (${why}); the CPU goes on.`);
  const device = await deviceOf(adapter);
  const program = JSON.parse(binding.attachGpu()) as Program;
  const words = new Uint32Array(memory.buffer, program.pass, Word.Cut + 1);
  try {
    const executor = await GpuExecutor.open(device, {
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
    words[Word.Cut] = executor.cut;
    words[Word.Least] = spec.gpuMinBatch;
    return new AttachedGpu(executor, adapterName(adapter), words, warn, again);
  } catch (error) {
    words[Word.Lost] = 1;
    device.destroy();
    if (error instanceof SluiceError) throw error;
    lost((error as Error).message);
    return null;
  }
}

const kLeft: [CpuFallback, string][] = [
  [CpuFallback.Texts, 'Embeddings and sources'],
  [CpuFallback.Adapters, 'Adapters'],
];

/** A GPU, and what it does not do told once. */
class AttachedGpu implements Gpu {
  readonly #name: string;
  readonly #executor: GpuExecutor;
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
    this.#executor = executor;
    this.#name = name;
    this.#words = words;
    this.#warn = warn;
  }

  get bytes(): number {
    return this.#executor.bytes;
  }
  get device(): Gpu['device'] {
    return this.#executor.lost
      ? {}
      : {
          device: 'webgpu',
          gpuName: this.#name,
          gpuKernels: this.#executor.kernels,
          gpuLayers: this.#executor.layers,
        };
  }
  serve(stopped: () => boolean): Promise<boolean> {
    return this.#executor.serve(stopped);
  }
  close(): void {
    this.#wasLost = this.#executor.lost;
    this.#executor.close();
  }
  async reopen(): Promise<Gpu | null> {
    if (this.#wasLost) return this;
    const gpu = await this.#again(this.#executor.kernels).catch(() => null);
    if (!gpu) this.#warn('DEVICE_LOST', 'The GPU cannot be had again; the CPU goes on.');
    return gpu;
  }
  counts(): GpuCounts {
    const left = this.#words[Word.CpuFallback]! & ~this.#told;
    this.#told |= left;
    for (const [bit, what] of kLeft) {
      if (left & bit)
        this.#warn('CPU_FALLBACK', `${what} are not for the GPU: the CPU computes with them.`);
    }
    return this.#executor.counts;
  }
}
