// The sampler's parameters on their way to the engine: numbers, but for the seed, which has 64 bits
// and is text.

import { invalid } from '../protocol/errors.js';

/** The parameters that are plain numbers, by their names in the API. */
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
 * A seed in decimal: any whole number from -2^63 to 2^64-1, modulo 2^64 (-1 is 2^64-1). None: a
 * random one.
 */
export function seedText(seed: number | bigint | null | undefined): string {
  const given = seed ?? Math.floor(Math.random() * 2 ** 32);
  const exact = typeof given === 'bigint' || Number.isInteger(given) ? BigInt(given) : 1n << 64n;
  if (exact < -(1n << 63n) || exact >> 64n > 0n)
    invalid('seed must be a whole number from -2^63 to 2^64-1.');
  return `${BigInt.asUintN(64, exact)}`;
}
