// Request queue of the server. As many requests run as the engine has slots, a limited number
// waits, and further ones get status 429 with a Retry-After header.

import { HttpError } from './errors.js';

export class Queue {
  running = 0;
  #closed = false;
  #waiting: { begin: () => void; refuse: (error: unknown) => void }[] = [];
  /** Recent average duration of a request, in seconds. */
  #usual = 1;

  constructor(
    private readonly most: number,
    private readonly parallel: number,
  ) {}

  get queued(): number {
    return this.#waiting.length;
  }

  /** Accepts no more requests and rejects those that wait. */
  close(): void {
    this.#closed = true;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { refuse } of waiting) refuse(unavailable());
  }

  /** Runs `work` when a slot is free. Rejects with 429, 503, the signal's reason or its error. */
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
        next.begin(); // takes over the slot, so `running` stays
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
