// Sessions: conversations and texts on one engine. A session knows what was said, and the tokens
// that stand for it; each turn hands all of them to the engine's worker, which finds out how many
// of them it has already (worker/sequences.ts). So a turn that fails, or is given up, leaves the
// session as it was.

import type { ChatMessage, PromptOptions, Prompts, RenderedPrompt } from '../chat/engine.js';
import type { Caller, EngineCalls } from '../protocol/calls.js';
import {
  abortable,
  invalid,
  onlyKnown,
  SluiceError,
  throwIfAborted,
  type CallOptions,
} from '../protocol/errors.js';
import type {
  GenerateOptions,
  AssertSameKeys,
  TokenizeOptions,
  SplitNames,
} from '../protocol/options.js';
import type { GeneratedToken, SavedState } from '../protocol/types.js';
import { begun, Generation } from './generation.js';

/** What sessions need of an engine. */
export interface SessionEngine {
  readonly prompts: Prompts;
  /** Begins an answer on a sequence, as soon as there is a prompt. */
  start(
    prompt: () => Promise<Int32Array>,
    options: GenerateOptions,
    sequence: number,
    heard: (pieces: GeneratedToken[]) => void,
  ): Generation;
  tokenize(text: string, options: TokenizeOptions): Promise<Int32Array>;
  call: Caller<EngineCalls>;
}

/** How a session begins. */
export interface SessionOptions extends Omit<PromptOptions, 'addGenerationPrompt'> {
  /** The first message, of the role 'system'. */
  system?: string;
  /** A conversation to go on with. */
  messages?: readonly ChatMessage[];
}

/** What a turn begins with; in marked text no control token is read between the marks. */
type Prompt = Pick<RenderedPrompt, 'text' | 'addSpecial' | 'literalSpans'>;

const kOptions = 'system messages tools documents template variables parseSpecialInContent';
true satisfies AssertSameKeys<SplitNames<typeof kOptions>, keyof SessionOptions>;

/** A session as save() gives it and restore() takes it; it can be structured-cloned. */
export interface SavedSession extends SavedState {
  /** The conversation. */
  messages: ChatMessage[];
  /** The text of the sequence. */
  text: string;
  /** False where a stop string cut the text inside a token. */
  exact: boolean;
}

/** The caller's own characters that would mark text as plain, replaced. */
const withoutMarks = (text: string): string => text.replace(/[\uFDD0\uFDD1]/g, '\uFFFD');

/** Refuses what no save gave. */
export function checkSaved(saved: SavedState): void {
  if (!(saved?.tokens instanceof Int32Array && saved.state instanceof Uint8Array))
    invalid('Only what was saved can be restored: tokens and state.');
}

/** The next session's sequence; 0 is the engine's own. */
let next = 1;

/** One conversation or text, with its KV cache. */
export class Session {
  readonly #sequence = next++;
  /** @internal Tokens of the sequence, and the text that they stand for. */
  tokens = new Int32Array(0);
  /** @internal */
  written = '';
  /** False when a stop string has cut the text inside a token. */
  #faithful = true;
  #list: ChatMessage[];
  #line: Promise<unknown> = Promise.resolve();
  #disposed = false;
  readonly #engine: SessionEngine;
  readonly #options: SessionOptions;

  /** @internal */
  constructor(engine: SessionEngine, options: SessionOptions) {
    this.#engine = engine;
    this.#options = options;
    onlyKnown('session()', options, kOptions);
    const { messages = [] } = options;
    if (!Array.isArray(messages)) invalid('messages must be a list of messages.');
    this.#list = [...messages];
    if (options.system !== undefined)
      this.#list.unshift({ role: 'system', content: options.system });
  }

  /** The conversation so far. */
  get messages(): readonly ChatMessage[] {
    return this.#list;
  }

  /** The text of the sequence: prompts and answers. */
  get text(): string {
    return this.written.replace(/[\uFDD0\uFDD1]/g, '');
  }

