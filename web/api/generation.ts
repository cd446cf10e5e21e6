// What generate() returns: pieces as they come, by `for await`, as a stream, as one text, or as a
// result. Every reader gets all pieces; when the last one leaves early that cancels, at once,
// because iterators here are no async generators, whose return() waits behind a next() under way.
// An abort signal rejects at once, wherever it strikes.

import { chatModule } from '../chat/prompt.js';
import { abortError, SluiceError, type CallOptions } from '../protocol/errors.js';
import { kDone, leavable, streamOf } from '../protocol/iterators.js';
import type { GenerationResult, GeneratedToken } from '../protocol/types.js';
import { checkGenerate } from './options.js';

interface Source {
  cancel(): void;
}

/** A generation under way. It runs from the moment it is made, whether or not anybody reads it. */
export class Generation implements AsyncIterable<GeneratedToken> {
  /** Finish reason, usage and timings, when it has ended; rejects when it failed or was aborted. */
  readonly result: Promise<GenerationResult>;
  readonly #pieces: GeneratedToken[] = [];
  readonly #readers = new Set<object>();
  /** Those who wait for a piece or the end. */
  #waiting: (() => void)[] = [];
  #ended = false;
  #failure: unknown = null;
  #settle!: {
    resolve: (result: GenerationResult) => void;
    reject: (error: unknown) => void;
  };
  readonly #source: Source;
  readonly #signal: AbortSignal | undefined;

  /** @internal */
  constructor(source: Source, signal?: AbortSignal) {
    this.#source = source;
    this.#signal = signal;
    this.result = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    this.result.catch(() => {}); // whoever reads it sees the error; nobody has to
    signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  /** Stops it. What has been generated stays readable; `result` says 'cancelled'. */
  cancel(): void {
    if (!this.#ended) this.#source.cancel();
  }

  /** The whole text. */
  async text(): Promise<string> {
    return (await this.result).text;
  }

  /**
   * The pieces as they come. Whoever asks gets all of them, from the first one on, at any time;
   * leaving the loop cancels, unless somebody else is still reading.
   */
  [Symbol.asyncIterator](): AsyncIterableIterator<GeneratedToken> {
    const reader = {};
    let at = 0;
    const next = async (): Promise<IteratorResult<GeneratedToken, void>> => {
      if (at === 0) this.#readers.add(reader);
      for (;;) {
        if (this.#failure !== null) throw this.#failure;
        if (at < this.#pieces.length) return { done: false, value: this.#pieces[at++]! };
        if (this.#ended || !this.#readers.has(reader)) return kDone;
        await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
    };
    return leavable(next, () => {
      this.#readers.delete(reader);
      if (this.#readers.size === 0) this.cancel();
      this.#notify();
    });
  }

  /**
   * Of an answer in JSON (`jsonSchema`): what is known of its value so far, whenever that has
   * changed. Strings grow; numbers and names come when they are whole. The last one is the value
   * itself.
   */
  partials<T = unknown>(): AsyncIterableIterator<T> {
    const pieces = this[Symbol.asyncIterator]();
    let partial: { push(text: string | undefined): { value: unknown } | null } | undefined;
    const next = async (): Promise<IteratorResult<T, void>> => {
      for (partial ??= new (await chatModule()).PartialJson(); ;) {
        const { value: piece, done } = await pieces.next();
        const changed = partial.push(piece?.text);
        if (changed) return { done: false, value: changed.value as T };
        if (done) return kDone;
      }
    };
    return leavable(next, () => void pieces.return!());
  }

  /**
   * The text as a stream of strings; cancelling the stream leaves the generation, as leaving a loop
   * does.
   */
  toReadableStream(): ReadableStream<string> {
    return streamOf(this[Symbol.asyncIterator](), (piece) => piece.text);
  }

  /** @internal */
  receive(pieces: GeneratedToken[]): void {
    if (this.#ended) return;
    this.#pieces.push(...pieces);
    this.#notify();
  }

  /** @internal */
  finish(result: GenerationResult): void {
    if (this.#ended) return;
    this.#end();
    this.#settle.resolve(result);
    this.#notify();
  }

  /** @internal */
  fail(error: unknown): void {
    if (this.#ended) return;
    this.#end();
    this.#failure = error ?? new SluiceError('INTERNAL', 'The generation failed.');
    this.#settle.reject(this.#failure);
    this.#notify();
  }

  readonly #onAbort = (): void => {
    this.cancel();
    this.fail(abortError(this.#signal));
  };

  #end(): void {
    this.#ended = true;
    this.#signal?.removeEventListener('abort', this.#onAbort);
  }

  #notify(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }
}

/**
 * The generation that `begin` starts; wrong options, and whatever it throws, make one that has
 * failed.
 */
export function begun(options: CallOptions, begin: () => Generation): Generation {
  try {
    checkGenerate(options);
    return begin();
  } catch (error) {
    const failed = new Generation({ cancel() {} });
    failed.fail(error);
    return failed;
  }
}
