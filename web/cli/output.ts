// What the commands of `npx sluice-llm` share: options as parsed, and how results are printed.

import type { ProgressEvent } from '../protocol/types.js';

export type Values = Record<string, string | boolean | string[] | undefined>;

/** A wrong command line: exit status 2. */
export class UsageError extends Error {}

export const print = (value: unknown): boolean =>
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);

/** Three significant digits, no exponent. */
export const humanNumber = (value: number): string =>
  value.toFixed(value === 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0);

/** Bytes in powers of 1000. */
export function decimalBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} bytes`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let value = bytes / 1000;
  let unit = 0;
  for (; value >= 999.5 && unit < 3; unit++) value /= 1000;
  return `${humanNumber(value)} ${units[unit]}`;
}

export function humanTime(seconds: number): string {
  const s = Math.round(seconds);
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return s >= 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s} s`;
}

/** Prints warnings, and failed requests that are repeated. */
export function printTrouble(event: ProgressEvent): void {
  if (event.phase === 'warning') process.stderr.write(`sluice: ${event.message}\n`);
  if (event.phase === 'retry')
    process.stderr.write(
      `sluice: ${event.message} Trying again in ${event.secondsLeft.toFixed(1)} s.\n`,
    );
}
