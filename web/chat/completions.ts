// engine.chat.completions and engine.completions, OpenAI-compatible. This part is in every page;
// the implementation (answers.ts) is loaded at the first call. As in OpenAI's client, a stream is
// an async iterable with a `controller`. It can be read once, leaving the loop stops the
// generation, and controller.abort() ends it without an error. The caller's own signal rejects.

import {
  abortable,
  invalid,
  signalOf,
  throwIfAborted,
  traced,
  type CallOptions,
} from '../protocol/errors.js';
import { leavable, streamOf } from '../protocol/iterators.js';
import { snapshot } from '../protocol/snapshot.js';
import type { ChatEngine, Request, TextStream } from './engine.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionParams,
  Completion,
  CompletionChunk,
  CompletionParams,
} from './openai.js';
import { chatModule } from './prompt.js';

/** A stream of chunks. It can be read once. */
export class ChatStream<Chunk> implements AsyncIterable<Chunk> {
  /**
   * controller.abort() ends the stream and stops the generation. So does leaving the loop.
   *
   * @example
   * ```ts
   * const stream = await engine.completions.create({ prompt: 'Once upon a time', stream: true });
   * setTimeout(() => stream.controller.abort(), 1000); // the loop ends without an error
   * for await (const { choices } of stream) console.log(choices[0]?.text);
   * ```
   */
  readonly controller: AbortController;
  #read = false;
  readonly #chunks: AsyncIterator<Chunk, void>;
  readonly #call: Call;

  /** @internal */
  constructor(chunks: AsyncIterator<Chunk, void>, call: Call) {
    this.#chunks = chunks;
    this.#call = call;
    this.controller = call.controller;
  }

  /**
   * The chunks as they are generated. Leaving the loop stops the generation.
   *
   * @example
   * ```ts
   * const stream = await engine.chat.completions.create({
   *   messages: [{ role: 'user', content: 'Why is the sky blue?' }],
   *   stream: true,
   * });
   * for await (const { choices } of stream) console.log(choices[0]?.delta.content);
   * ```
   */
  [Symbol.asyncIterator](): AsyncIterableIterator<Chunk> {
    const chunks = this.#chunks;
    const call = this.#call;
    if (this.#read) invalid('This stream has already been read; create another one.');
    this.#read = true;
    let over = false;
    const next = async (): Promise<IteratorResult<Chunk, void>> => {
      try {
        throwIfAborted(call.controller.signal);
        const result = await chunks.next();
        over ||= !!result.done;
        return result;
      } catch (error) {
        if (!call.quiet) throw traced(error, new Error());
        return { done: true, value: undefined };
      }
    };
    return leavable(next, () => {
      if (!over) call.controller.abort();
    });
  }

  /**
   * A byte stream with one line of JSON per chunk, which OpenAI's client can read.
   *
   * @example
   * ```ts
   * const stream = await engine.completions.create({ prompt: 'Once upon a time', stream: true });
   * const response = new Response(stream.toReadableStream());
   * ```
   */
  toReadableStream(): ReadableStream<Uint8Array> {
    const encoder = new TextEncoder();
    return streamOf(this[Symbol.asyncIterator](), (chunk) =>
      encoder.encode(`${JSON.stringify(chunk)}\n`),
    );
  }
}

/** Forwards the caller's abort signals to one controller until the call has ended. */
export class Call implements Request {
  readonly controller = new AbortController();
  readonly #signals: AbortSignal[];

  constructor(...given: (CallOptions | undefined)[]) {
    this.#signals = given.map(signalOf).filter((signal) => signal !== undefined);
    for (const signal of this.#signals) signal.addEventListener('abort', this.#follow);
    this.#follow();
  }

  /** Aborted through the controller, not through a caller's signal. */
  get quiet(): boolean {
    return this.controller.signal.aborted && !this.#aborted;
  }

  /**
   * Result of `work`, or a rejection as soon as a signal aborts. The signals are forwarded until
   * `work` fails or the generation passed to until() ends.
   */
  async run<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await abortable({ signal: this.controller.signal }, work);
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  /** Forwards the signals until `generation` ends. */
  readonly until = (generation: TextStream): void => {
    generation.result.then(this.#end, this.#end);
  };

  get #aborted(): AbortSignal | undefined {
    return this.#signals.find((signal) => signal.aborted);
  }

  readonly #follow = (): void => {
    if (this.#aborted) this.controller.abort(this.#aborted.reason);
  };

  readonly #end = (): void => {
    for (const signal of this.#signals) signal.removeEventListener('abort', this.#follow);
  };
}

/** The result of a call: the complete one, or its chunks. */
async function answered<Whole extends object, Chunk>(
  engine: ChatEngine,
  path: string,
  params: CallOptions,
  options: CallOptions | undefined,
): Promise<Whole | ChatStream<Chunk>> {
  const own = snapshot(params);
  const call = new Call(own, options);
  return call.run(() =>
    engine.turn(async () => {
      const { answer: ask } = await chatModule();
      const answer = await ask<Whole, Chunk>(engine, path, own, call, options);
      return 'next' in answer ? new ChatStream(answer, call) : answer;
    }),
  );
}

/** OpenAI-compatible chat completions: engine.chat.completions. */
export class ChatCompletions {
  readonly #engine: ChatEngine;

  /** @internal */
  constructor(engine: ChatEngine) {
    this.#engine = engine;
  }

  create(
    params: ChatCompletionParams & { stream: true },
    options?: CallOptions,
  ): Promise<ChatStream<ChatCompletionChunk>>;
  create(
    params: ChatCompletionParams & { stream?: false | null },
    options?: CallOptions,
  ): Promise<ChatCompletion>;
  create(
    params: ChatCompletionParams,
    options?: CallOptions,
  ): Promise<ChatCompletion | ChatStream<ChatCompletionChunk>>;
  /**
   * Generates a response to the messages. With `stream: true` it resolves to a stream of chunks.
   * The KV cache is reused for the prefix that the prompt shares with earlier calls.
   *
   * @example
   * ```ts
   * const { choices } = await engine.chat.completions.create({
   *   messages: [{ role: 'user', content: 'Why is the sky blue?' }],
   *   max_tokens: 64,
   * });
   * console.log(choices[0].message.content, choices[0].finish_reason);
   * ```
   */
  create(
    params: ChatCompletionParams,
    options?: CallOptions,
  ): Promise<ChatCompletion | ChatStream<ChatCompletionChunk>> {
    return answered(this.#engine, 'chat/completions', params, options);
  }
}

/** OpenAI-compatible text completions: engine.completions. */
export class Completions {
  readonly #engine: ChatEngine;

  /** @internal */
  constructor(engine: ChatEngine) {
    this.#engine = engine;
  }

  create(
    params: CompletionParams & { stream: true },
    options?: CallOptions,
  ): Promise<ChatStream<CompletionChunk>>;
  create(
    params: CompletionParams & { stream?: false | null },
    options?: CallOptions,
  ): Promise<Completion>;
  create(
    params: CompletionParams,
    options?: CallOptions,
  ): Promise<Completion | ChatStream<CompletionChunk>>;
  /**
   * Continues the prompt. With `stream: true` it resolves to a stream of chunks.
   *
   * @example
   * ```ts
   * const prompt = 'Once upon a time';
   * const { choices } = await engine.completions.create({ prompt, max_tokens: 64 });
   * console.log(choices[0].text, choices[0].finish_reason);
   * ```
   */
  create(
    params: CompletionParams,
    options?: CallOptions,
  ): Promise<Completion | ChatStream<CompletionChunk>> {
    return answered(this.#engine, 'completions', params, options);
  }
}
