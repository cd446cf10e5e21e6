// Random rows of every quantization type, and their values computed from the definitions in
// kernels/blocks.h.
import { useQuantizedKv } from '../../../web/gpu/kernels/attention.js';
import * as quantizedKv from '../../../web/gpu/kernels/quantized-kv.js';
import * as rareTypes from '../../../web/gpu/kernels/rare-types.js';
import { typeOf, useRareTypes } from '../../../web/gpu/kernels/types.js';
import type { Random } from './harness.js';

const scratch = new DataView(new ArrayBuffer(4));
export function halfValue(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    mantissa = bits & 1023;
  return (
    sign * (exponent === 0 ? mantissa * 2 ** -24 : (1 + mantissa / 1024) * 2 ** (exponent - 15))
  );
}
export function floatOfBits(bits: number): number {
  scratch.setUint32(0, bits >>> 0);
  return scratch.getFloat32(0);
}

type Value = (at: (byte: number) => number, i: number) => number;
const half = (at: (byte: number) => number, byte: number) =>
  halfValue(at(byte) | (at(byte + 1) << 8));
const signed = (byte: number) => (byte << 24) >> 24;
const nibble = (at: (byte: number) => number, byte: number, i: number) =>
  i < 16 ? at(byte + i) & 15 : at(byte + i - 16) >> 4;
const fifth = (at: (byte: number) => number, byte: number, i: number) =>
  (at(byte + (i >> 3)) >> (i & 7)) & 1;
const twoBits = (at: (byte: number) => number, byte: number, i: number) =>
  (at(byte + 32 * (i >> 7) + (i % 32)) >> (2 * ((i % 128) >> 5))) & 3;
const kNibble = (at: (byte: number) => number, byte: number, i: number) => {
  const q = at(byte + 32 * (i >> 6) + (i % 32));
  return i % 64 < 32 ? q & 15 : q >> 4;
};
function kScale(at: (byte: number) => number, j: number): [number, number] {
  const s = (i: number) => at(4 + i);
  return j < 4
    ? [s(j) & 63, s(j + 4) & 63]
    : [(s(j + 4) & 15) | ((s(j - 4) >> 6) << 4), (s(j + 4) >> 4) | ((s(j) >> 6) << 4)];
}
const iq4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const fp4 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
const digit = (byte: number, n: number) => {
  for (let k = 0; k < n; ++k) byte = (byte * 3) % 256;
  return (byte * 3) >> 8;
};

useRareTypes(rareTypes);
useQuantizedKv(quantizedKv);
const codebooks = new Map<string, Uint8Array>();
/** Byte `i` of entry `index`; entries have `size` bytes. */
function entryByte(type: string, size: number, index: number, i: number): number {
  if (!codebooks.has(type)) codebooks.set(type, rareTypes.codebookOf(type)!.entries());
  return codebooks.get(type)![index * size + i]!;
}
const signOf = (bits: number, i: number) => ((bits >> i) & 1 ? -1 : 1);
/** Sign i of seven and an eighth that makes their number even. */
function evenSign(bits: number, i: number): number {
  let ones = 0;
  for (let k = 0; k < 7; ++k) ones += (bits >> k) & 1;
  return signOf((bits & 127) | ((ones % 2) << 7), i);
}
const half16 = (at: (byte: number) => number, byte: number) => at(byte) | (at(byte + 1) << 8);
const word32 = (at: (byte: number) => number, byte: number) =>
  (half16(at, byte) | (half16(at, byte + 2) << 16)) >>> 0;
const nibbleAt = (at: (byte: number) => number, byte: number, k: number) =>
  (at(byte + (k >> 1)) >> (4 * (k & 1))) & 15;
/** The codebook on the GPU has 8 times an entry of IQ1_S and IQ1_M, plus 9. */
const iq1 = (index: number, i: number, down: number) =>
  (entryByte('IQ1_S', 8, index, i) - 9) / 8 + (down ? -1 : 1) / 8;
/** E4M3 without its sign bit; 0x7f is zero. */
const e4m3 = (e: number) =>
  e === 0x7f
    ? 0
    : ((e >> 3) & 15) === 0
      ? (e & 7) * 2 ** -9
      : (8 + (e & 7)) * 2 ** (((e >> 3) & 15) - 10);

