// Where the arena has the recurrent states of a model. This module only plans; gpu-recurrent.js has
// what moves and computes them.

import type { Program } from './program.js';

/** Offsets of the states in the arena, in floats. */
export interface StatePlan {
  /** Offset of the first copy. Each sequence has two, 2 × slot and the next; checkpoints follow them. */
  at: number;
  /** Floats per copy, all layers together. */
  size: number;
  /** Offset of each layer in a copy. */
  layers: number[];
  /** Bytes that are read back after the largest pass: its checkpoints. */
  due: number;
  /** Bytes of buffers of their own: a copy for each sequence, and one that memory reads. */
  beside: number;
}

export function planStates(program: Program, take: (floats: number) => number): StatePlan {
  let size = 0;
  const layers = program.caches.map(({ state }) => (size += state) - state);
  const due = Math.min(program.checkpoints, Math.ceil(program.nBatch / program.checkpointEvery));
  const at = take((2 * program.parallel + due) * size);
  const bytes = 4 * size;
  return { at, size, layers, due: bytes * due, beside: bytes * (program.parallel + 1) };
}

/** States of a pass. */
export interface Carrying {
  /** The copy that it starts with. */
  live: number;
  /** Tokens of the pass before the first checkpoint; 0: there is none. */
  due: number;
  /** In a queue of steps: the place in the arena that ends it. */
  ended?: number;
}

/** Of a model without states. */
export const kStateless: Carrying = { live: 0, due: 0 };
