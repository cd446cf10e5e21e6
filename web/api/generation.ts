// Generation: what generate() returns. Tokens can be read with `for await` or as a stream, and the
// whole text or the result as a promise. Every reader gets all tokens. When the last reader stops
// before the end, the generation is cancelled immediately (see protocol/iterators.ts).

import { chatModule } from '../chat/prompt.js';
import { abortError, SluiceError, traced, type CallOptions } from '../protocol/errors.js';
import { kDone, leavable, streamOf } from '../protocol/iterators.js';
import { snapshot } from '../protocol/snapshot.js';
import type { GenerationResult, GeneratedToken } from '../protocol/types.js';
import { checkGenerate } from './options.js';

interface Source {
  cancel(): void;
}

/**
 * A running generation. It starts immediately and runs whether or not its tokens are read. Iterate
 * over it for tokens, or await `result` or `text()`.
 */
export class Generation implements AsyncIterable<GeneratedToken> {
  /**
   * Text, finish reason, usage and timings, once the generation has ended. Rejects with a
   * SluiceError if it failed, and with the signal's reason if it was aborted.
   *
   * @example
   * ```ts
   * const { text, finishReason, usage } = await engine.generate('Once', { maxTokens: 64 }).result;
   * console.log(text, finishReason, usage.completionTokens);
   * ```
   */
  readonly result: Promise<GenerationResult>;
  readonly #pieces: GeneratedToken[] = [];
  readonly #readers = new Set<object>();
  /** Resolvers of readers that wait for a token or the end. */
  #waiting: (() => void)[] = [];
  #ended = false;
  #failure: unknown = null;
  readonly #begun = new Error(); // its stack is the caller's
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
    this.result.catch(() => {}); // not an unhandled rejection if nobody reads `result`
    signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  /**
   * Stops the generation. Tokens generated so far stay readable, and `result` resolves with the
   * finish reason 'cancelled'.
   *
   * @example
   * ```ts
   * const generation = engine.generate('Once upon a time');
   * setTimeout(() => generation.cancel(), 1000);
   * const { text, finishReason } = await generation.result; // finishReason: 'cancelled'
   * ```
   */
  cancel(): void {
    if (!this.#ended) this.#source.cancel();
  }

  /**
   * The complete text, once the generation has ended. Rejects as `result` does.
   *
   * @example
   * ```ts
   * console.log(await engine.generate('Once upon a time', { maxTokens: 64 }).text());
   * ```
   */
  async text(): Promise<string> {
    return (await this.result).text;
  }

  /**
   * The tokens as they are generated. Every iterator starts at the first token, whenever it is
   * created. Leaving the loop cancels the generation, unless another iterator is still reading.
   *
   * @example
   * ```ts
   * let text = '';
   * for await (const token of engine.generate('Once upon a time', { maxTokens: 64 })) {
   *   text += token.text;
   *   if (text.includes('\n')) break; // cancels the generation
   * }
   * ```
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
   * For JSON output (`jsonSchema`): the partial value, each time it changes. Strings grow; numbers
   * and property names appear once they are complete. The last value is the complete one.
   *
   * @example
   * ```ts
   * const engine = await Engine.load(model);
   * const jsonSchema = { type: 'object', properties: { name: { type: 'string' } } };
   * const generation = engine.generate('A person as JSON: ', { jsonSchema });
   * const partials = generation.partials<{ name?: string }>();
   * for await (const { name } of partials) console.log(name); // undefined, 'An', 'Anna'
   * ```
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
   * The text as a stream of strings. Cancelling the stream has the effect of leaving a loop.
   *
   * @example
   * ```ts
   * const generation = engine.generate('Once upon a time', { maxTokens: 64 });
   * const bytes = generation.toReadableStream().pipeThrough(new TextEncoderStream());
   * const response = new Response(bytes);
   * ```
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
    this.#failure = traced(
      error ?? new SluiceError('INTERNAL', 'The generation failed.'),
      this.#begun,
    );
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
 * The generation that `begin` starts with a copy of the options. If they are invalid or `begin`
 * throws, returns a generation that has failed with that error.
 */
export function begun<Options extends CallOptions>(
  given: Options,
  begin: (options: Options) => Generation,
): Generation {
  try {
    const options = snapshot(given);
    checkGenerate(options);
    return begin(options);
  } catch (error) {
    const failed = new Generation({ cancel() {} });
    failed.fail(error);
    return failed;
  }
}
