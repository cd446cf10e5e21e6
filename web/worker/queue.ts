// The line before the engine. Answers share it, so many at once, each on a sequence of its own; all
// other work has it alone: it waits for the answers under way, and what comes later waits behind
// it. Everybody begins in order, one after another; only an answer that waits for its own sequence
// is overtaken.

/** Which sequence an answer is to have, beside those that are taken. */
export type Choice = (taken: ReadonlySet<number>) => number;

export class WorkQueue {
  /** Timelines of the answers under way. */
  readonly taken = new Set<number>();
  #waiting: { choice: Choice | null; start: (sequence: number) => Promise<void> }[] = [];
  #beginning = false;
  readonly #most: () => number;

  constructor(most: () => number) {
    this.#most = most;
  }

  /**
   * Does the work when its turn has come: alone, or on a sequence, from begun() on beside others.
   */
  do<T>(
    choice: Choice | null,
    work: (sequence: number, begun: () => void) => Promise<T>,
  ): Promise<T> {
    return new Promise((resolve) => {
      const start = (sequence: number): Promise<void> =>
        new Promise((begun) => {
          if (choice) this.taken.add(sequence);
          resolve(
            work(sequence, begun).finally(() => {
              this.taken.delete(sequence);
              begun();
              this.#next();
            }),
          );
        });
      this.#waiting.push({ choice, start });
      this.#next();
    });
  }

  #next(): void {
    const taken = new Set(this.taken);
    for (const [i, { choice, start }] of this.#waiting.entries()) {
      if (this.#beginning || this.taken.size >= (choice ? this.#most() : 1)) return;
      const sequence = choice?.(taken) ?? NaN;
      if (!taken.has(sequence)) {
        this.#waiting.splice(i, 1);
        this.#beginning = true;
        void start(sequence).then(() => {
          this.#beginning = false;
          this.#next();
        });
        return;
      }
    }
  }
}
