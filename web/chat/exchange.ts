// A request to a server's endpoint and its response, by chat.wasm (src/bindings/chat/exchange.cpp):
// the check of the request, what the engine must do, and the response that is made of what the
// engine returns. The page sends chats, completions and embeddings through it. Node's server has
// all of its endpoints in chat-server.wasm. An Exchange lives in an instance until close().

import { SluiceError } from '../protocol/errors.js';
import type { GenerateSpec } from '../protocol/messages.js';
import type { GenerateOptions, ImageSource } from '../protocol/options.js';
import type { GeneratedToken, GenerationResult } from '../protocol/types.js';
import type { Bytes, Instance, RequestTexts } from './chat-wasm.js';

interface Exports {
  open_exchange(texts: number, seed: bigint): number;
  plan_exchange(
    exchange: number,
    formats: number,
    texts: number,
    canConstrain: number,
    vocabulary: number,
  ): void;
  begin_response(exchange: number): void;
  push_token(exchange: number, index: number, token: number, texts: number): void;
  end_output(exchange: number, index: number, complete: number, texts: number): void;
  end_response(exchange: number): void;
  show_document(
    exchange: number,
    texts: number,
    count: number,
    width: number,
    tokens: number,
  ): void;
  show_error(exchange: number, texts: number, status: number): void;
  show_error_frames(exchange: number, texts: number, status: number): void;
  close_exchange(exchange: number): void;
  routes(): number;
  drop_files(exchange: number): void;
  show_page(exchange: number, formats: number, texts: number): void;
}

/** What the engine must do for a request. */
export type Work =
  /** `type`: the MIME type of a streamed response. */
  | { kind: 'chat' | 'complete' | 'infill'; stream: boolean; type: string }
  /** `truncate`: most tokens of an input; 0: an error if it is too long; -1: the context. */
  | { kind: 'embed'; inputs: (string | number[])[]; dimensions: number; truncate: number }
  | { kind: 'rerank'; query: string; documents: string[] }
  | { kind: 'render' }
  /** The tokens of the prompt. */
  | { kind: 'count' }
  | { kind: 'page' }
  | {
      kind: 'tokenize';
      text: string;
      addSpecial: boolean;
      parseSpecial: boolean;
      withPieces: boolean;
    }
  | { kind: 'detokenize'; tokens: number[] };

/** '': any method, because the path is an error. */
export type RouteMethod = 'GET' | 'POST' | '';

/** A document about the server and its model. */
export interface Page {
  type: string;
  body: string;
}

/** How to generate: `n` outputs for each prompt, with consecutive seeds. */
export interface Plan {
  n: number;
  seed: bigint;
  /** Of completions. */
  prompts?: (string | number[])[];
  /** Start of a chat's response, to append to the prompt. */
  opening?: string;
  options: GenerateOptions;
  constraint?: GenerateSpec['constraint'];
  /** Names the sequence to continue. '': none. */
  cacheKey: string;
  /** Tokens need the counts so far. */
  reportCounts: boolean;
}

/** An error as the API of the request's path describes it. */
export interface DescribedError {
  status: number;
  code: string;
  message: string;
  param: string;
  /** JSON document. */
  body: string;
}

/** An error that has a status, or that of the engine. */
export interface GivenError {
  message: string;
  code: string;
  status?: number;
  param?: string | undefined;
}

/** Words of an Exchange in chat.wasm: numbers, and addresses and lengths of texts. */
const enum Field {
  Status = 0,
  Text = 1,
  Messages = 3,
  Tools = 5,
  Variables = 7,
  RenderFlags = 9,
  Prompt = 10,
  Cached = 11,
  Completion = 12,
  Finish = 13,
  Files = 15,
}

/** Frees exchanges that nobody has closed, such as those of streams that were never read. */
const abandoned = new FinalizationRegistry<() => void>((close) => close());

export class Exchange {
  /** Pictures that are objects, for which the request has placeholders. */
  images: readonly ImageSource[] = [];
  readonly work!: Work;
  readonly #instance: Instance;
  readonly #calls: Exports;
  readonly #address: number;
  #open = true;

