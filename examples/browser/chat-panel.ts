// The chat panel: prompt, streamed response, stop, answer again. Every conversation has a session
// of the engine, so returning to it recomputes nothing. If a session no longer matches its
// conversation (another system prompt, or another tab's turns), it is disposed of and a new one
// starts.

import {
  SluiceError,
  type ChatMessage,
  type Engine,
  type Generation,
  type ProgressEvent,
  type Session,
} from 'sluice-llm';

import { isAbort, problemOf, reloadHelps } from './error-advice.js';
import { announce, byId, grow, make, on, run } from './dom.js';
import { rate } from './format.js';
import { MessageView } from './message.js';
import { sampling, wantsSchema } from './sampling.js';
import { Pictures } from './pictures.js';
import { Settings } from './settings.js';
import { Waiting } from './waiting.js';
import { newTurn, type Marks, type Mode, type Talk, type Turn } from './conversation.js';

const kSaveMs = 1000;

interface Running {
  talk: Talk;
  turn: Turn;
  view: MessageView;
  generation: Generation | null;
  session: Session | null;
}

/** A displayed message, and the state of the turn that it was made from. */
interface Shown {
  view: MessageView;
  state: string;
}

export class TalkPanel {
  private readonly log = byId('log');
  private readonly prompt = byId<HTMLTextAreaElement>('prompt');
  private readonly system = byId<HTMLTextAreaElement>('system');
  private talk!: Talk;
  private engine: Engine | null = null;
  private sessions = new Map<string, Session>();
  private running: Running | null = null;
  private shown = new Map<string, Shown>();
  /** The system prompt that was put into its field; anything else in it is being edited. */
  private given = '';
  private readonly settings = new Settings(
    () => this.enable(),
    () => this.instruct(),
  );
  private readonly waiting = new Waiting();
  private readonly pictures = new Pictures();

