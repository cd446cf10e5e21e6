// Sessions: several timelines on one engine. The engine's KV cache holds one of them; when another
// one's turn comes, the first is saved and moved out (stash.ts), and comes back the same way. A
// follow-up hands the engine the tokens it already has, so that only the new ones are computed.

import { abortable, invalid, signalOf, SluiceError, throwIfAborted, type CallOptions } from './errors.js';
import type { GenerateOptions, SavedState, TokenizeOptions } from './engine.js';
import { begun, Generation } from './generation.js';
import type { ChatMessage, PromptOptions, PromptRenderer } from './prompt.js';
import type { Piece } from './protocol.js';
import type { Parked, Parking } from './stash.js';
import { ThinkFilter } from './think.js';

/** What sessions need of an engine. */
export interface SessionEngine {
  readonly prompts: PromptRenderer;
  /** Generates at once, whatever the cache holds. */
  start(prompt: string | ArrayLike<number>, options: GenerateOptions): Generation;
  tokenize(text: string, options: TokenizeOptions): Promise<Int32Array>;
  saveState(): Promise<SavedState>;
  restoreState(saved: SavedState): Promise<void>;
}

/** How a session begins. */
export interface SessionOptions extends Omit<PromptOptions, 'addGenerationPrompt'> {
  /** The first message, of the role 'system'. */
  system?: string;
  /** A conversation to go on with. */
  messages?: readonly ChatMessage[];
}

/** A session as save() gives it and restore() takes it; it can be structured-cloned. */
export interface SavedSession extends SavedState {
  /** The conversation. */
  messages: ChatMessage[];
  /** The text of the timeline. */
  text: string;
  /** False where a stop string cut the text inside a token. */
  exact: boolean;
}

/** The caller's own characters that would mark text as plain, replaced. */
const withoutMarks = (text: string): string => text.replace(/[\uFDD0\uFDD1]/g, '\uFFFD');

/** Refuses what no save gave. */
export function checkSaved(saved: SavedState): void {
  if (!(saved?.tokens instanceof Int32Array && saved.state instanceof Uint8Array)) invalid('Only what was saved can be restored: tokens and state.');
}

/** Gives the engine's one KV cache to one session at a time. */
export class SessionTable {
  /** The session whose tokens the cache holds. */
  private active: Session | null = null;
  private line: Promise<unknown> = Promise.resolve();
  private waiting = 0;

  constructor(
    readonly engine: SessionEngine,
    private readonly parking: Parking,
  ) {}

  /** True while a generation that belongs to no session would disturb one. */
  get busy(): boolean {
    return this.active !== null || this.waiting > 0;
  }

  /** Runs `work` while the cache is `session`'s (or nobody's). */
  async during<T>(session: Session | null, work: () => Promise<T>): Promise<T> {
    this.waiting++;
    const run = this.line.then(async () => {
      await this.make(session);
      return work();
    });
    this.line = run.catch(() => {});
    try {
      return await run;
    } finally {
      this.waiting--;
    }
  }

  /** A generation in line behind the others; `finished` hears what it did. */
  generate(
    session: Session | null,
    prompt: () => Promise<string | ArrayLike<number>> | string | ArrayLike<number>,
    options: GenerateOptions,
    finished: (pieces: Piece[], exact: boolean, prompt: string | ArrayLike<number>) => void = () => {},
  ): Generation {
    let inner: Generation | null = null;
    let cancelled = false;
    const cancel = (): void => {
      cancelled = true;
      inner?.cancel();
    };
    const outer = new Generation({ cancel }, options.signal);
    const run = async (): Promise<void> => {
      const input = await prompt();
      inner = this.engine.start(input, options);
      if (cancelled) inner.cancel();
      const pieces: Piece[] = [];
      try {
        for await (const piece of inner) {
          pieces.push(piece);
          outer.receive([piece]);
        }
        const result = await inner.result;
        finished(pieces, result.stopString === undefined, input);
        outer.finish(result);
      } catch (error) {
        finished(pieces, false, input);
        throw error;
      }
    };
    this.during(session, run).catch((error) => outer.fail(error));
    return outer;
  }

  forget(session: Session): void {
    if (this.active === session) this.active = null;
  }

  private async make(session: Session | null): Promise<void> {
    if (this.active === session) return;
    const { active, engine } = this;
    this.active = null;
    if (active && !active.empty) active.parked = await this.park(await engine.saveState());
    if (!session) return;
    const { parked } = session;
    session.parked = null;
    if (parked) await engine.restoreState({ tokens: parked.tokens, state: await parked.state.take() });
    this.active = session;
  }

  async park({ tokens, state }: SavedState): Promise<ParkedState> {
    return { tokens, state: await this.parking.park(state) };
  }
}

interface ParkedState {
  tokens: Int32Array;
  state: Parked;
}

/** One conversation or text, with its KV cache. */
export class Session {
  /** @internal */
  parked: ParkedState | null = null;
  /** Tokens of the timeline and the text they stand for. */
  private tokens: number[] = [];
  private written = '';
  private asked = '';
  /** False when a stop string has cut the text inside a token. */
  private faithful = true;
  private readonly list: ChatMessage[];
  private disposed = false;

  /** @internal */
  constructor(
    private readonly table: SessionTable,
    private readonly options: SessionOptions,
  ) {
    signalOf(options);
    const { messages = [] } = options;
    if (!Array.isArray(messages)) invalid('messages must be a list of messages.');
    this.list = [...messages];
    if (options.system !== undefined) this.list.unshift({ role: 'system', content: options.system });
  }

