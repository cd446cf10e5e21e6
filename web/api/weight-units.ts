// States of weight units, as the worker's snapshot has them.

import type { UnitState } from '../protocol/types.js';

/** State of one weight unit: a part of the model that is loaded and evicted as a whole. */
export interface WeightUnit {
  /** Number of the unit, in the order of computation. */
  unit: number;
  /** Whether it is in memory. */
  state: UnitState;
  /** The forward pass is computing with it. */
  computing: boolean;
}

const kUnitStates: UnitState[] = ['absent', 'loading', 'resident', 'pinned', 'pinned-pending'];

/** The units of a snapshot: a byte of each is its state, plus 16 while it is computed with. */
export const weightUnits = (bytes: Uint8Array): WeightUnit[] =>
  Array.from(bytes, (byte, unit) => ({
    unit,
    state: kUnitStates[byte & 15] ?? 'absent',
    computing: byte >= 16,
  }));