/** For each type: [value i of the block at byte `at`, byte offsets of its f16 scales] */
const definitions: Record<number, [Value, number[]]> = {
  0: [(at) => floatOfBits(at(0) | (at(1) << 8) | (at(2) << 16) | (at(3) << 24)), []],
  1: [(at) => half(at, 0), []],
  30: [(at) => floatOfBits((at(0) << 16) | (at(1) << 24)), []],
  2: [(at, i) => half(at, 0) * (nibble(at, 2, i) - 8), [0]],
  3: [(at, i) => half(at, 0) * nibble(at, 4, i) + half(at, 2), [0, 2]],
  6: [(at, i) => half(at, 0) * ((nibble(at, 6, i) | (fifth(at, 2, i) << 4)) - 16), [0]],
  7: [(at, i) => half(at, 0) * (nibble(at, 8, i) | (fifth(at, 4, i) << 4)) + half(at, 2), [0, 2]],
  8: [(at, i) => half(at, 0) * signed(at(2 + i)), [0]],
  20: [(at, i) => half(at, 0) * iq4[nibble(at, 2, i)]!, [0]],
  39: [(at, i) => 2 ** (at(0) - 128) * fp4[nibble(at, 1, i)]!, []],
  10: [
    (at, i) =>
      half(at, 80) * (at(i >> 4) & 15) * twoBits(at, 16, i) - half(at, 82) * (at(i >> 4) >> 4),
    [80, 82],
  ],
  11: [
    (at, i) => {
      const j = i >> 4,
        low = j < 8 ? at(96 + j) & 15 : at(96 + j - 8) >> 4;
      const s = low | (((at(104 + (j % 4)) >> (2 * (j >> 2))) & 3) << 4);
      return (
        half(at, 108) *
        (s - 32) *
        ((twoBits(at, 32, i) | (((at(i % 32) >> (i >> 5)) & 1) << 2)) - 4)
      );
    },
    [108],
  ],
  12: [
    (at, i) => {
      const [s, m] = kScale(at, i >> 5);
      return half(at, 0) * s * kNibble(at, 16, i) - half(at, 2) * m;
    },
    [0, 2],
  ],
  13: [
    (at, i) => {
      const [s, m] = kScale(at, i >> 5);
      return (
        half(at, 0) * s * (kNibble(at, 48, i) | (((at(16 + (i % 32)) >> (i >> 5)) & 1) << 4)) -
        half(at, 2) * m
      );
    },
    [0, 2],
  ],
  14: [
    (at, i) => {
      const h = i >> 7,
        p = (i % 128) >> 5,
        l = i % 32,
        q = at(64 * h + 32 * (p % 2) + l);
      return (
        half(at, 208) *
        signed(at(192 + (i >> 4))) *
        (((p < 2 ? q & 15 : q >> 4) | (((at(128 + 32 * h + l) >> (2 * p)) & 3) << 4)) - 32)
      );
    },
    [208],
  ],
  23: [
    (at, i) => {
      const j = i >> 5,
        low = (at(4 + (j >> 1)) >> (4 * (j % 2))) & 15;
      const s = low | ((((at(2) | (at(3) << 8)) >> (2 * j)) & 3) << 4);
      return half(at, 0) * (s - 32) * iq4[nibble(at, 8 + 16 * j, i % 32)]!;
    },
    [0],
  ],
  34: [
    (at, i) => {
      const d =
        i < 160
          ? digit(at(i % 32), i >> 5)
          : i < 240
            ? digit(at(32 + (i % 16)), (i - 160) >> 4)
            : digit(at(48 + (i % 4)), (i - 240) >> 2);
      return half(at, 52) * (d - 1);
    },
    [52],
  ],
  35: [(at, i) => half(at, 64) * (twoBits(at, 0, i) - 1), [64]],
  16: [
    (at, i) => {
      const sub = i >> 5,
        l = (i >> 3) & 3,
        signs = word32(at, 6 + 8 * sub);
      const entry = entryByte('IQ2_XXS', 8, at(2 + 8 * sub + l), i & 7);
      return (
        ((half(at, 0) * ((signs >>> 28) + 0.5)) / 4) * entry * evenSign(signs >>> (7 * l), i & 7)
      );
    },
    [0],
  ],
  17: [
    (at, i) => {
      const both = half16(at, 2 + 2 * (i >> 3));
      const scale = (half(at, 0) * (nibbleAt(at, 66, i >> 4) + 0.5)) / 4;
      return scale * entryByte('IQ2_XS', 8, both & 511, i & 7) * evenSign(both >> 9, i & 7);
    },
    [0],
  ],
  22: [
    (at, i) => {
      const octet = i >> 3;
      const index = at(2 + octet) | (((at(66 + (octet >> 2)) >> (2 * (octet & 3))) & 3) << 8);
      const scale = (half(at, 0) * (nibbleAt(at, 74, i >> 4) + 0.5)) / 4;
      return scale * entryByte('IQ2_S', 8, index, i & 7) * signOf(at(34 + octet), i & 7);
    },
    [0],
  ],
  18: [
    (at, i) => {
      const signs = word32(at, 66 + 4 * (i >> 5));
      const entry = entryByte('IQ3_XXS', 4, at(2 + (i >> 2)), i & 3);
      const sign = evenSign(signs >>> (7 * ((i >> 3) & 3)), i & 7);
      return ((half(at, 0) * ((signs >>> 28) + 0.5)) / 2) * entry * sign;
    },
    [0],
  ],
  21: [
    (at, i) => {
      const index = at(2 + (i >> 2)) | (((at(66 + (i >> 5)) >> ((i >> 2) & 7)) & 1) << 8);
      const scale = half(at, 0) * (1 + 2 * nibbleAt(at, 106, i >> 5));
      return scale * entryByte('IQ3_S', 4, index, i & 3) * signOf(at(74 + (i >> 3)), i & 7);
    },
    [0],
  ],
  19: [
    (at, i) => {
      const high = half16(at, 34 + 2 * (i >> 5));
      const index = at(2 + (i >> 3)) | (((high >> (3 * ((i >> 3) & 3))) & 7) << 8);
      return half(at, 0) * (2 * ((high >> 12) & 7) + 1) * iq1(index, i & 7, high & 0x8000);
    },
    [0],
  ],
  29: [
    (at, i) => {
      const high = nibbleAt(at, 32, i >> 3);
      const s = (half16(at, 48 + 2 * (i >> 6)) >> (3 * ((i >> 4) & 3))) & 7;
      let d = 0;
      for (let w = 0; w < 4; ++w) d |= (half16(at, 48 + 2 * w) >> 12) << (4 * w);
      return halfValue(d) * (2 * s + 1) * iq1(at(i >> 3) | ((high & 7) << 8), i & 7, high & 8);
    },
    [],
  ],
  40: [
    (at, i) => {
      const both = at(4 + 8 * (i >> 4) + (i & 7));
      return (e4m3(at(i >> 4)) / 2) * fp4[i % 16 < 8 ? both & 15 : both >> 4]!;
    },
    [],
  ],
  41: [(at, i) => half(at, 0) * -signOf(at(2 + (i >> 3)), i & 7), [0]],
  42: [(at, i) => half(at, 0) * (((at(2 + (i >> 2)) >> (2 * (i & 3))) & 3) - 1), [0]],
  225: [(at, i) => half(at, 0) * ((at(4 + (i >> 2)) >> (2 * (i & 3))) & 3) + half(at, 2), [0, 2]],
  226: [
    (at, i) => {
      const bits = 3 * i,
        two = half16(at, 4 + Math.min(bits >> 3, 22));
      return half(at, 0) * ((two >> (bits - 8 * Math.min(bits >> 3, 22))) & 7) + half(at, 2);
    },
    [0, 2],
  ],
  227: [(at, i) => half(at, 0) * nibbleAt(at, 4, i) + half(at, 2), [0, 2]],
  228: [
    (at, i) =>
      (at(10 + (i >> 3)) >> (i & 7)) & 1 ? 0 : half(at, 0) * signOf(at(2 + (i >> 3)), i & 7),
    [0],
  ],
};

