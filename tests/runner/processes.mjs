// Runs compilers and test programs, and adds their processor time to the suite whose measured()
// started them.
import { AsyncLocalStorage } from 'node:async_hooks';
import { capture, inRoot } from '../../web/scripts/lib.mjs';

export const minute = 60_000;
export const results = inRoot('build', 'test-results');

/** A suite that could not be built or run; the user sees its message. */
export class SuiteError extends Error {}

export const lastLines = (text, n) => text.trimEnd().split('\n').slice(-n).join('\n');

const meter = new AsyncLocalStorage();

/** Runs `work`; resolves to { value, cpu, wall }, times in seconds. */
export async function measured(work) {
  const spent = { cpu: 0 };
  const start = Date.now();
  const value = await meter.run(spent, work);
  return { value, cpu: spent.cpu, wall: (Date.now() - start) / 1000 };
}

/** capture() of web/scripts/lib.mjs. */
export async function execute(command, args, options) {
  const result = await capture(command, args, options);
  const spent = meter.getStore();
  if (spent) spent.cpu += result.cpuSeconds;
  return result;
}

/** Runs a command that must succeed; resolves to its output. */
export async function must(command, args, options = {}) {
  const { code, output } = await execute(command, args, { timeoutMs: 40 * minute, ...options });
  if (code !== 0) {
    throw new SuiteError(`${[command, ...args].join(' ').slice(0, 160)}\n${lastLines(output, 60)}`);
  }
  return output;
}