  /**
   * `onChange` receives what has changed in a conversation, and whether to store it immediately.
   */
  constructor(
    private readonly onChange: (talk: Talk, mark: (marks: Marks) => void, now?: boolean) => void,
  ) {
    on(byId('talk-form'), 'submit', (event) => {
      event.preventDefault();
      this.send();
    });
    on<KeyboardEvent>(this.prompt, 'keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    on(this.prompt, 'input', () => this.fitPrompt());
    on<KeyboardEvent>(document, 'keydown', ({ key, target }) => {
      if (key === 'Escape' && !(target as Element | null)?.closest?.('dialog')) this.stop();
    });
    on<CustomEvent<ProgressEvent>>(document, 'engine-progress', ({ detail }) => {
      this.waiting.take(detail);
      if (this.running) this.running.view.waitsFor = this.waiting.text;
    });
    on(byId('stop'), 'click', () => this.stop());
    on(this.system, 'change', () => this.instruct());
    for (const radio of this.modes()) {
      on(radio, 'change', () => {
        this.talk.mode = radio.value as Mode;
        this.onChange(this.talk, (marks) => marks.fields.add('mode'));
        this.drawHead();
      });
    }
    on(byId('log-empty'), 'click', ({ target }) => {
      const suggestion = (target as HTMLElement).closest<HTMLElement>('.suggestion');
      if (suggestion) this.preset(suggestion.textContent ?? '');
    });
    on(window, 'pagehide', () => this.running && this.keep(this.running, true));
    this.settings.use(null);
  }

  /** Shows a conversation. A response in another conversation continues in the background. */
  open(talk: Talk): void {
    if (this.talk && this.talk !== talk) this.instruct(); // applies a system prompt being edited
    this.talk = talk;
    this.shown = new Map();
    this.instructions(talk.system);
    this.draw();
    this.scroll();
  }

  /** Another tab has changed the conversation. */
  update(talk: Talk): void {
    this.renew(talk.id);
    const { running } = this;
    if (running?.talk === talk && !talk.turns.includes(running.turn)) running.generation?.cancel();
    if (talk !== this.talk) return;
    if (this.system.value.trim() === this.given) this.instructions(talk.system);
    const follow = this.atEnd();
    this.draw();
    if (follow) this.scroll();
  }

  /** Sets the engine; null: none. */
  async show(engine: Engine | null): Promise<void> {
    this.stop();
    this.engine = engine;
    this.sessions = new Map();
    this.settings.use(engine);
    this.pictures.use(engine);
    if (!engine) this.waiting.reset();
    // The buttons that load a model again have done their work.
    for (const button of this.log.querySelectorAll('.problem > button')) button.remove();
    if (engine && this.talk.turns.length === 0)
      this.talk.mode = engine.info.chatTemplate ? 'chat' : 'text';
    this.drawHead();
  }

  preset(prompt: string): void {
    this.prompt.value = prompt;
    this.fitPrompt();
    if (prompt) this.prompt.focus({ preventScroll: true });
  }

  /** The conversation was deleted: stops its response silently. */
  forget(talk: Talk): void {
    if (this.running?.talk === talk) this.stop();
    this.renew(talk.id);
  }

  private stop(): void {
    this.running?.generation?.cancel();
  }

  /** Disposes of a conversation's session, immediately or when its response has ended. */
  private renew(id: string): void {
    const session = this.sessions.get(id);
    this.sessions.delete(id);
    if (session && session !== this.running?.session) run(() => session.dispose());
  }

  private instructions(system: string): void {
    this.given = this.system.value = system;
  }

  /** Applies an edited system prompt. A running response keeps the previous one. */
  private instruct(): void {
    const system = this.system.value.trim();
    if (system === this.given) return;
    this.given = this.talk.system = system;
    this.renew(this.talk.id);
    this.onChange(this.talk, (marks) => marks.fields.add('system'));
  }

  private send(): void {
    const text = this.prompt.value;
    if ((text.trim() === '' && this.pictures.empty) || this.running) return;
    if (!this.engine) {
      document.dispatchEvent(new CustomEvent('show-pane', { detail: 'model' }));
      byId('find').focus();
      announce('Load a model first.');
      return;
    }
    if (this.settings.wrong) return this.settings.open();
    this.instruct();
    this.prompt.value = '';
    this.fitPrompt();
    this.ask(this.talk, text, this.pictures.take());
  }

  private ask(talk: Talk, text: string, pictures: Blob[]): void {
    const question = newTurn('user', text);
    if (pictures.length > 0) question.pictures = pictures;
    const turn = newTurn('assistant');
    talk.turns.push(question, turn);
    talk.updated = Date.now();
    const view = new MessageView(turn, talk.mode === 'text' ? text : '');
    view.busy = true;
    this.waiting.begin();
    this.running = { talk, turn, view, generation: null, session: null };
    this.onChange(talk, (marks) => marks.add(question, turn));
    this.draw();
    view.waitsFor = this.waiting.text;
    this.scroll();
    run(() => this.answer(this.running!, question));
  }

  private async answer(running: Running, question: Turn): Promise<void> {
    const { talk, turn, view } = running;
    let saved = performance.now();
    try {
      const generation = this.start(running, question);
      running.generation = generation;
      if (wantsSchema()) run(() => this.grow(generation, view));
      for await (const piece of generation) {
        const { content = piece.text, reasoning = '' } = piece;
        turn.content += content;
        if (reasoning) turn.reasoning = (turn.reasoning ?? '') + reasoning;
        const follow = this.atEnd();
        view.push(content, reasoning);
        if (follow) requestAnimationFrame(() => this.scroll());
        // Saves regularly, so that a reload keeps the partial response.
        const due = performance.now() - saved >= kSaveMs;
        if (due) saved = performance.now();
        this.keep(running, due);
      }
      const result = await generation.result;
      turn.content = result.content ?? result.text;
      if (result.reasoning) turn.reasoning = result.reasoning;
      turn.note = noteOf(result);
    } catch (error) {
      turn.note = 'stopped';
      const left = isAbort(error) || (error instanceof SluiceError && error.code === 'DISPOSED');
      if (!left) this.failed(running, question, error);
      this.renew(talk.id);
    }
    const { session } = running;
    if (this.sessions.get(talk.id) !== session) run(() => session?.dispose());
    this.running = null;
    view.finish(turn);
    if (talk === this.talk) this.shown.set(turn.id, { view, state: stateOf(turn) });
    const follow = this.atEnd();
    this.draw();
    if (follow) this.scroll();
    talk.updated = Date.now();
    this.onChange(talk, (marks) => marks.change(question, turn));
  }

  /** Shows the partial value of a JSON response. answer() reports errors. */
  private async grow(generation: Generation, view: MessageView): Promise<void> {
    try {
      for await (const value of generation.partials()) {
        const follow = this.atEnd();
        view.value = value;
        if (follow) requestAnimationFrame(() => this.scroll());
      }
    } catch {
      // answer() reports it
    }
  }

  private failed({ turn, view }: Running, question: Turn, error: unknown): void {
    turn.failed = question.failed = true;
    turn.note = 'failed';
    turn.problem = problemOf(error);
    if (!reloadHelps(turn.problem)) return view.problem(turn.problem);
    const again = make('button', { type: 'button', class: 'quiet' }, 'Load the model again');
    on(again, 'click', () => document.dispatchEvent(new CustomEvent('load-again')));
    view.problem(turn.problem, again);
  }

  private keep({ talk, turn }: Running, now: boolean): void {
    this.onChange(talk, (marks) => marks.change(turn), now);
  }

  private start(running: Running, question: Turn): Generation {
    const engine = this.engine!;
    const { talk } = running;
    const { content: text, pictures: images = [] } = question;
    if (talk.mode === 'text')
      return engine.generate(
        '<__media__>'.repeat(images.length) + text,
        images.length > 0 ? { ...sampling(), images } : sampling(),
      );
    let session = this.sessions.get(talk.id);
    if (!session) {
      const before = talk.turns.slice(0, -2).filter((turn) => !turn.failed);
      const messages = before.map(messageOf);
      session = engine.session({ messages, ...(talk.system && { system: talk.system }) });
      this.sessions.set(talk.id, session);
    }
    running.session = session;
    return session.send(images.length > 0 ? messageOf(question) : text, sampling());
  }

  /** Generates the last response again. */
  private again(talk: Talk, turn: Turn): void {
    if (this.running || !this.engine || talk.turns.at(-1) !== turn) return;
    const pair = talk.turns.splice(-2);
    this.renew(talk.id);
    this.onChange(talk, (marks) => marks.drop(...pair), false);
    this.ask(talk, pair[0]!.content, pair[0]!.pictures ?? []);
    this.prompt.focus({ preventScroll: true });
  }

  // --- display -------------------------------------------------------------------------------

  /** Updates the messages. Elements of unchanged ones stay. */
  private draw(): void {
    const { talk, running } = this;
    const shown = new Map<string, Shown>();
    const elements: HTMLElement[] = [];
    talk.turns.forEach((turn, i) => {
      // In text mode the prompt is displayed as the beginning of the response.
      if (turn.role === 'user' && talk.mode === 'text') return;
      if (turn === running?.turn) return void elements.push(running.view.element);
      const state = stateOf(turn);
      const old = this.shown.get(turn.id);
      const view = old?.state === state ? old.view : new MessageView(turn, this.givenFor(talk, i));
      if (view !== old?.view && turn.role === 'assistant') view.finish(turn);
      const last = i === talk.turns.length - 1 && turn.role === 'assistant';
      view.repeat(last ? () => this.again(talk, turn) : null);
      shown.set(turn.id, { view, state });
      elements.push(view.element);
    });
    this.shown = shown;
    let place = byId('log-empty').nextElementSibling;
    for (const element of elements) {
      if (element === place) place = place.nextElementSibling;
      else this.log.insertBefore(element, place);
    }
    while (place) {
      const next: Element | null = place.nextElementSibling;
      place.remove();
      place = next;
    }
    this.drawHead();
  }

  private givenFor(talk: Talk, place: number): string {
    return talk.mode === 'text' ? (talk.turns[place - 1]?.content ?? '') : '';
  }

  private modes(): HTMLInputElement[] {
    return [...document.querySelectorAll<HTMLInputElement>('input[name=mode]')];
  }

  private drawHead(): void {
    const busy = this.running !== null;
    byId('stop').hidden = !busy;
    byId('send').hidden = busy;
    this.enable();
    byId('log-empty').hidden = this.talk.turns.length > 0;
    byId('suggestions').hidden = !this.engine || this.talk.mode === 'text';
    byId('no-model').hidden = this.engine !== null;
    this.prompt.placeholder =
      this.talk.mode === 'chat' ? 'Write a message' : 'Write the beginning of a text';
    for (const radio of this.modes()) {
      radio.checked = radio.value === this.talk.mode;
      radio.disabled = this.talk.turns.length > 0;
    }
  }

  private enable(): void {
    byId<HTMLButtonElement>('send').disabled = !this.engine || this.settings.wrong !== '';
  }

  private fitPrompt(): void {
    grow(this.prompt, 180);
  }

  private atEnd(): boolean {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 80;
  }

  private scroll(): void {
    this.log.scrollTop = this.log.scrollHeight;
  }
}

/** A turn as the model gets it, its pictures first. */
function messageOf({ role, content, pictures = [] }: Turn): ChatMessage {
  if (pictures.length === 0) return { role, content };
  const images = pictures.map((image) => ({ type: 'image', image }) as const);
  return { role, content: [...images, { type: 'text', text: content }] };
}

const stateOf = ({ content, reasoning, note, failed, problem }: Turn): string =>
  JSON.stringify([content, reasoning, note, failed, problem]);

function noteOf({ usage, timings, finishReason }: Awaited<Generation['result']>): string {
  const parts = [`${usage.completionTokens} tokens`];
  if (timings.tokensPerSecond) parts.push(`${rate(timings.tokensPerSecond)} tokens/s`);
  parts.push(
    'first token after ' +
      `${(timings.timeToFirstTokenMs / 1000).toFixed(timings.timeToFirstTokenMs < 1000 ? 2 : 1)} ` +
      's',
  );
  if (usage.cachedTokens > 0)
    parts.push(
      `${usage.promptTokens - usage.cachedTokens} of ${usage.promptTokens} prompt tokens computed`,
    );
  if (finishReason === 'cancelled') parts.push('stopped');
  if (finishReason === 'length') parts.push('token limit reached');
  return parts.join(' · ');
}
