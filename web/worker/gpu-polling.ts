// How often Dawn polls the GPU in Node. While a promise is pending, it polls once in each turn of the
// event loop, by globalThis.setImmediate. That keeps a core busy beside every wait, which a software
// adapter needs. Here the pauses between polls grow with the wait. They are an eighth of it at most, so
// a step takes hardly longer.

const kPromptMs = 1; // until then, Dawn polls as often as it wants
const kTimerMs = 8; // a timer has a resolution of about 1 ms; shorter pauses block the thread
const kPauseShare = 1 / 8;

type Immediate = (run: (...given: unknown[]) => void, ...given: unknown[]) => unknown;

/** Replaces globalThis.setImmediate for calls with native functions, which are Dawn's. */
export function pollWithPauses(): void {
  const scope = globalThis as unknown as { setImmediate: Immediate };
  const { setImmediate } = scope;
  const never = new Int32Array(new SharedArrayBuffer(4));
  let polls = false; // within a poll, which asks for the next one while something is pending
  let since = 0;
  scope.setImmediate = (run, ...given) => {
    if (!/\[native code\]/.test(Function.prototype.toString.call(run)))
      return setImmediate(run, ...given);
    const now = performance.now();
    if (!polls) since = now;
    const poll = (): void => {
      polls = true;
      try {
        run(...given);
      } finally {
        polls = false;
      }
    };
    const waited = now - since;
    if (waited > kTimerMs) return setTimeout(poll, 1);
    if (waited > kPromptMs) Atomics.wait(never, 0, 0, waited * kPauseShare);
    return setImmediate(poll);
  };
}
