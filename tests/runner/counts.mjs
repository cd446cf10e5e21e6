// Test results: { passed, failed, skipped, details? }.

export const none = () => ({ passed: 0, failed: 0, skipped: 0 });

/** Adds b to a, and returns a. */
export function add(a, b) {
  for (const key of ['passed', 'failed', 'skipped']) a[key] += b[key];
  if (b.details) a.details = `${a.details ?? ''}${b.details}\n`;
  return a;
}
