// Runs calls and changes in the order in which they were called. Calls run beside each other. A
// change waits for the calls before it and runs alone; later calls wait for it. So each call sees
// what was changed before it, and nothing else. A change that fails or is aborted is skipped.

import { abortable } from './errors.js';

export class Turns {
  /** What runs or waits. */
  readonly #pending = new Set<Promise<unknown>>();
  readonly #rejects = new Set<(error: unknown) => void>();
  /** Settles after the last change; null: calls start at once. Rejected after end(). */
  #change: Promise<unknown> | null = null;

  /** Whether a call that is made now has to wait. */
  get waits(): boolean {
    return !!this.#change;
  }

  /** Runs `work` after the changes that were called before. */
  call<T>(work: () => Promise<T>): Promise<T> {
    return this.add(this.#change ? this.#change.then(work) : work());
  }

  /** Runs `work` after everything that was called before. Until then `signal` cancels it. */
  change<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = [...this.#pending];
    const last = this.#change; // an aborted change does not wait for it
    const over =
      last || before.length
        ? abortable({ signal }, async () => {
            await last;
            await Promise.allSettled(before);
          }).then(work)
        : work();
    const change = (this.#change = over.catch(() => last)) as Promise<unknown>;
    // One step after the calls that waited, so that no later call overtakes them.
    change.then().then(
      () => {
        if (this.#change === change) this.#change = null;
      },
      () => {},
    );
    return this.add(over);
  }

  /** Rejects everything that runs or waits, and later calls. */
  end(error: unknown): void {
    this.#change = Promise.reject(error);
    this.#change.catch(() => {});
    for (const reject of this.#rejects) reject(error);
  }

  /** Changes that are called from now on wait for `over`. */
  add<T>(over: Promise<T>): Promise<T> {
    this.#pending.add(over);
    return new Promise((resolve, reject) => {
      this.#rejects.add(reject);
      over.then(resolve, reject).finally(() => {
        this.#pending.delete(over);
        this.#rejects.delete(reject);
      });
    });
  }
}
