// Chooses tokens on the GPU, for steps that are queued one behind another (../step-queue.ts).

import type { Choose, Sampling } from './calls.js';
import type { Dispatcher } from './dispatcher.js';
import chooseText from '../../../kernels/wgsl/choose.wgsl';

const kWorkgroup = 256;
const kEach = 4; // logits of an invocation, at least
const kMaxParts = 128;
/** The largest top-k. */
export const kMaxTopK = 64;
/** Floats of scratch memory. */
export const kChooseScratch = kMaxParts * (kMaxTopK + 1);

const kGreedy: Sampling = [0, 1, 1, 0, 1, 0, 0, 0];

export function choose(to: Dispatcher, { sampling = kGreedy, counts, ...op }: Choose): void {
  const parts = Math.min(kMaxParts, Math.ceil(op.n / (kEach * kWorkgroup)));
  const [
    temperature,
    topK,
    top_probability,
    min_probability,
    repetition,
    frequency,
    presence,
    window,
  ] = sampling;
  const top = temperature ? topK : 1;
  for (const last of [0, 1])
    to.run(
      {
        name: 'choose',
        texts: [chooseText],
        constants: { WG: kWorkgroup, MOST: kMaxTopK + 1 },
      },
      {
        ...op,
        parts,
        last,
        top,
        k: window ? top + 1 : top,
        counts: window ? counts : -1,
        temperature,
        top_probability,
        min_probability,
        repetition,
        frequency,
        presence,
      },
      [last || parts],
      [],
      { step: [0, 1] },
    );
}
