// The conversation on view: prompt in, streamed text out, stop, answer again. Every conversation has a
// session of the engine, so that coming back to one computes nothing twice.

import { SluiceError, type ChatMessage, type Engine, type Generation, type Session } from 'sluice-llm';

import { explain, isAbort } from './advice.js';
import { announce, byId } from './dom.js';
import { rate } from './format.js';
import type { Mode, Talk, Turn } from './history.js';
import { MessageView } from './message.js';
import { sampling } from './sampling.js';

const kSaveMs = 1000;

export class TalkPanel {
  private readonly log = byId('log');
  private readonly prompt = byId<HTMLTextAreaElement>('prompt');
  private readonly system = byId<HTMLTextAreaElement>('system');
  private talk!: Talk;
  private engine: Engine | null = null;
  private sessions = new Map<string, Session>();
  private running: { talk: Talk; generation: Generation } | null = null;

  /** Called whenever a conversation has to be stored. */
  constructor(private readonly onChange: (talk: Talk) => Promise<void>) {
    byId('talk-form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.send();
    });
    this.prompt.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    this.prompt.addEventListener('input', () => this.fitPrompt());
    document.addEventListener('keydown', (event) => event.key === 'Escape' && this.stop());
    byId('stop').addEventListener('click', () => this.stop());
    this.system.addEventListener('change', () => {
      this.talk.system = this.system.value.trim();
      this.forget(this.talk);
    });
    for (const radio of this.modes()) {
      radio.addEventListener('change', () => ((this.talk.mode = radio.value as Mode), this.drawHead()));
    }
    byId('log-empty').addEventListener('click', ({ target }) => {
      const suggestion = (target as HTMLElement).closest<HTMLElement>('.suggestion');
      if (suggestion) this.preset(suggestion.textContent ?? '');
    });
  }

  /** Shows a conversation; an answer to another one goes on being written there. */
  open(talk: Talk): void {
    this.talk = talk;
    this.system.value = talk.system;
    for (const old of this.log.querySelectorAll('.message')) old.remove();
    talk.turns.forEach((turn, i) => {
      if (this.running?.talk === talk && i === talk.turns.length - 1) return; // its view comes back below
      const view = this.view(turn, talk.turns[i - 1]);
      if (turn.role === 'assistant') view.finish(turn.note ?? '', this.againFor(talk, i));
    });
    if (this.running?.talk === talk && this.live) this.log.append(this.live.element);
    this.drawHead();
    this.scroll(true);
  }

  /** The engine that answers from now on; null: none. */
  async show(engine: Engine | null): Promise<void> {
    this.running?.generation.cancel();
    this.engine = engine;
    this.sessions = new Map();
    if (engine && this.talk.turns.length === 0) this.talk.mode = engine.info.chatTemplate ? 'chat' : 'text';
    this.drawHead();
  }

  preset(prompt: string): void {
    this.prompt.value = prompt;
    this.fitPrompt();
    if (prompt) this.prompt.focus({ preventScroll: true });
  }

  /** The conversation was deleted. */
  forget(talk: Talk): void {
    if (this.running?.talk === talk) this.running.generation.cancel();
    void this.sessions.get(talk.id)?.dispose();
    this.sessions.delete(talk.id);
  }

  private live: MessageView | null = null;

  private stop(): void {
    this.running?.generation.cancel();
  }

  private send(): void {
    const text = this.prompt.value;
    if (text.trim() === '' || this.running) return;
    if (!this.engine) {
      document.dispatchEvent(new CustomEvent('show-pane', { detail: 'model' }));
      byId('url').focus();
      announce('Load a model first.');
      return;
    }
    this.prompt.value = '';
    this.fitPrompt();
    this.talk.turns.push({ role: 'user', content: text });
    if (this.talk.mode === 'chat') this.view(this.talk.turns.at(-1)!);
    void this.answer(this.talk, text);
  }

  private async answer(talk: Talk, text: string): Promise<void> {
    const turn: Turn = { role: 'assistant', content: '' };
    talk.turns.push(turn);
    const place = talk.turns.length - 1;
    const view = (this.live = this.view(turn, talk.turns[place - 1]));
    view.busy = true;
    let saved = performance.now();
    void this.onChange(talk);
    try {
      const generation = this.start(talk, text);
      this.running = { talk, generation };
      this.drawHead();
      for await (const piece of generation) {
        turn.content += piece.text;
        const follow = this.atEnd();
        view.push(piece.text);
        if (follow) requestAnimationFrame(() => this.scroll());
        if (performance.now() - saved < kSaveMs) continue;
        saved = performance.now();
        void this.onChange(talk); // a reload in the middle keeps what was said
      }
      turn.note = noteOf(await generation.result);
    } catch (error) {
      turn.note = 'stopped';
      const left = isAbort(error) || (error instanceof SluiceError && error.code === 'DISPOSED');
      if (!left) {
        turn.failed = true;
        talk.turns[place - 1]!.failed = true;
        turn.note = error instanceof SluiceError ? error.code : 'failed';
        view.problem(explain(error));
      }
      this.forget(talk);
    }
    this.running = this.live = null;
    view.finish(turn.note, this.againFor(talk, place));
    this.drawHead();
    this.scroll();
    await this.onChange(talk);
  }

  private start(talk: Talk, text: string): Generation {
    const engine = this.engine!;
    if (talk.mode === 'text') return engine.generate(text, sampling());
    let session = this.sessions.get(talk.id);
    if (!session) {
      const before = talk.turns.slice(0, -2).filter((turn) => !turn.failed);
      const messages: ChatMessage[] = before.map(({ role, content }) => ({ role, content }));
      session = engine.session({ messages, ...(talk.system && { system: talk.system }) });
      this.sessions.set(talk.id, session);
    }
    return session.send(text, sampling());
  }

  /** What repeats the last answer; only that one can be repeated. */
  private againFor(talk: Talk, place: number): (() => void) | undefined {
    if (place !== talk.turns.length - 1) return undefined;
    return () => {
      if (this.running || !this.engine || talk.turns.length - 1 !== place) return;
      const [asked] = talk.turns.splice(-2);
      this.forget(talk);
      talk.turns.push({ role: 'user', content: asked!.content });
      this.open(talk);
      if (talk.mode === 'text') this.log.querySelector('.message:last-child')?.remove();
      void this.answer(talk, asked!.content);
      this.prompt.focus({ preventScroll: true });
    };
  }

  // --- what is seen --------------------------------------------------------------------------

  private view(turn: Turn, asked?: Turn): MessageView {
    const given = this.talk.mode === 'text' && turn.role === 'assistant' ? (asked?.content ?? '') : '';
    const view = new MessageView(turn.role, turn.content, given);
    if (turn.role === 'user' && this.talk.mode === 'text') return view; // shown as the beginning of its text
    this.log.append(view.element);
    byId('log-empty').hidden = true;
    this.scroll(true);
    return view;
  }

  private modes(): HTMLInputElement[] {
    return [...document.querySelectorAll<HTMLInputElement>('input[name=mode]')];
  }

  private drawHead(): void {
    const busy = this.running !== null;
    byId('stop').hidden = !busy;
    byId('send').hidden = busy;
    byId<HTMLButtonElement>('send').disabled = !this.engine;
    byId('log-empty').hidden = this.talk.turns.length > 0;
    byId('suggestions').hidden = !this.engine || this.talk.mode === 'text';
    byId('no-model').hidden = this.engine !== null;
    this.prompt.placeholder = this.talk.mode === 'chat' ? 'Write a message' : 'Write the beginning of a text';
    for (const radio of this.modes()) {
      radio.checked = radio.value === this.talk.mode;
      radio.disabled = this.talk.turns.length > 0;
    }
  }

  private fitPrompt(): void {
    this.prompt.style.height = 'auto';
    this.prompt.style.height = `${Math.min(this.prompt.scrollHeight + 2, 180)}px`;
  }

  private atEnd(): boolean {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 80;
  }

  private scroll(always = true): void {
    if (always || this.atEnd()) this.log.scrollTop = this.log.scrollHeight;
  }
}

function noteOf({ usage, timings, finishReason }: Awaited<Generation['result']>): string {
  const parts = [`${usage.completionTokens} tokens`];
  if (timings.tokensPerSecond) parts.push(`${rate(timings.tokensPerSecond)} tokens/s`);
  parts.push(`first after ${(timings.timeToFirstTokenMs / 1000).toFixed(timings.timeToFirstTokenMs < 1000 ? 2 : 1)} s`);
  if (usage.cachedTokens > 0) parts.push(`${usage.promptTokens - usage.cachedTokens} of ${usage.promptTokens} prompt tokens read`);
  if (finishReason === 'cancelled') parts.push('stopped');
  if (finishReason === 'length') parts.push('cut at its length');
  return parts.join(' · ');
}
