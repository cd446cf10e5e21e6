// Chooses tokens on the GPU, for steps that are queued one behind another (../step-queue.ts).

import type { Choose } from './calls.js';
import type { Dispatcher } from './dispatcher.js';
import chooseText from '../../../kernels/wgsl/choose.wgsl';

const kWorkgroup = 256;
const kEach = 4; // logits of an invocation, at least
const kMaxParts = 128;
/** The largest top-k. */
export const kMaxTopK = 64;
/** Floats of scratch memory. */
export const kChooseScratch = kMaxParts * kMaxTopK;

export function choose(to: Dispatcher, { draw, ...op }: Choose): void {
  const parts = Math.min(kMaxParts, Math.ceil(op.n / (kEach * kWorkgroup)));
  const { topK: k = 1, temperature = 1, topP = 1, minP = 0 } = draw ?? {};
  for (const last of [false, true])
    to.run(
      {
        name: 'choose',
        texts: [chooseText],
        constants: { WG: kWorkgroup, MOST: kMaxTopK, LAST: last, DRAW: last && !!draw },
      },
      { ...op, parts, k, temperature, top_probability: topP, min_probability: minP },
      [last ? 1 : parts],
    );
}
