// Activations as products take them: as they are, or as codes of eight bits with a scale for each
// 32.
import { kFewTokens } from '../../../web/gpu/kernels.js';
import { typeOf } from '../../../web/gpu/kernels/types.js';
import type { Harness } from './harness.js';

/** A value, and the size of what the tolerance of a sum is a part of. */
interface Taken {
  value: number;
  size: number;
}

const kTolerance = 1e-5; // of Harness.expect
/**
 * What a value may be off where it is computed in floats; beside a tie it may become either code.
 */
const kNearTie = 2e-3;

const toEven = (x: number): number =>
  Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x);

/**
 * What a product of so many tokens with weights of this type multiplies for these values of a row.
 */
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
