// Sampling parameters for the engine. All are numbers, except the seed: it has 64 bits and is sent
// as a decimal string.

import { invalid } from '../protocol/errors.js';

/** Names of the parameters that are plain numbers. */
export const kNumbers = [
  'temperature',
  'topK',
  'topP',
  'minP',
  'repeatPenalty',
  'frequencyPenalty',
  'presencePenalty',
  'penaltyLastN',
] as const;

/**
 * The seed as decimal digits: an integer from -2^63 to 2^64-1, modulo 2^64 (-1 is 2^64-1). Without
 * a seed, a random one.
 */
export function seedText(seed: number | bigint | null | undefined): string {
  const given = seed ?? Math.floor(Math.random() * 2 ** 32);
  const exact = typeof given === 'bigint' || Number.isInteger(given) ? BigInt(given) : 1n << 64n;
  if (exact < -(1n << 63n) || exact >> 64n > 0n)
    invalid('seed must be an integer from -2^63 to 2^64-1.');
  return `${BigInt.asUintN(64, exact)}`;
}
