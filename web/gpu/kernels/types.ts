// Weight types: by ggml's type id, the file of kernels/wgsl/blocks that decodes them, and how many
// bytes hold how many values.
import bf16 from '../../../kernels/wgsl/blocks/bf16.wgsl';
import f16 from '../../../kernels/wgsl/blocks/f16.wgsl';
import f32 from '../../../kernels/wgsl/blocks/f32.wgsl';
import iq4nl from '../../../kernels/wgsl/blocks/iq4_nl.wgsl';
import iq4xs from '../../../kernels/wgsl/blocks/iq4_xs.wgsl';
import kScales from '../../../kernels/wgsl/blocks/k_scales.wgsl';
import mxfp4 from '../../../kernels/wgsl/blocks/mxfp4.wgsl';
import q2k from '../../../kernels/wgsl/blocks/q2_k.wgsl';
import q3k from '../../../kernels/wgsl/blocks/q3_k.wgsl';
import q40 from '../../../kernels/wgsl/blocks/q4_0.wgsl';
import q41 from '../../../kernels/wgsl/blocks/q4_1.wgsl';
import q4k from '../../../kernels/wgsl/blocks/q4_k.wgsl';
import q50 from '../../../kernels/wgsl/blocks/q5_0.wgsl';
import q51 from '../../../kernels/wgsl/blocks/q5_1.wgsl';
import q5k from '../../../kernels/wgsl/blocks/q5_k.wgsl';
import q6k from '../../../kernels/wgsl/blocks/q6_k.wgsl';
import q80 from '../../../kernels/wgsl/blocks/q8_0.wgsl';
import tq10 from '../../../kernels/wgsl/blocks/tq1_0.wgsl';
import tq20 from '../../../kernels/wgsl/blocks/tq2_0.wgsl';

export interface WeightType { decode: string; values: number; bytes: number }

const type = (decode: string, values: number, bytes: number): WeightType => ({ decode, values, bytes });

export const types = new Map<number, WeightType>([
  [0, type(f32, 1, 4)], [1, type(f16, 1, 2)], [30, type(bf16, 1, 2)],
  [2, type(q40, 32, 18)], [3, type(q41, 32, 20)], [6, type(q50, 32, 22)], [7, type(q51, 32, 24)],
  [8, type(q80, 32, 34)], [20, type(iq4nl, 32, 18)], [39, type(mxfp4, 32, 17)],
  [10, type(q2k, 256, 84)], [11, type(q3k, 256, 110)], [12, type(kScales + q4k, 256, 144)],
  [13, type(kScales + q5k, 256, 176)], [14, type(q6k, 256, 210)], [23, type(iq4xs, 256, 136)],
  [34, type(tq10, 256, 54)], [35, type(tq20, 256, 66)],
]);

export function typeOf(id: number): WeightType {
  const found = types.get(id);
  if (!found) throw new Error(`no kernel reads weight type ${id}`);
  return found;
}

/** Bytes of a row of `cols` values in the file. */
export function rowBytes(id: number, cols: number): number {
  const { values, bytes } = typeOf(id);
  if (cols % values !== 0) throw new Error(`${cols} columns are no whole blocks of type ${id}`);
  return cols / values * bytes;
}
