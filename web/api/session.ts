// Sessions: conversations and texts on one engine. A session keeps its messages and their tokens.
// Each turn sends all tokens to the worker, which reuses the part that is in the KV cache
// (worker/sequences.ts). So a turn that fails or is aborted leaves the session unchanged.

import type { Answer, AnswerPart } from '../chat/answer-wasm.js';
import type {
  ChatMessage,
  ContentPart,
  PromptOptions,
  Prompts,
  RenderedPrompt,
} from '../chat/engine.js';
import type { Caller, EngineCalls } from '../protocol/calls.js';
import {
  abortable,
  invalid,
  onlyKnown,
  SluiceError,
  throwIfAborted,
  type CallOptions,
} from '../protocol/errors.js';
import type { GenerateSpec, ImageSpec } from '../protocol/messages.js';
import type {
  GenerateOptions,
  AssertSameKeys,
  ImageSource,
  TokenizeOptions,
  SplitNames,
} from '../protocol/options.js';
import { afterUnmarked, unmarked, withoutPictures } from '../protocol/literal-spans.js';
import { snapshot } from '../protocol/snapshot.js';
import { Turns } from '../protocol/turns.js';
import type { GeneratedToken, GenerationResult, SavedState } from '../protocol/types.js';
import type { GenerationPlace } from './active-calls.js';
import { begun, Generation } from './generation.js';
import { imageSpecs, isParts, markedPrompt } from './images.js';
import { isText, tokenizeSpec } from './options.js';

/** The part of Engine that sessions use. */
export interface SessionEngine {
  prompts(): Promise<Prompts>;
  /** Queues a generation on a sequence. It starts when `prompt` has resolved. */
  start(
    prompt: () => Promise<Int32Array | string>,
    options: GenerateOptions,
    place: GenerationPlace,
  ): Generation;
  readonly waits: boolean;
  /** Runs `work`, which calls ask(), after earlier changes of the engine and before later ones. */
  turn<T>(work: () => Promise<T>): Promise<T>;
  ask: Caller<EngineCalls>;
  call: Caller<EngineCalls>;
}

/** Options of engine.session(). */
export interface SessionOptions extends Omit<PromptOptions, 'addGenerationPrompt'> {
  /** System prompt: becomes the first message. */
  system?: string;
  /** Messages of an earlier conversation to continue. */
  messages?: readonly ChatMessage[];
}

/** The text of a turn. With `literalSpans`, marked parts are not parsed for control tokens. */
type Prompt = Pick<RenderedPrompt, 'text' | 'addSpecial' | 'literalSpans' | 'images'>;

export const kPromptOptions = 'tools documents template variables parseSpecialInContent';
const kOptions = `system messages ${kPromptOptions}` as const;
true satisfies AssertSameKeys<SplitNames<typeof kOptions>, keyof SessionOptions>;

/** A session as save() returns it and restore() takes it. It can be structured-cloned. */
export interface SavedSession extends SavedState {
  /** The conversation. */
  messages: ChatMessage[];
  /** Text of the sequence. */
  text: string;
  /** The pictures in the text, as they were read. */
  images?: ImageSpec[];
  /** false if a stop string cut the text inside a token. */
  exact: boolean;
}

/** Throws INVALID_ARGUMENT for an object that no save returned. */
export function checkSaved(saved: SavedState): void {
  if (!(saved?.tokens instanceof Int32Array && saved.state instanceof Uint8Array))
    invalid('Pass what saveState() or save() returned.');
}

/** The text if it is JSON. The engine describes what is wrong with another one. */
function validJson(text: string): string | undefined {
  try {
    JSON.parse(text);
    return text;
  } catch {
    return undefined;
  }
}

/** Sequence number of the next session; 0 is the engine's own sequence. */
let next = 1;

/** A conversation or text with its own KV cache. Create it with engine.session(). */
export class Session {
  readonly #sequence = next++;
  /** @internal Tokens of the sequence, and their text. */
  tokens = new Int32Array(0);
  /** @internal */
  written = '';
  /** false if a stop string has cut the text inside a token. */
  #faithful = true;
  /** The pictures in the text. Addresses and elements may show others by now. */
  #images: readonly ImageSpec[] = [];
  #list: ChatMessage[];
  readonly #line = new Turns();
  #disposed = false;
  readonly #engine: SessionEngine;
  readonly #options: SessionOptions;

