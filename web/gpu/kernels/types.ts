// Quantization types: ids and sizes from kernels/types.def, and the file of kernels/wgsl/blocks
// that decodes each. Decoders of types that few files have are in rare-types.ts.
import listed from '../../../kernels/types.def';
import bf16 from '../../../kernels/wgsl/blocks/bf16.wgsl';
import f16 from '../../../kernels/wgsl/blocks/f16.wgsl';
import f16Native from '../../../kernels/wgsl/blocks/f16_native.wgsl';
import f32 from '../../../kernels/wgsl/blocks/f32.wgsl';
import iq4nl from '../../../kernels/wgsl/blocks/iq4_nl.wgsl';
import iq4xs from '../../../kernels/wgsl/blocks/iq4_xs.wgsl';
import coded from '../../../kernels/wgsl/coded.wgsl';
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
import type { Codebook } from './codebooks.js';
import type * as RareTypesModule from './rare-types.js';

export type RareTypes = typeof RareTypesModule;

/**
 * `coded`: values are 8-bit codes times a scale, so they can be multiplied with int8 activations.
 * `rare`: gpu-types.js has the decoder.
 */
export interface WeightType {
  name: string;
  rare: boolean;
  coded: boolean;
  values: number;
  bytes: number;
}

const decoders: Record<string, string> = {
  F32: f32,
  F16: f16,
  BF16: bf16,
  Q4_0: q40,
  Q4_1: q41,
  Q5_0: q50,
  Q5_1: q51,
  Q8_0: q80,
  IQ4_NL: iq4nl,
  MXFP4: mxfp4,
  Q2_K: q2k,
  Q3_K: q3k,
  Q4_K: kScales + q4k,
  Q5_K: kScales + q5k,
  Q6_K: q6k,
  IQ4_XS: iq4xs,
  TQ1_0: tq10,
  TQ2_0: tq20,
};

/** By ggml's type id. */
export const types = new Map(
  listed
    .filter(({ name, kind }) => name in decoders || kind === 'DECODED' || kind === 'QSF')
    .map(({ id, name, values, bytes }): [number, WeightType] => [
      id,
      { name, rare: !(name in decoders), coded: values > 1, values, bytes },
    ]),
);

let rareTypes: RareTypes | undefined;
/** Gives the shaders decoders of rare types. load-types.ts calls it. */
export function useRareTypes(module: RareTypes): void {
  rareTypes = module;
}
export const hasRareTypes = (): boolean => rareTypes !== undefined;

/** WGSL that decodes a type. */
export function decoderOf({ name, coded: isCoded }: WeightType): string {
  const decode = decoders[name] ?? rareTypes?.decoders[name];
  if (decode === undefined) throw new Error(`the decoder of ${name} is not loaded`);
  return isCoded ? decode + coded : decode;
}
/** The entries of a type's codebook; undefined: the type has none. */
export const codebookOf = ({ name }: WeightType): Codebook | undefined =>
  rareTypes?.codebookOf(name);

/** F16, for devices with native halves. */
export const nativeHalves = { type: 1, decode: f16Native };

/** Ids by GGUF type names. */
export const typeIds: Record<string, number> = Object.fromEntries(
  [...types].map(([id, { name }]) => [name, id]),
);

export function typeOf(id: number): WeightType {
  const found = types.get(id);
  if (!found) throw new Error(`no kernel supports quantization type ${id}`);
  return found;
}

/** Bytes of a row of `cols` values in the file. */
export function rowBytes(id: number, cols: number): number {
  const { values, bytes } = typeOf(id);
  if (cols % values !== 0) throw new Error(`${cols} columns do not fill blocks of type ${id}`);
  return (cols / values) * bytes;
}
