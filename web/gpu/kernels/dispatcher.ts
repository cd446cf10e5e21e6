// Records dispatches into one compute pass. The kernel calls are built on this class.

import type { CodebookBuffers } from './codebooks.js';
import type { Pipelines } from './pipelines.js';
import type { Features, Values, Variant } from './shaders.js';

/** `acts`: buffer for int8 activations; without it, none are used. */
export interface Memory {
  arena: GPUBuffer;
  vectors: GPUBuffer;
  acts?: GPUBuffer;
}

/** Whether matrix multiplications of few tokens, and of many, use int8 activations. */
export interface Coded {
  gemv: boolean;
  gemm: boolean;
}

export class Dispatcher {
  /** In a dry run: the variants that would be dispatched. */
  readonly variants: Variant[] = [];
  readonly limits: GPUSupportedLimits;
  readonly features: Features;
  readonly acts: GPUBuffer | undefined;
  readonly coded: Coded;
  readonly codebooks: CodebookBuffers;
  /** Bytes of weights that the dispatches read, some of them from a cache. */
  weightBytes = 0;
  readonly #pipelines: Pipelines;
  readonly #pass: GPUComputePassEncoder | null;
  readonly #memory: Memory;
  #dispatches = 0;

  /** @internal `pass`: null for a dry run. */
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
    this.codebooks = pipelines.codebooks;
    this.acts = memory.acts;
    this.coded = coded;
    this.#pass = pass;
    this.#memory = memory;
  }

  /** Whether nothing is recorded. */
  get dry(): boolean {
    return !this.#pass;
  }
  get dispatches(): number {
    return this.#dispatches;
  }

  end(): void {
    this.#pass?.end();
    if (this.#pass) this.#pipelines.write(this.#dispatches);
  }

  /** @internal `size`: workgroups; `buffers`: bound after arena and vectors. */
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

/** Encodes an optional index for shaders: -1 if it is absent. */
export const none = (index: number | undefined): number => index ?? -1;