  /** @internal */
  constructor(engine: SessionEngine, options: SessionOptions) {
    this.#engine = engine;
    onlyKnown('session()', options, kOptions);
    this.#options = snapshot(options);
    const { messages = [], system } = this.#options;
    if (!Array.isArray(messages)) invalid('messages must be a list.');
    this.#list = [...messages];
    if (system !== undefined) this.#list.unshift({ role: 'system', content: system });
  }

  /**
   * The conversation so far.
   *
   * @example
   * ```ts
   * for (const { role, content } of session.messages) console.log(`${role}: ${content}`);
   * ```
   */
  get messages(): readonly ChatMessage[] {
    return this.#list;
  }

  /** Text of the sequence: prompts and responses. */
  get text(): string {
    return unmarked(this.written);
  }

  /**
   * Appends a text, or parts of text and pictures, to the sequence and generates what follows. If
   * the generation fails or is aborted, the session stays as it was.
   *
   * @example
   * ```ts
   * const session = engine.session();
   * const beginning = await session.generate('Once upon a time', { maxTokens: 64 }).text();
   * const next = await session.generate(' Then', { maxTokens: 64 }).text();
   * ```
   */
  generate(prompt: string | readonly ContentPart[], options: GenerateOptions = {}): Generation {
    return begun(options, (own) => {
      if (!isText(prompt) && !isParts(prompt))
        invalid('generate() takes a string or parts; use send() for messages.');
      const { text, images } = markedPrompt(snapshot(prompt), own.images);
      return this.#run(
        async () => ({
          text: this.written + text,
          addSpecial: own.addSpecial ?? true,
          literalSpans: true,
          images: [...this.#images, ...images],
        }),
        own,
        () => {},
      );
    });
  }

  /**
   * Sends a message and generates the response. A string is a user message; other roles are passed
   * as one message object or a list. The conversation then contains both. If the generation fails
   * or is aborted, the session stays as it was. Tokens and result also have the parts of the text:
   * `content` and `reasoning`. A `jsonSchema` holds for the content; reasoning comes before it.
   *
   * @example
   * ```ts
   * const question = { role: 'user', content: 'And at night?' } as const;
   * for await (const { content } of session.send(question, { maxTokens: 64 })) console.log(content);
   * ```
   */
  send(
    message: string | ChatMessage | readonly ChatMessage[],
    options: GenerateOptions = {},
  ): Generation {
    return begun(options, (own) => this.#reply(snapshot(message), own));
  }

  #reply(
    message: string | ChatMessage | readonly ChatMessage[],
    options: GenerateOptions,
  ): Generation {
    const added: readonly ChatMessage[] =
      typeof message === 'string'
        ? [{ role: 'user', content: message }]
        : Array.isArray(message)
          ? message
          : [message as ChatMessage];
    if (options.images) invalid('send() takes pictures as parts of messages.');
    let answer: Answer;
    const { grammar, jsonSchema: schema } = options;
    const given = [options.stop ?? []].flat();
    const merged: GenerateOptions = { ...options, stop: given };
    const prompt = async (): Promise<Prompt> => {
      const prompts = await this.#engine.prompts();
      const rendered = await prompts.render([...this.#list, ...added], this.#options);
      merged.stop = [...given, ...rendered.stop];
      answer = await prompts.answer(rendered, this.#options.template, {
        responseSchema: isText(schema) ? validJson(schema) : JSON.stringify(schema),
      });
      // Where reasoning may come first, a grammar takes the place of the schema.
      if (answer.grammar && !isText(grammar))
        Object.assign(merged, { grammar: answer.grammar, jsonSchema: undefined });
      return rendered;
    };
    const whole = { content: '', reasoning: '' };
    const read = ({ content, reasoning }: AnswerPart): { content: string; reasoning: string } => {
      whole.content += content;
      whole.reasoning += reasoning;
      return { content, reasoning };
    };
    return this.#run(
      prompt,
      merged,
      (result) => {
        read(answer.finish());
        answer.close();
        Object.assign(result, whole);
        // The history has no reasoning.
        this.#list.push(...added, { role: 'assistant', content: whole.content });
      },
      (piece) => Object.assign(piece, read(answer.push(piece))),
    );
  }

