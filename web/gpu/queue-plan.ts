// Where the arena has what the steps of a queue need (step-queue.ts).

import { kChooseScratch } from './kernels.js';

/** Steps of a queue at most. */
export const kMaxSteps = 64;
export const kMaxStops = 128;

/**
 * Places in the arena, in floats. `tokens`, `count` and `ended` are read back. `counts` has a value for
 * each token of the vocabulary.
 */
export interface QueuePlan {
  tokens: number;
  count: number;
  ended: number;
  draws: number;
  leaving: number;
  stops: number;
  best: number;
  counts: number;
}
export const kCount = kMaxSteps + 1;
export const kDraws = kCount + 2;
export const kLeaving = kDraws + kMaxSteps;
export const kStops = kLeaving + kMaxSteps;
/** Floats that are read back. */
export const kQueueFloats = kDraws;

export function planQueue(take: (floats: number) => number, nVocab: number): QueuePlan {
  const tokens = take(kStops + kMaxStops);
  const best = take(kChooseScratch);
  const count = tokens + kCount;
  return {
    tokens,
    count,
    ended: count + 1,
    draws: tokens + kDraws,
    leaving: tokens + kLeaving,
    stops: tokens + kStops,
    best,
    counts: take(nVocab),
  };
}
