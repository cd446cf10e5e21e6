// Where the arena has the recurrent states of a model. This module only plans; gpu-recurrent.js has
// what moves and computes them.

import type { Program } from './program.js';

/** Offsets of the states in the arena, in floats. */
export interface StatePlan {
  /** Offset of the first copy. */
  at: number;
  /** Floats per copy, all layers together. */
  size: number;
  /** Offset of each layer in a copy. */
  layers: number[];
  /** Maximum number of checkpoints in a pass. */
  due: number;
}

/** Copies that alternate as the state before and after a pass or a queued step. Checkpoints follow them. */
export const kLive = 2;

export function planStates(program: Program, take: (floats: number) => number): StatePlan {
  let size = 0;
  const layers = program.caches.map(({ state }) => (size += state) - state);
  const due = Math.min(program.checkpoints, Math.ceil(program.nBatch / program.checkpointEvery));
  return { at: take((kLive + due) * size), size, layers, due };
}

/** Bytes that are read back after the largest pass. */
export const stateBytes = ({ size, due }: StatePlan): number => 4 * size * (kLive + due);

/** States of a pass. */
export interface Carrying {
  /** The copy that it starts with. */
  live: 0 | 1;
  /** Tokens of the pass before the first checkpoint; 0: there is none. */
  due: number;
  /** In a queue of steps: the place in the arena that ends it. */
  ended?: number;
}

/** Of a model without states. */
export const kStateless: Carrying = { live: 0, due: 0 };
