// Queue of work for the engine. Up to `most()` generations run in parallel, each on its own
// sequence. Other work is exclusive: it waits for running generations, and later work waits for it.
// Work starts in order; only a generation whose sequence is in use can be overtaken.

/** Chooses the sequence of a generation, given the sequences in use. */
export type Choice = (taken: ReadonlySet<number>) => number;

export class WorkQueue {
  /** Sequences of running generations. */
  readonly taken = new Set<number>();
  #waiting: { choice: Choice | null; start: (sequence: number) => Promise<void> }[] = [];
  #beginning = false;
  readonly #most: () => number;

  constructor(most: () => number) {
    this.#most = most;
  }

  /**
   * Runs `work` when it is its turn: exclusively if `choice` is null, otherwise on the chosen
   * sequence. After it has called begun(), the next work may start.
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
