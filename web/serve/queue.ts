// The line before the engine: as many requests are computed at a time as it has slots, so many
// wait, and one more is refused with the time after which it is worth asking again.

import { HttpError } from './errors.js';

export class Queue {
  running = 0;
  #closed = false;
  #waiting: { begin: () => void; refuse: (error: unknown) => void }[] = [];
  /** Seconds that a request took, lately. */
  #usual = 1;

  constructor(
    private readonly most: number,
    private readonly parallel: number,
  ) {}

  get queued(): number {
    return this.#waiting.length;
  }

  /** No request is taken any more, and those that wait are refused. */
  close(): void {
    this.#closed = true;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { refuse } of waiting) refuse(unavailable());
  }

  /**
   * Does the work when its turn has come, unless the signal is aborted before. Errors: 429, 503, or
   * the work's.
   */
  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    if (this.#closed) throw unavailable();
    if (this.running >= this.parallel) await this.#turn(signal);
    else this.running++;
    const begun = performance.now();
    try {
      return await work();
    } finally {
      this.#usual += ((performance.now() - begun) / 1000 - this.#usual) / 8;
      const next = this.#waiting.shift();
      if (next)
        next.begin(); // in its place
      else this.running--;
    }
  }

  #turn(signal: AbortSignal): Promise<void> {
    if (this.#waiting.length >= this.most) {
      const seconds = Math.max(1, Math.ceil((this.#usual * this.#waiting.length) / this.parallel));
      throw new HttpError(
        429,
        'rate_limit_exceeded',
        'Too many requests are waiting: try again later.',
        { headers: { 'retry-after': `${Math.min(seconds, 60)}` } },
      );
    }
    return new Promise((begin, refuse) => {
      const entry = { begin, refuse };
      this.#waiting.push(entry);
      signal.addEventListener('abort', () => {
        this.#waiting = this.#waiting.filter((each) => each !== entry);
        refuse(signal.reason);
      });
    });
  }
}

const unavailable = (): HttpError =>
  new HttpError(503, 'unavailable', 'The server is shutting down.');
