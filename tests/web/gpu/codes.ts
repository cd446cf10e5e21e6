// Activations as matrix multiplications read them: f32, or int8 codes with a scale for each 32
// values.
import { kFewTokens } from '../../../web/gpu/kernels.js';
import { typeOf } from '../../../web/gpu/kernels/types.js';
import type { Harness } from './harness.js';

/** A value, and the magnitude that the tolerance is relative to. */
interface Taken {
  value: number;
  size: number;
}

const kTolerance = 1e-5; // as in Harness.expect
/**
 * Rounding error of a code that is computed in floats: this close to a tie either code is valid.
 */
const kNearTie = 2e-3;

const toEven = (x: number): number =>
  Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x);

/** The values that a multiplication of `tokens` tokens with weights of this type uses for a row. */
export function asTaken(h: Harness, type: number, tokens: number, row: number[]): Taken[] {
  const { gemv, gemm } = h.options.coded ?? { gemv: false, gemm: false };
  if (!(tokens <= kFewTokens ? gemv : gemm) || !typeOf(type).coded)
    return row.map((value) => ({ value, size: Math.abs(value) }));
  return row.map((value, i) => {
    const most = Math.max(...row.slice(i & ~31, (i & ~31) + 32).map(Math.abs));
    const scale = Math.fround(most / 127);
    if (scale === 0) return { value: 0, size: 0 };
    const code = value / scale;
    const tie = Math.abs(Math.abs(code - Math.trunc(code)) - 0.5) < kNearTie;
    return { value: toEven(code) * scale, size: Math.abs(value) + (tie ? scale / kTolerance : 0) };
  });
}
