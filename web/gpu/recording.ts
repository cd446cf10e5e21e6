// Commands that are not submitted yet: copies, then one compute pass, then copies.

import type { Kernels, Memory, Recorder } from './kernels.js';

/** Counters since the executor was opened. */
export interface GpuCounts {
  gpuPasses: number;
  submits: number;
  dispatches: number;
  /** Bytes of weights that the dispatches read. */
  weightBytes: number;
  /** Bytes of weights that were uploaded. */
  uploaded: number;
  /** Pipelines that were compiled, without those of an earlier engine. */
  pipelines: number;
}

export class Recording {
  #encoder: GPUCommandEncoder | null = null;
  #recorder: Recorder | null = null;
  #returns: (() => void)[] = [];
  readonly #device: GPUDevice;
  readonly #kernels: Kernels;
  readonly #memory: Memory;
  readonly #counts: Omit<GpuCounts, 'pipelines'>;

  constructor(
    device: GPUDevice,
    kernels: Kernels,
    memory: Memory,
    counts: Omit<GpuCounts, 'pipelines'>,
  ) {
    this.#device = device;
    this.#kernels = kernels;
    this.#memory = memory;
    this.#counts = counts;
  }

  get encoder(): GPUCommandEncoder {
    return (this.#encoder ??= this.#device.createCommandEncoder());
  }

  to(): Recorder {
    return (this.#recorder ??= this.#kernels.begin(this.encoder, this.#memory));
  }

  /** Returns a buffer to its owner once the recorded commands are submitted. */
  returns(buffer: GPUBuffer, give: (buffer: GPUBuffer) => void): void {
    this.#returns.push(() => give(buffer));
  }

  /** Ends the compute pass, so that copies can follow. */
  finish(): void {
    if (!this.#recorder) return;
    this.#counts.dispatches += this.#recorder.dispatches;
    this.#counts.weightBytes += this.#recorder.weightBytes;
    this.#recorder.end();
    this.#recorder = null;
  }

  submit(): void {
    if (!this.#encoder) return;
    this.finish();
    this.#device.queue.submit([this.#encoder.finish()]);
    this.#counts.submits++;
    this.#encoder = null;
    for (const give of this.#returns.splice(0)) give();
  }
}
