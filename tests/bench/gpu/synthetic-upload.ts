// Takes the place of web/gpu/weight-upload.ts in the bundle of bench:gpu's shapes: instead of weights
// from a file, each chunk is random bytes that are in GPU buffers from the start, so that a model of
// 8 GB needs neither a file nor a download. Every half is a finite number of about 2^-7, and with
// that every scale of a block.
import { Usage, type Buffers } from '../../../web/gpu/buffers.js';
import { align, type GpuPlan } from '../../../web/gpu/plan.js';
import type { Program } from '../../../web/gpu/program.js';
import type { Chunk, ReadWeights } from '../../../web/gpu/weight-upload.js';

export type { Chunk, ReadWeights };

const kMantissas = 0x83ff83ff;
const kExponents = 0x20002000;

export class WeightUpload {
  readonly #plan: GpuPlan;
  readonly #staging: GPUBuffer;

  constructor(_program: Program, plan: GpuPlan, buffers: Buffers) {
    this.#plan = plan;
    this.#staging = buffers.make(align(plan.stagingBytes, 16), Usage.MapWrite | Usage.CopySource);
    const words = new Uint32Array(this.#staging.getMappedRange());
    let state = 1;
    for (let i = 0; i < words.length; i++) {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      words[i] = (state & kMantissas) | kExponents;
    }
    this.#staging.unmap();
  }

  async chunk(unit: number, from: number): Promise<Chunk> {
    const { units, stagingBytes } = this.#plan;
    const to = Math.min(from + stagingBytes, units[unit]!.bytes);
    return { unit, from, to, staging: this.#staging };
  }

  /** Nothing changes what is in the buffer, so it needs no waiting. */
  give(): void {}
  ahead(): void {}
  async stop(): Promise<GPUBuffer[]> {
    return [this.#staging];
  }
}
