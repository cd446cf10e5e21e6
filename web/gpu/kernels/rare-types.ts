// Entry of gpu-types.js: decoders of quantization types that few files have, and the codebooks of the
// IQ types. A set of bits holds the numbers whose digits are an entry (kernels/codebooks.cpp).
import sets from '../../../kernels/codebooks.cpp';
import iq1m from '../../../kernels/wgsl/blocks/iq1_m.wgsl';
import iq1s from '../../../kernels/wgsl/blocks/iq1_s.wgsl';
import iq2s from '../../../kernels/wgsl/blocks/iq2_s.wgsl';
import iq2xs from '../../../kernels/wgsl/blocks/iq2_xs.wgsl';
import iq2xxs from '../../../kernels/wgsl/blocks/iq2_xxs.wgsl';
import iq3s from '../../../kernels/wgsl/blocks/iq3_s.wgsl';
import iq3xxs from '../../../kernels/wgsl/blocks/iq3_xxs.wgsl';
import nvfp4 from '../../../kernels/wgsl/blocks/nvfp4.wgsl';
import q10 from '../../../kernels/wgsl/blocks/q1_0.wgsl';
import q20 from '../../../kernels/wgsl/blocks/q2_0.wgsl';
import qsf2 from '../../../kernels/wgsl/blocks/qsf2.wgsl';
import qsf3 from '../../../kernels/wgsl/blocks/qsf3.wgsl';
import qsf4 from '../../../kernels/wgsl/blocks/qsf4.wgsl';
import qsft from '../../../kernels/wgsl/blocks/qsft.wgsl';
import codebook from '../../../kernels/wgsl/codebook.wgsl';
import type { Codebook } from './codebooks.js';

interface Digits {
  set: keyof typeof sets;
  /** Signed bytes that the digits stand for. The first digit is the lowest byte. */
  values: number[];
  count: number;
}
const kIq2 = [8, 25, 43];
const kIq1 = [1, 9, 17]; // 8 times -1, 0 and 1, plus 9

const digits: Record<string, Digits> = {
  IQ2_XXS: { set: 'kIq2Xxs', values: kIq2, count: 8 },
  IQ2_XS: { set: 'kIq2Xs', values: kIq2, count: 8 },
  IQ2_S: { set: 'kIq2S', values: kIq2, count: 8 },
  IQ1_S: { set: 'kIq1', values: kIq1, count: 8 },
  IQ1_M: { set: 'kIq1', values: kIq1, count: 8 },
  IQ3_XXS: { set: 'kIq3Xxs', values: [4, 12, 20, 28, 36, 44, 52, 62], count: 4 },
  IQ3_S: { set: 'kIq3S', values: [1, 3, 5, 7, 9, 11, 13, 15], count: 4 },
};

/** By type, in WGSL. */
export const decoders: Record<string, string> = {
  IQ1_M: iq1m,
  IQ1_S: iq1s,
  IQ2_S: iq2s,
  IQ2_XS: iq2xs,
  IQ2_XXS: iq2xxs,
  IQ3_S: iq3s,
  IQ3_XXS: iq3xxs,
  NVFP4: nvfp4,
  Q1_0: q10,
  Q2_0: q20,
  QSF2: qsf2,
  QSF3: qsf3,
  QSF4: qsf4,
  QSFT: qsft,
};
for (const name in digits) decoders[name] = codebook + decoders[name];

/** The codebook of a type; undefined: the type has none. Its entries are made when asked for. */
export function codebookOf(type: string): Codebook | undefined {
  const found = digits[type];
  return found && { name: found.set, entries: () => entriesOf(found) };
}

function entriesOf({ set, values, count }: Digits): Uint8Array<ArrayBuffer> {
  const entries: number[] = [];
  sets[set].forEach((word, i) => {
    for (let bit = 0; bit < 64; ++bit) {
      if (((parseInt(word[15 - (bit >> 2)]!, 16) >> (bit & 3)) & 1) === 0) continue;
      for (let rest = 64 * i + bit, n = 0; n < count; ++n) {
        entries.push(values[rest % values.length]!);
        rest = Math.floor(rest / values.length);
      }
    }
  });
  return new Uint8Array(entries);
}
