// Dispatches of one compute pass over an arena and vectors; what kernels' calls are made of.

import type { Pipelines } from './pipelines.js';
import type { Features, Values, Variant } from './shaders.js';

/** `acts`: room for rows of activations as codes; without it none are made. */
export interface Memory {
  arena: GPUBuffer;
  vectors: GPUBuffer;
  acts?: GPUBuffer;
}

/** Whether products of few tokens, and of many, take activations as codes. */
export interface Coded {
  gemv: boolean;
  gemm: boolean;
}

export class Dispatcher {
  /** Of a dry run: what it would have dispatched. */
  readonly variants: Variant[] = [];
  readonly limits: GPUSupportedLimits;
  readonly features: Features;
  readonly acts: GPUBuffer | undefined;
  readonly coded: Coded;
  readonly #pipelines: Pipelines;
  readonly #pass: GPUComputePassEncoder | null;
  readonly #memory: Memory;
  #dispatches = 0;

  /** @internal `pass`: null where nothing is recorded. */
  constructor(
    pipelines: Pipelines,
    limits: GPUSupportedLimits,
    pass: GPUComputePassEncoder | null,
    memory: Memory,
    coded: Coded,
  ) {
    this.#pipelines = pipelines;
    this.limits = limits;
    this.features = pipelines.features;
    this.acts = memory.acts;
    this.coded = coded;
    this.#pass = pass;
    this.#memory = memory;
  }

  get dispatches(): number {
    return this.#dispatches;
  }

  end(): void {
    this.#pass?.end();
    if (this.#pass) this.#pipelines.write(this.#dispatches);
  }

  /** @internal `size`: workgroups; `buffers`: what is bound behind arena and vectors. */
  run(
    variant: Variant,
    values: Values,
    size: readonly number[],
    buffers: GPUBufferBinding[] = [],
  ): void {
    if (size.includes(0)) return;
    if (!this.#pass) this.variants.push(variant);
    else {
      const all = [{ buffer: this.#memory.arena }, { buffer: this.#memory.vectors }, ...buffers];
      this.#pipelines.dispatch(
        this.#pass,
        this.#dispatches,
        this.#pipelines.get(variant),
        values,
        all,
        size,
      );
    }
    ++this.#dispatches;
  }
}

/** How shaders are told that something is absent. */
export const none = (index: number | undefined): number => index ?? -1;