/** Rows of random blocks, with scales from subnormal to 0.1. */
export function randomWeights(
  random: Random,
  type: number,
  rows: number,
  cols: number,
): Uint8Array {
  const { values, bytes } = typeOf(type);
  const blocks = (rows * cols) / values;
  const out = new Uint8Array(blocks * bytes).map(() => random.below(256));
  const view = new DataView(out.buffer);
  for (let b = 0; b < blocks; ++b) {
    const at = b * bytes;
    if (type === 0) view.setFloat32(at, random.normal(), true);
    if (type === 1)
      view.setUint16(at, (random.below(2) << 15) | (0x2000 + random.below(0x1c00)), true);
    if (type === 30)
      view.setUint16(at, (random.below(2) << 15) | (0x3c00 + random.below(0x400)), true);
    if (type === 39) out[at] = 118 + random.below(8);
    // Four bits of the scale are above the twelve of each half word: a number below 2.
    if (type === 29)
      out[at + 55] = (out[at + 55]! & 15) | ((random.below(4) + 8 * random.below(2)) << 4);
    for (const scale of definitions[type]![1]) {
      const tiny = random.below(4) === 0; // a subnormal half
      view.setUint16(
        at + scale,
        (random.below(2) << 15) | (tiny ? 1 + random.below(0x3ff) : 0x400 + random.below(0x2a00)),
        true,
      );
    }
  }
  return out;
}

/** The value at a row and column, in double precision. */
export function weight(
  bytes: Uint8Array,
  type: number,
  cols: number,
  row: number,
  col: number,
): number {
  const { values, bytes: size } = typeOf(type);
  const begin = ((row * cols) / values + Math.floor(col / values)) * size;
  return definitions[type]![0]((byte) => bytes[begin + byte]!, col % values);
}
