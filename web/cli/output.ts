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

type Download = Extract<ProgressEvent, { phase: 'download' }>;

/** "12.0 MB of 200.0 MB, 3.1 MB/s, 60 s left" */
function progressLine({ bytesLoaded, bytesTotal, bytesPerSecond, secondsLeft }: Download): string {
  const line = `${decimalBytes(bytesLoaded)} of ${decimalBytes(bytesTotal)}`;
  if (!secondsLeft || bytesPerSecond < 1) return line;
  return `${line}, ${decimalBytes(bytesPerSecond)}/s, ${humanTime(secondsLeft)} left`;
}

/** A line that is rewritten on a terminal, unless --quiet is given. */
export class ProgressLine {
  static readonly #printMs = 250;
  readonly #shown: boolean;
  #printed = 0;

  constructor(values: Values) {
    this.#shown = process.stderr.isTTY && !values['quiet'];
  }

  show(what: string, event: Download): void {
    if (!this.#shown || performance.now() - this.#printed < ProgressLine.#printMs) return;
    this.#printed = performance.now();
    process.stderr.write(`\r\x1b[K${what}: ${progressLine(event)}`);
  }

  /** Shows progress, and prints warnings and failed requests that are repeated. */
  report(event: ProgressEvent): void {
    const say = (text: string): boolean => process.stderr.write(`${this.clear()}sluice: ${text}\n`);
    if (event.phase === 'warning') say(event.message);
    if (event.phase === 'retry')
      say(`${event.message} Trying again in ${event.secondsLeft.toFixed(1)} s.`);
    if (event.phase === 'download') this.show('downloading', event);
    if (event.phase === 'ready') process.stderr.write(this.clear());
  }

  /** What removes the line. */
  clear(): string {
    const printed = this.#printed > 0;
    this.#printed = 0;
    return printed ? '\r\x1b[K' : '';
  }
}
