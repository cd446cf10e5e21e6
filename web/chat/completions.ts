// engine.chat.completions and engine.completions: OpenAI's calls on the local engine, as far as
// every page has them; what answers (answers.ts) comes with the first call. A stream is an async
// iterable with a `controller`, as in OpenAI's client: it can be read once, leaving it stops the
// engine, and controller.abort() ends it quietly. A caller's own signal rejects, as everywhere
// here.

import {
  abortable,
  invalid,
  onlyKnown,
  signalOf,
  throwIfAborted,
  type CallOptions,
} from '../protocol/errors.js';
import { leavable, streamOf } from '../protocol/iterators.js';
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
  /** abort() ends the stream and the generation, and leaving the loop does the same. */
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

  /** The chunks as they come; leaving the loop stops the generation. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Chunk> {
    const chunks = this.#chunks;
    const call = this.#call;
    if (this.#read)
      invalid('This stream has been read already: keep its chunks, or create another one.');
    this.#read = true;
    let over = false;
    const next = async (): Promise<IteratorResult<Chunk, void>> => {
      try {
        throwIfAborted(call.controller.signal);
        const result = await chunks.next();
        over ||= !!result.done;
        return result;
      } catch (error) {
        if (!call.quiet) throw error;
        return { done: true, value: undefined };
      }
    };
    return leavable(next, () => {
      if (!over) call.controller.abort();
    });
  }

  /** One line of JSON a chunk, in bytes: the form that OpenAI's client reads back. */
  toReadableStream(): ReadableStream<Uint8Array> {
    const encoder = new TextEncoder();
    return streamOf(this[Symbol.asyncIterator](), (chunk) =>
      encoder.encode(`${JSON.stringify(chunk)}\n`),
    );
  }
}

/** A controller that follows the caller's signals until the call has ended. */
export class Call implements Request {
  readonly controller = new AbortController();
  readonly #signals: AbortSignal[];

  constructor(...given: (CallOptions | undefined)[]) {
    this.#signals = given.map(signalOf).filter((signal) => signal !== undefined);
    for (const signal of this.#signals) signal.addEventListener('abort', this.#follow);
    this.#follow();
  }

  /** Aborted by the controller itself. */
  get quiet(): boolean {
    return this.controller.signal.aborted && !this.#aborted;
  }

  /**
   * What `work` gives, or the signal's reason at once. The signals are let go when it fails, or
   * when the generation in it ends.
   */
  async run<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await abortable({ signal: this.controller.signal }, work);
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  /** Follows them until the end of `generation`. */
  until(generation: TextStream): void {
    generation.result.then(this.#end, this.#end);
  }

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

/** What answers: the whole, or its chunks. */
type Answer<Params, Whole, Chunk> = (
  engine: ChatEngine,
  params: Params,
  call: Request,
) => Promise<Whole | AsyncGenerator<Chunk, void>>;

async function answered<Params extends CallOptions, Whole extends object, Chunk>(
  engine: ChatEngine,
  params: Params,
  options: CallOptions | undefined,
  choose: (module: Awaited<ReturnType<typeof chatModule>>) => Answer<Params, Whole, Chunk>,
): Promise<Whole | ChatStream<Chunk>> {
  // Those of OpenAI's options of a request that mean nothing without a network are ignored.
  onlyKnown('create()', options, 'signal headers query maxRetries idempotencyKey');
  const call = new Call(params, options);
  return call.run(async () => {
    const answer = await choose(await chatModule())(engine, params, call);
    return 'next' in answer ? new ChatStream(answer, call) : answer;
  });
}

/** engine.chat.completions. */
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
  /** Answers the messages. The KV cache of the last call is reused as far as the prompts agree. */
  create(
    params: ChatCompletionParams,
    options?: CallOptions,
  ): Promise<ChatCompletion | ChatStream<ChatCompletionChunk>> {
    return answered(this.#engine, params, options, ({ answerChat }) => answerChat);
  }
}

/** engine.completions. */
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
  /** Continues the prompt. */
  create(
    params: CompletionParams,
    options?: CallOptions,
  ): Promise<Completion | ChatStream<CompletionChunk>> {
    return answered(this.#engine, params, options, ({ answerText }) => answerText);
  }
}