  /**
   * Adds text to the sequence and continues it. An answer that was aborted or failed leaves it as
   * it was.
   */
  generate(text: string, options: GenerateOptions = {}): Generation {
    return begun(options, () => {
      if (typeof text !== 'string') invalid('A session goes on with text; messages go to send().');
      return this.#run(
        async () => ({
          text: this.written + withoutMarks(text),
          addSpecial: options.addSpecial ?? true,
          literalSpans: true,
        }),
        options,
        () => {},
      );
    });
  }

  /**
   * Says something (a user's message, or one or more whole messages) and generates the answer. The
   * conversation then holds both; an answer that was aborted or failed leaves it as it was.
   */
  send(
    message: string | ChatMessage | readonly ChatMessage[],
    options: GenerateOptions = {},
  ): Generation {
    return begun(options, () => this.#reply(message, options));
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
    let spoken: RenderedPrompt['said'];
    const given = [options.stop ?? []].flat();
    const merged: GenerateOptions = { ...options, stop: given };
    const prompt = async (): Promise<Prompt> => {
      const rendered = await this.#engine.prompts.render([...this.#list, ...added], this.#options);
      merged.stop = [...given, ...rendered.stop];
      spoken = rendered.said;
      return rendered;
    };
    return this.#run(prompt, merged, (answer) => {
      this.#list.push(...added, { role: 'assistant', content: spoken(answer) });
    });
  }

  /** A copy of everything, to be kept anywhere. */
  save(options?: CallOptions): Promise<SavedSession> {
    return this.#alive(options, async () => {
      const tokens = this.tokens;
      const state =
        tokens.length === 0
          ? new Uint8Array(0)
          : (await this.#engine.call('saveState', this.#sequence)).state;
      // The state lags behind: the last token has not been read back.
      return { ...this.#copy(), tokens: tokens.slice(), state };
    });
  }

  /** Becomes what was saved, in this engine or another one of the same model. */
  restore(saved: SavedSession, options?: CallOptions): Promise<void> {
    return this.#alive(options, async () => {
      throwIfAborted(options?.signal);
      checkSaved(saved);
      if (!Array.isArray(saved.messages)) invalid("Only a session's save() can be restored here.");
      const { tokens, state } = saved;
      await (tokens.length > 0
        ? this.#engine.call('restoreState', this.#sequence, state)
        : this.#engine.call('forget', this.#sequence));
      this.#adopt(saved);
    });
  }

  /** A second session that goes on from here on its own. */
  fork(options?: CallOptions): Promise<Session> {
    return this.#alive(options, async () => {
      const other = new Session(this.#engine, this.#options);
      if (this.tokens.length > 0) await this.#engine.call('fork', this.#sequence, other.#sequence);
      other.#adopt({ ...this.#copy(), tokens: this.tokens });
      return other;
    });
  }

  /** Forgets the session and what it keeps. The engine stays. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    // An engine that is gone has forgotten it.
    await this.#engine.call('forget', this.#sequence).catch(() => {});
  }

  /** For `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  /** Does `work` behind what this session does already. */
  #alive<T>(options: CallOptions | undefined, work: () => Promise<T>): Promise<T> {
    return abortable(options, () => {
      this.#mustLive();
      const done = this.#line.then(() => (this.#mustLive(), work()));
      this.#line = done.catch(() => {});
      return done;
    });
  }

  #mustLive(): void {
    if (this.#disposed) throw new SluiceError('DISPOSED', 'The session was disposed of.');
  }

  #copy(): Pick<SavedSession, 'messages' | 'text' | 'exact'> {
    return { messages: [...this.#list], text: this.written, exact: this.#faithful };
  }

  #adopt({ tokens, text, exact, messages }: Omit<SavedSession, 'state'>): void {
    this.tokens = new Int32Array(tokens);
    this.written = text;
    this.#faithful = exact;
    this.#list = [...messages];
  }

  #run(
    prompt: () => Promise<Prompt>,
    options: GenerateOptions,
    answered: (text: string) => void,
  ): Generation {
    this.#mustLive();
    const before = this.#line;
    const said: number[] = [];
    let asked = '';
    let tokens: Int32Array;
    const input = async (): Promise<Int32Array> => {
      await before;
      const { text, addSpecial, literalSpans } = await prompt();
      asked = text;
      tokens = await this.#extended(text, addSpecial, literalSpans);
      this.#mustLive(); // what the worker has forgotten it would keep for good
      return tokens;
    };
    const generation = this.#engine.start(input, options, this.#sequence, (pieces) =>
      said.push(...pieces.map((piece) => piece.token)),
    );
    const adopted = generation.result.then(
      (result) => {
        this.tokens = Int32Array.from([...tokens, ...said]);
        this.written = asked + withoutMarks(result.text);
        this.#faithful = result.stopString === undefined;
        answered(result.text);
      },
      () => {},
    );
    this.#line = Promise.all([before, adopted]);
    return generation;
  }

  /**
   * Tokens of `text`. Where the text goes on from the sequence but the model wrote it in other
   * tokens than the tokenizer would, the sequence's are kept, so that nothing is computed twice.
   */
  async #extended(text: string, addSpecial: boolean, literalSpans: boolean): Promise<Int32Array> {
    const engine = this.#engine;
    const known = this.tokens;
    const whole = await engine.tokenize(text, { addSpecial, literalSpans });
    const continues = this.#faithful && known.length > 0 && text.startsWith(this.written);
    if (!continues || known.every((token, i) => token === whole[i])) return whole;
    const rest = text.slice(this.written.length);
    const more = rest ? await engine.tokenize(rest, { continuation: true, literalSpans }) : [];
    return Int32Array.from([...known, ...more]);
  }
}
