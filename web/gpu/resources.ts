// What the parts of an executor share: its host, the device with its kernels, and the buffers of a pass.

import type { GpuKernels } from '../protocol/types.js';
import type { Buffers } from './buffers.js';
import type { Kernels, Memory } from './kernels.js';
import { kWords, type Program } from './program.js';
import type { GpuCounts } from './recording.js';
import type { Layout } from './record.js';
import type { ReadWeights } from './weight-upload.js';

export interface GpuHost {
  memory: WebAssembly.Memory;
  program: Program;
  read: ReadWeights;
  /** Bytes; 0: what the model needs, at most kMaxBytes. */
  gpuBudget: number;
  /** Number of first layers. Infinity: as many as fit. undefined: all, and weights may stream. */
  layers: number | undefined;
  /** Overrides the measured choice of optional kernels. */
  kernels?: GpuKernels | undefined;
  /** Called with the reason when the GPU is lost. */
  onLost(why: string): void;
}

export interface Resources {
  host: GpuHost;
  device: GPUDevice;
  kernels: Kernels;
  layout: Layout;
  buffers: Buffers;
  memory: Memory;
  counts: Omit<GpuCounts, 'pipelines'>;
}

/** The words of a pass in the engine's memory. */
export const wordsOf = ({ memory, program }: Pick<GpuHost, 'memory' | 'program'>): Uint32Array =>
  new Uint32Array(memory.buffer, program.pass, kWords);
