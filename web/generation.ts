// What generate() returns: pieces as they come, by `for await`, as a stream, as one text, or as a
// result. Leaving the loop early cancels; an abort signal rejects at once, wherever it strikes.

import { abortError, signalOf, SluiceError, type CallOptions } from './errors.js';
import type { GenerationResult, Piece } from './protocol.js';

interface Source {
  cancel(): void;
}

/** A generation under way. It runs from the moment it is made, whether or not anybody reads it. */
export class Generation implements AsyncIterable<Piece> {
  /** Finish reason, usage and timings, when it has ended; rejects when it failed or was aborted. */
  readonly result: Promise<GenerationResult>;
  private readonly queue: Piece[] = [];
  private wake: (() => void) | null = null;
  private ended = false;
  private failure: unknown = null;
  private settle!: {
    resolve: (result: GenerationResult) => void;
    reject: (error: unknown) => void;
  };

  /** @internal */
  constructor(
    private readonly source: Source,
    private readonly signal?: AbortSignal,
  ) {
    this.result = new Promise((resolve, reject) => (this.settle = { resolve, reject }));
    this.result.catch(() => {}); // whoever reads it sees the error; nobody has to
    signal?.addEventListener('abort', this.onAbort, { once: true });
  }

  /** Stops it. What has been generated stays readable; `result` says 'cancelled'. */
  cancel(): void {
    if (!this.ended) this.source.cancel();
  }

  /** The whole text. */
  async text(): Promise<string> {
    return (await this.result).text;
  }

  /** The pieces as they come; leaving the loop cancels. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Piece, void, undefined> {
    try {
      for (;;) {
        const piece = this.queue.shift();
        if (piece) yield piece;
        else if (this.failure !== null) throw this.failure;
        else if (this.ended) return;
        else await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      this.cancel();
    }
  }

  /** The text as a stream of strings; cancelling the stream cancels the generation. */
  toReadableStream(): ReadableStream<string> {
    const iterator = this[Symbol.asyncIterator]();
    return new ReadableStream<string>({
      pull: async (controller) => {
        try {
          const { done, value } = await iterator.next();
          if (done) controller.close();
          else controller.enqueue(value.text);
        } catch (error) {
          controller.error(error);
        }
      },
      cancel: async () => {
        await iterator.return();
      },
    });
  }

  /** @internal */
  receive(pieces: Piece[]): void {
    if (this.ended) return;
    this.queue.push(...pieces);
    this.notify();
  }

  /** @internal */
  finish(result: GenerationResult): void {
    if (this.ended) return;
    this.end();
    this.settle.resolve(result);
    this.notify();
  }

  /** @internal */
  fail(error: unknown): void {
    if (this.ended) return;
    this.end();
    this.failure = error ?? new SluiceError('INTERNAL', 'The generation failed.');
    this.queue.length = 0;
    this.settle.reject(this.failure);
    this.notify();
  }

  private readonly onAbort = (): void => {
    this.cancel();
    this.fail(abortError(this.signal));
  };

  private end(): void {
    this.ended = true;
    this.signal?.removeEventListener('abort', this.onAbort);
  }

  private notify(): void {
    this.wake?.();
    this.wake = null;
  }
}

/** The generation that `begin` starts; wrong options, and whatever it throws, make one that has failed. */
export function begun(options: CallOptions, begin: () => Generation): Generation {
  try {
    signalOf(options);
    return begin();
  } catch (error) {
    const failed = new Generation({ cancel() {} });
    failed.fail(error);
    return failed;
  }
}