  /** The conversation so far. */
  get messages(): readonly ChatMessage[] {
    return this.list;
  }

  /** The text of the timeline: prompts and answers. */
  get text(): string {
    return this.written.replace(/[\uFDD0\uFDD1]/g, '');
  }

  /** @internal */
  get empty(): boolean {
    return this.tokens.length === 0;
  }

  /** Adds text to the timeline and continues it. */
  generate(text: string, options: GenerateOptions = {}): Generation {
    return begun(options, () => {
      if (typeof text !== 'string') invalid('A session goes on with text; messages go to send().');
      return this.run(() => this.extended(this.written + withoutMarks(text), options.addBos ?? true, true), options);
    });
  }

  /**
   * Says something (a user's message, or one or more whole messages) and generates the answer. The
   * conversation then holds both; an answer that was aborted or failed leaves it as it was.
   */
  send(said: string | ChatMessage | readonly ChatMessage[], options: GenerateOptions = {}): Generation {
    return begun(options, () => this.answer(said, options));
  }

  private answer(said: string | ChatMessage | readonly ChatMessage[], options: GenerateOptions): Generation {
    const added: readonly ChatMessage[] = typeof said === 'string' ? [{ role: 'user', content: said }] : Array.isArray(said) ? said : [said as ChatMessage];
    let thinking = false;
    const given = [options.stop ?? []].flat();
    const merged: GenerateOptions = { ...options, stop: given };
    const prompt = async (): Promise<Int32Array> => {
      const rendered = await this.table.engine.prompts.render([...this.list, ...added], this.options);
      merged.stop = [...given, ...rendered.stop];
      thinking = /<think>\s*$/.test(rendered.text);
      return this.extended(rendered.text, rendered.addBos, rendered.marked);
    };
    return this.run(prompt, merged, (answer) => {
      const filter = new ThinkFilter(thinking);
      const content = filter.push(answer).content + filter.finish().content;
      this.list.push(...added, { role: 'assistant', content });
    });
  }

  /** A copy of everything, to be kept anywhere. */
  save(options?: CallOptions): Promise<SavedSession> {
    return this.alive(options, async () => {
      const nothing = { state: new Uint8Array(0) };
      const { state } = this.empty ? nothing : await this.table.engine.saveState();
      // The cache lags behind: the last token has not been read back.
      return { state, tokens: Int32Array.from(this.tokens), messages: [...this.list], text: this.written, exact: this.faithful };
    });
  }

  /** Becomes what was saved, in this engine or another one of the same model. */
  restore(saved: SavedSession, options?: CallOptions): Promise<void> {
    return this.alive(options, async () => {
      throwIfAborted(options?.signal);
      checkSaved(saved);
      if (!Array.isArray(saved.messages)) invalid("Only a session's save() can be restored here.");
      if (saved.tokens.length > 0) await this.table.engine.restoreState(saved);
      this.adopt(saved);
    });
  }

  /** A second session that goes on from here on its own. */
  async fork(options?: CallOptions): Promise<Session> {
    const saved = await this.save(options);
    const other = new Session(this.table, this.options);
    other.adopt(saved);
    if (!other.empty) other.parked = await this.table.park(saved);
    return other;
  }

  /** Forgets the session and what it keeps. The engine stays. */
  async dispose(): Promise<void> {
    if (this.disposed) return;
    this.disposed = true;
    this.table.forget(this);
    await this.parked?.state.drop();
    this.parked = null;
  }

  /** For `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  private alive<T>(options: CallOptions | undefined, work: () => Promise<T>): Promise<T> {
    return abortable(options, async () => {
      this.mustLive();
      return this.table.during(this, work);
    });
  }

  private mustLive(): void {
    if (this.disposed) throw new SluiceError('DISPOSED', 'The session was disposed of.');
  }

  private adopt(saved: SavedSession): void {
    this.tokens = [...saved.tokens];
    this.written = saved.text;
    this.faithful = saved.exact;
    this.list.splice(0, this.list.length, ...saved.messages);
  }

  private run(
    prompt: () => Promise<Int32Array>,
    options: GenerateOptions,
    answered: (text: string) => void = () => {},
  ): Generation {
    this.mustLive();
    const generation = this.table.generate(this, prompt, options, (pieces, exact, input) => {
      this.tokens = [...(input as Int32Array), ...pieces.map((piece) => piece.token)];
      this.written = this.asked + pieces.map((piece) => piece.text).join('');
      this.faithful = exact;
    });
    generation.result.then(
      (result) => answered(result.text),
      () => {},
    );
    return generation;
  }

  /**
   * Tokens of `text`. Where the text goes on from the timeline but the model wrote it in other
   * tokens than the tokenizer would, the timeline's are kept, so that nothing is computed twice.
   */
  private async extended(text: string, addBos: boolean, marked: boolean): Promise<Int32Array> {
    this.asked = text;
    const { engine } = this.table;
    const whole = await engine.tokenize(text, { addBos, marked });
    const known = this.tokens;
    const continues = this.faithful && known.length > 0 && text.startsWith(this.written);
    if (!continues || known.every((token, i) => token === whole[i])) return whole;
    const rest = text.slice(this.written.length);
    const more = rest ? await engine.tokenize(rest, { addBos: false, continues: true, marked }) : new Int32Array(0);
    return Int32Array.from([...known, ...more]);
  }
}
