// What SIGINT and SIGTERM do. Commands that can end in order replace `handle`.

export const signals = { handle: (): void => process.exit(130) };

/** Passes the signals on from now on. */
export function watchSignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => signals.handle());
}
