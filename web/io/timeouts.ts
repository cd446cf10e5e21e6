// Timeouts and aborts of requests.

import { abortError } from '../protocol/errors.js';

/** Aborts a request when nothing has arrived for `ms`. */
export class StallGuard {
  stalled = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #onAbort = (): void => {};
  readonly #ms: number;
  readonly #control: AbortController;

  constructor(ms: number, control: AbortController) {
    this.#ms = ms;
    this.#control = control;
    control.signal.addEventListener('abort', () => this.#onAbort());
  }
  arm(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.stalled = true;
      this.#control.abort();
    }, this.#ms);
  }
  /** Rejects on abort, because bodies in Node sometimes do not. */
  race<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#onAbort = () => reject(abortError());
      work.then(resolve, reject);
    });
  }
  stop(): void {
    clearTimeout(this.#timer);
  }
}

/** Runs `work` with a controller that is aborted when `signal` is. */
export async function following<T>(
  signal: AbortSignal | undefined,
  work: (control: AbortController) => Promise<T>,
): Promise<T> {
  const control = new AbortController();
  const onAbort = (): void => control.abort();
  signal?.addEventListener('abort', onAbort);
  try {
    return await work(control);
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
}

/** Waits; rejects when the signal aborts. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(abortError(signal));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}
