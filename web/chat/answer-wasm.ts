// How a response may be constrained, and how it is read: reasoning, content and tool calls, by
// chat.wasm (src/bindings/chat/answers.cpp). An Answer is one response; it lives in an instance of
// chat.wasm until close().

import type { GeneratedToken } from '../protocol/types.js';
import type { Instance } from './chat-wasm.js';

interface Exports {
  open_answer(format: number, texts: number, flags: number, seed: bigint): number;
  read_answer(answer: number, text: number, token: number): void;
  finish_answer(answer: number): void;
  close_answer(answer: number): void;
}

/** What the caller wants. */
export interface AnswerRequest {
  /** JSON texts; undefined: absent. */
  tools?: string | undefined;
  toolChoice?: string | undefined;
  responseSchema?: string | undefined;
  /** Several calls are allowed. Default true. */
  parallelToolCalls?: boolean | undefined;
  /** false: reasoning and its marks are part of the content. Default true. */
  separateReasoning?: boolean | undefined;
  /** The output can be constrained. Without it a required call is only begun in the prompt. */
  canConstrain?: boolean | undefined;
}

/** A call of a function. */
export interface Call {
  id: string;
  name: string;
  /** JSON, as the model wrote it. */
  arguments: string;
}

/** Parts of a response. */
export interface AnswerPart {
  reasoning: string;
  content: string;
  /** Complete ones. */
  calls: Call[];
}

/** Words of an Answer in chat.wasm: addresses and lengths of texts, and flags. */
const enum Field {
  Grammar = 0,
  Opening = 2,
  JsonSchema = 4,
  ShowControlTokens = 5,
  Reasoning = 6,
  Content = 8,
  Calls = 10,
}

/** Frees responses that nobody has closed, such as those of streams that were never read. */
const abandoned = new FinalizationRegistry<() => void>((close) => close());

export class Answer {
  /** GBNF that constrains the output; '': none. */
  readonly grammar: string;
  /** The JSON schema of the request is the constraint. */
  readonly jsonSchema: boolean;
  /** Start of the response, to append to the prompt. */
  readonly opening: string;
  /** Control tokens must be generated as text. */
  readonly showControlTokens: boolean;
  /** Number of tool calls so far. */
  calls = 0;
  readonly #instance: Instance;
  readonly #exports: Exports;
  #address: number;

  /** `formats`: of the template. `prompt`: its end. */
  constructor(
    instance: Instance,
    formats: number,
    prompt: string,
    request: AnswerRequest,
    parseSpecialInContent: boolean,
  ) {
    const exports = instance.calls as unknown as Exports;
    const { tools, toolChoice, responseSchema } = request;
    const flags =
      +(request.parallelToolCalls ?? true) +
      2 * +(request.separateReasoning ?? true) +
      4 * +(request.canConstrain ?? false) +
      8 * +parseSpecialInContent;
    const [seed] = crypto.getRandomValues(new BigUint64Array(1));
    const address = instance.with([tools, toolChoice, responseSchema, prompt], (texts) =>
      exports.open_answer(formats, texts, flags, seed!),
    );
    if (!address) throw instance.error();
    this.#instance = instance;
    this.#exports = exports;
    this.#address = address;
    abandoned.register(this, () => exports.close_answer(address), this);
    this.grammar = this.#text(Field.Grammar);
    this.opening = this.#text(Field.Opening);
    const words = instance.words(address);
    this.jsonSchema = !!words[Field.JsonSchema];
    this.showControlTokens = !!words[Field.ShowControlTokens];
  }

  /** Reads a generated token. The text of a control token may be missing. */
  push({ text, token }: GeneratedToken): AnswerPart {
    const instance = this.#instance;
    return this.#part(() =>
      instance.with([text], (texts) => this.#exports.read_answer(this.#address, texts, token)),
    );
  }

  /** Ends the text and returns what was held back. */
  finish(): AnswerPart {
    return this.#part(() => this.#exports.finish_answer(this.#address));
  }

  /** Frees the memory. The object cannot be used any more. */
  close(): void {
    if (this.#address) this.#exports.close_answer(this.#address);
    this.#address = 0;
    abandoned.unregister(this);
  }

  #part(read: () => void): AnswerPart {
    return this.#instance.guarded(() => {
      read();
      const calls = JSON.parse(this.#text(Field.Calls)) as [string, string, string][];
      this.calls += calls.length;
      return {
        reasoning: this.#text(Field.Reasoning),
        content: this.#text(Field.Content),
        calls: calls.map(([id, name, json]) => ({ id, name, arguments: json })),
      };
    });
  }

  #text(field: Field): string {
    const [at, length] = this.#instance.words(this.#address + 4 * field) as unknown as number[];
    return this.#instance.string(at!, length!);
  }
}
