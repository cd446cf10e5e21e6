// Random rows of every quantization type, and their values computed from the definitions in
// kernels/blocks.h.
import { typeOf } from '../../../web/gpu/kernels/types.js';
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