  /**
   * A copy of the conversation and its KV cache, which can be stored anywhere.
   *
   * @example
   * ```ts
   * const saved = await session.save(); // can be stored in IndexedDB as it is
   * console.log(saved.messages.length, saved.state.byteLength);
   * ```
   */
  save(options?: CallOptions): Promise<SavedSession> {
    return this.#alive(options, async () => {
      const tokens = this.tokens;
      const state =
        tokens.length === 0
          ? new Uint8Array(0)
          : (await this.#engine.ask('saveState', this.#sequence)).state;
      // The state is one token behind: the last generated token is not in the KV cache yet.
      return { ...this.#copy(), tokens: tokens.slice(), state };
    });
  }

  /**
   * Replaces the session with one that was saved, on this engine or another one with the same
   * model. CORRUPT if the state is damaged or belongs to another model. A signal that aborts while the
   * engine restores comes too late: the call succeeds.
   *
   * @example
   * ```ts
   * const saved = await session.save();
   * const other = engine.session();
   * await other.restore(saved);
   * ```
   */
  async restore(saved: SavedSession, options?: CallOptions): Promise<void> {
    checkSaved(saved);
    if (!Array.isArray(saved.messages)) invalid("Pass what a session's save() returned.");
    const { state, ...rest } = saved;
    const own = snapshot(rest);
    // A large state is copied only if it cannot be posted now.
    const taken =
      options?.signal || this.#line.waits || this.#engine.waits ? snapshot(state) : state;
    return this.#alive(options, async (commit) => {
      commit();
      await (own.tokens.length > 0
        ? this.#engine.ask('restoreState', this.#sequence, taken)
        : this.#engine.ask('forget', this.#sequence));
      this.#adopt(own);
    });
  }

  /**
   * A new session with the same content, which then continues independently.
   *
   * @example
   * ```ts
   * const other = await session.fork(); // the KV cache is copied, nothing is computed again
   * const one = await session.send('Make it sad.').text();
   * const two = await other.send('Make it funny.').text();
   * ```
   */
  fork(options?: CallOptions): Promise<Session> {
    return this.#alive(options, async () => {
      const other = new Session(this.#engine, this.#options);
      if (this.tokens.length > 0) await this.#engine.ask('fork', this.#sequence, other.#sequence);
      if (options?.signal?.aborted) void other.dispose();
      other.#adopt({ ...this.#copy(), tokens: this.tokens });
      return other;
    });
  }

  /**
   * Deletes the session and its KV cache. The engine stays loaded.
   *
   * @example
   * ```ts
   * const session = engine.session();
   * console.log(await session.send('Hello!', { maxTokens: 64 }).text());
   * await session.dispose();
   * ```
   */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    // Fails if the engine has ended, and then there is nothing to delete.
    await this.#engine.call('forget', this.#sequence).catch(() => {});
  }

  /**
   * Supports `await using`; same as dispose().
   *
   * @example
   * ```ts
   * await using session = engine.session(); // disposed of at the end of the block
   * console.log(await session.send('Hello!', { maxTokens: 64 }).text());
   * ```
   */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  /** Runs `work` after the session's earlier calls. */
  #alive<T>(
    options: CallOptions | undefined,
    work: (commit: () => void) => Promise<T>,
  ): Promise<T> {
    return abortable(options, (commit) => {
      this.#mustLive();
      const { signal } = options ?? {};
      const begin = async (): Promise<T> => {
        if (signal) await null; // an abort in the task of the call comes in time
        throwIfAborted(signal);
        this.#mustLive();
        return work(commit);
      };
      return this.#engine.turn(() => this.#line.change(begin, signal));
    });
  }

  #mustLive(): void {
    if (this.#disposed) throw new SluiceError('DISPOSED', 'The session was disposed of.');
  }

  #copy(): Pick<SavedSession, 'messages' | 'text' | 'exact' | 'images'> {
    return {
      messages: snapshot(this.#list),
      text: this.written,
      exact: this.#faithful,
      ...(this.#images.length > 0 && { images: [...this.#images] }),
    };
  }

  #adopt({ tokens, text, exact, messages, images = [] }: Omit<SavedSession, 'state'>): void {
    this.tokens = new Int32Array(tokens);
    this.written = text;
    this.#images = images;
    this.#faithful = exact;
    this.#list = [...messages];
  }

  #run(
    prompt: () => Promise<Prompt>,
    options: GenerateOptions,
    answered: (result: GenerationResult) => void,
    heard: (piece: GeneratedToken) => void = () => {},
  ): Generation {
    this.#mustLive();
    const generated: GeneratedToken[] = [];
    let asked = '';
    let pictures: readonly ImageSpec[] = [];
    let tokens: Int32Array | undefined;
    const extra: Partial<GenerateSpec> = {};
    let over!: () => void;
    const ended = new Promise<void>((resolve) => (over = resolve));
    const input = async (): Promise<Int32Array | string> => {
      // Later calls of the session wait until the generation has ended.
      await new Promise<void>(
        (begin) =>
          void this.#line.change(() => {
            begin();
            return ended;
          }),
      );
      const { text, addSpecial, literalSpans, images = [] } = await prompt();
      asked = text;
      if (images.length > 0) {
        // The worker makes the tokens, of text and pictures.
        Object.assign(options, { addSpecial, literalSpans });
        pictures = await this.#pictures(text, images, extra, options.signal);
      } else {
        tokens = await this.#extended(text, addSpecial, literalSpans);
      }
      this.#mustLive(); // after dispose() the worker would never delete the sequence
      return tokens ?? text;
    };
    options.images = undefined;
    const generation = this.#engine.start(input, options, {
      sequence: this.#sequence,
      heard: (pieces) => {
        pieces.forEach(heard);
        generated.push(...pieces);
      },
      read: (read) => (tokens = read),
      extra,
    });
    generation.result
      .then(
        (result) => {
          this.tokens = Int32Array.from([...tokens!, ...generated.map(({ token }) => token)]);
          this.written = asked + withoutPictures(result.text);
          this.#images = pictures;
          this.#faithful = result.stopString === undefined;
          answered(result);
        },
        () => {},
      )
      .then(over);
    return generation;
  }

  /** The pictures of `text`; a generation gets them, and the tokens that it continues. */
  async #pictures(
    text: string,
    images: readonly ImageSource[],
    to: Partial<GenerateSpec>,
    signal?: AbortSignal,
  ): Promise<ImageSpec[]> {
    const continues = this.#continues(text);
    const held = continues ? this.#images : [];
    to.images = [...held, ...(await imageSpecs(images.slice(held.length), signal))];
    if (continues)
      to.known = {
        tokens: this.tokens,
        images: held.length,
        rest: afterUnmarked(text, this.text.length),
      };
    return to.images;
  }

  /** Whether `text` is the sequence's text and more. A template marks responses as content. */
  #continues(text: string): boolean {
    return this.#faithful && this.tokens.length > 0 && unmarked(text).startsWith(this.text);
  }

  /**
   * Tokens of `text`. If it continues the sequence, and the model generated other tokens than the
   * tokenizer produces, the sequence's tokens are kept. So the KV cache stays valid.
   */
  async #extended(text: string, addSpecial: boolean, literalSpans: boolean): Promise<Int32Array> {
    const tokenize = (text: string, options: TokenizeOptions): Promise<Int32Array> =>
      this.#engine.ask('tokenize', text, tokenizeSpec(options));
    const known = this.tokens;
    const whole = await tokenize(text, { addSpecial, literalSpans });
    if (!this.#continues(text) || known.every((token, i) => token === whole[i])) return whole;
    const rest = afterUnmarked(text, this.text.length);
    const more = rest ? await tokenize(rest, { continuation: true, literalSpans }) : [];
    return Int32Array.from([...known, ...more]);
  }
}