  /** `path`: that of an endpoint. `body`: JSON. Throws a SluiceError that is a DescribedError. */
  constructor(instance: Instance, path: string, body: Bytes, model: string) {
    this.#instance = instance;
    const calls = (this.#calls = instance.calls as unknown as Exports);
    const [seed] = crypto.getRandomValues(new BigUint64Array(1));
    const address = (this.#address = instance.with([path, body, model], (texts) =>
      calls.open_exchange(texts, seed!),
    ));
    abandoned.register(this, () => calls.close_exchange(address), this);
    try {
      this.work = JSON.parse(this.#shown()) as Work;
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Paths with their methods. */
  static routes(instance: Instance): Map<string, RouteMethod> {
    const calls = instance.calls as unknown as Exports;
    const lines = instance.string(calls.routes()).split('\n');
    return new Map(lines.map((line) => line.split(' ').reverse() as [string, RouteMethod]));
  }

  /** How the API of the path describes an error. */
  static describe(instance: Instance, path: string, error: GivenError): DescribedError {
    const calls = instance.calls as unknown as Exports;
    const address = instance.with([path, '', ''], (texts) => calls.open_exchange(texts, 0n));
    try {
      instance.with([error.message, error.param ?? '', error.code], (texts) =>
        calls.show_error(address, texts, error.status ?? 0),
      );
      return described(instance, address);
    } finally {
      calls.close_exchange(address);
    }
  }

  /** JSON texts for the template of a chat; undefined: absent. */
  get renderTexts(): RequestTexts {
    const text = (field: Field): string | undefined => this.#text(field) || undefined;
    return [
      text(Field.Messages) ?? '[]',
      text(Field.Tools),
      undefined,
      text(Field.Variables),
    ] as const;
  }
  get renderFlags(): number {
    return this.#word(Field.RenderFlags);
  }

  /** `prompt`: the end of a chat's, without marks. `formats`: finds those of its template. */
  plan(
    formats: (instance: Instance) => number,
    prompt: string,
    stop: readonly string[],
    canConstrain: boolean,
    vocabulary: number,
  ): Plan {
    const stops = stop.map((text) => `${text}\0`).join('');
    const text = this.#call((calls) =>
      this.#instance.with([prompt, stops], (texts) =>
        calls.plan_exchange(
          this.#address,
          formats(this.#instance),
          texts,
          +canConstrain,
          vocabulary,
        ),
      ),
    );
    const { seed, logitBias, ...plan } = JSON.parse(text) as Omit<Plan, 'seed'> & {
      seed: string;
      logitBias: Record<number, number | null>;
    };
    const biases = Object.entries(logitBias).map(([token, bias]) => [token, bias ?? -Infinity]);
    plan.options.logitBias = Object.fromEntries(biases);
    return { ...plan, seed: BigInt(seed) };
  }

  /** Number of files of an infill that may be dropped so that it fits; see dropFiles(). */
  get files(): number {
    return this.#word(Field.Files);
  }
  /** Drops half of the files, the first ones first. The exchange is then planned again. */
  dropFiles(): void {
    this.#calls.drop_files(this.#address);
  }

  /** The page at the path. `formats`: as of plan(). `info`: JSON of the model's info. */
  page(formats: (instance: Instance) => number, body: Bytes, info: string): Page {
    const text = this.#call((calls) =>
      this.#instance.with([body, info], (texts) =>
        calls.show_page(this.#address, formats(this.#instance), texts),
      ),
    );
    return JSON.parse(text) as Page;
  }

  /** Begins the response. Returns its first frames; '' if it is not streamed. */
  begin(): string {
    return this.#call((calls) => calls.begin_response(this.#address));
  }

  /** Adds a token of an output. Returns the frames that it makes, perhaps none. */
  push(index: number, piece: GeneratedToken): string {
    const { text, token, bytes, logprob, topLogprobs = [], counts } = piece;
    const top = topLogprobs.flatMap((each) => [each.token, each.logprob]);
    const numbers = [...(counts ? countsOf(counts) : kNoCounts), logprob ?? 0, ...top];
    const names = topLogprobs.map((each) => each.bytes);
    return this.#call((calls) =>
      this.#instance.with(
        [text, bytes ?? '', bytesOf(Float64Array.from(numbers)), ...names],
        (texts) => calls.push_token(this.#address, index, token, texts),
      ),
    );
  }

  /** Ends an output. Returns the frames that it makes. */
  end(index: number, result: GenerationResult): string {
    const counts = bytesOf(Float64Array.from(countsOf(result)));
    return this.#call((calls) =>
      this.#instance.with([counts, result.stopString], (texts) =>
        calls.end_output(this.#address, index, +(result.finishReason === 'stop'), texts),
      ),
    );
  }

  /** After all outputs: the last frames, or the document. */
  finish(): string {
    return this.#call((calls) => calls.end_response(this.#address));
  }

  /** The document of an endpoint that generates nothing, made of texts or numbers. */
  document(texts: readonly Bytes[], width = 0, tokens = 0): string {
    return this.#call((calls) =>
      this.#instance.with(texts, (at) =>
        calls.show_document(this.#address, at, texts.length, width, tokens),
      ),
    );
  }

  /** Frames that end a stream with an error. */
  errorFrames({ message, param, code, status }: DescribedError): string {
    return this.#call((calls) =>
      this.#instance.with([message, param, code], (texts) =>
        calls.show_error_frames(this.#address, texts, status),
      ),
    );
  }

  /** Token counts so far. */
  get usage(): { prompt: number; cached: number; completion: number } {
    return {
      prompt: this.#word(Field.Prompt),
      cached: this.#word(Field.Cached),
      completion: this.#word(Field.Completion),
    };
  }
  /** Why the last output ended, in OpenAI's words. */
  get finishReason(): string {
    return this.#text(Field.Finish);
  }

  /** @internal Size of the memory that it shares with other exchanges. */
  get memoryBytes(): number {
    return this.#instance.memory.buffer.byteLength;
  }

  /** Frees the memory. The object cannot be used any more. */
  close(): void {
    if (this.#open) this.#calls.close_exchange(this.#address);
    this.#open = false;
    abandoned.unregister(this);
  }

  #call(call: (calls: Exports) => void): string {
    return this.#instance.guarded(() => {
      call(this.#calls);
      return this.#shown();
    });
  }
  #shown(): string {
    if (!this.#word(Field.Status)) return this.#text(Field.Text);
    const { message, ...error } = described(this.#instance, this.#address);
    throw Object.assign(new SluiceError(error.code, message), error);
  }
  #word(field: Field): number {
    return this.#instance.words(this.#address)[field]!;
  }
  #text(field: Field): string {
    return this.#instance.string(this.#word(field), this.#word(field + 1));
  }
}

function described(instance: Instance, address: number): DescribedError {
  const [status, text, length] = instance.words(address);
  const error = JSON.parse(instance.string(text!, length)) as Omit<DescribedError, 'status'>;
  return { status: status!, ...error };
}

const kNoCounts = [0, 0, 0, 0, 0];

const countsOf = ({ usage, timings }: NonNullable<GeneratedToken['counts']>): number[] => [
  usage.promptTokens,
  usage.cachedTokens,
  usage.completionTokens,
  timings.promptMs,
  timings.generateMs,
];

const bytesOf = ({ buffer }: Float64Array): Uint8Array => new Uint8Array(buffer);
