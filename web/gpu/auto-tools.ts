// What gpu-auto.js (auto-device.ts) uses of gpu.js: large modules, and those with a state.

import { Kernels } from './kernels.js';
import { types } from './kernels/types.js';
import { partFor } from './layer-split.js';
import { loadTypes } from './load-types.js';
import { Bench, timeCoded } from './timing.js';

export const autoTools = {
  Bench,
  Kernels,
  loadTypes,
  partFor,
  timeCoded,
  types,
};
export type AutoTools = typeof autoTools;
