// Records dispatches into one compute pass. The kernel calls are built on this class.

import type { CodebookBuffers } from './codebooks.js';
import type { Pipelines } from './pipelines.js';
import type { Call, Growth, Replay } from './replay.js';
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
  /** In a dry run: what would be dispatched. */
  readonly calls: Call[] = [];
  /** In a dry run: the position from which on other calls follow. */
  until = Infinity;
  /** Whether this dry run also has what later positions need, to compile it. */
  readonly ahead: boolean;
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
  #replayed = 0;

  /** @internal `pass`: null for a dry run. */
  constructor(
    pipelines: Pipelines,
    limits: GPUSupportedLimits,
    pass: GPUComputePassEncoder | null,
    memory: Memory,
    coded: Coded,
    ahead = false,
  ) {
    this.#pipelines = pipelines;
    this.limits = limits;
    this.features = pipelines.features;
    this.codebooks = pipelines.codebooks;
    this.acts = memory.acts;
    this.coded = coded;
    this.#pass = pass;
    this.#memory = memory;
    this.ahead = ahead;
  }

  get dispatches(): number {
    return this.#dispatches + this.#replayed;
  }

  /** Marks calls that depend on the position: they are the same before position `until`. */
  holds(until: number): void {
    this.until = Math.min(this.until, until);
  }

  /** Records a replay for the step at position `first`. */
  play(replay: Replay, first: number, step: number): void {
    replay.play(this.#pipelines.queue, this.#pass!, first, step);
    this.#replayed += replay.dispatches;
    this.weightBytes += replay.weightBytes;
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
    growth?: Growth,
  ): void {
    if (size.includes(0)) return;
    const all = [{ buffer: this.#memory.arena }, { buffer: this.#memory.vectors }, ...buffers];
    if (this.#pass)
      this.#pipelines.dispatch(
        this.#pass,
        this.#dispatches,
        this.#pipelines.get(variant),
        values,
        all,
        size,
      );
    else this.calls.push({ variant, values, size, buffers: all, growth });
    ++this.#dispatches;
  }
}

/** Encodes an optional index for shaders: -1 if it is absent. */
export const none = (index: number | undefined): number => index ?? -1;
