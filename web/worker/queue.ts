// The line before the engine. Answers share it, so many at once, each on a timeline of its own; all
// other work has it alone: it waits for the answers under way, and what comes later waits behind
// it. Everybody begins in order, one after another; only an answer that waits for its own timeline
// is overtaken.

/** Which timeline an answer is to have, beside those that are taken. */
export type Choice = (taken: ReadonlySet<number>) => number;

export class WorkQueue {
  /** Timelines of the answers under way. */
  readonly taken = new Set<number>();
  #waiting: { choice: Choice | null; start: (timeline: number) => Promise<void> }[] = [];
  #beginning = false;
  readonly #most: () => number;

  constructor(most: () => number) {
    this.#most = most;
  }

  /**
   * Does the work when its turn has come: alone, or on a timeline, from begun() on beside others.
   */
  do<T>(
    choice: Choice | null,
    work: (timeline: number, begun: () => void) => Promise<T>,
  ): Promise<T> {
    return new Promise((resolve) => {
      const start = (timeline: number): Promise<void> =>
        new Promise((begun) => {
          if (choice) this.taken.add(timeline);
          resolve(
            work(timeline, begun).finally(() => {
              this.taken.delete(timeline);
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
      const timeline = choice?.(taken) ?? NaN;
      if (!taken.has(timeline)) {
        this.#waiting.splice(i, 1);
        this.#beginning = true;
        void start(timeline).then(() => {
          this.#beginning = false;
          this.#next();
        });
        return;
      }
    }
  }
}
