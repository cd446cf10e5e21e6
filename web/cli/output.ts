// What the commands of `npx sluice-llm` share: options as parsed, and how results are printed.

export type Values = Record<string, string | boolean | string[] | undefined>;

/** A wrong command line: exit status 2. */
export class UsageError extends Error {}

export const print = (value: unknown): boolean =>
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);

export function humanBytes(bytes: number): string {
  if (bytes >= 2 ** 30) return `${(bytes / 2 ** 30).toFixed(2)} GB`;
  return bytes >= 2 ** 20
    ? `${(bytes / 2 ** 20).toFixed(1)} MB`
    : `${(bytes / 1024).toFixed(0)} kB`;
}

export function humanTime(seconds: number): string {
  const s = Math.round(seconds);
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return s >= 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s} s`;
}
