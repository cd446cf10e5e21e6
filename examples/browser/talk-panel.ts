// The conversation: prompt in, streamed text out, stop, copy, sampling settings. In chat mode the
// whole conversation goes to the engine each time; it computes only what is new.

import { SluiceError, type Engine, type Generation, type GenerateOptions } from 'sluice-llm';

import { byId, make } from './dom.js';
import { rate } from './format.js';

type Turn = {
  role: 'user' | 'assistant';
  content: string;
};

export class TalkPanel {
  private readonly log = byId('log');
  private readonly prompt = byId<HTMLTextAreaElement>('prompt');
  private readonly hint = this.log.firstElementChild!.cloneNode(true);
  private engine: Engine | null = null;
  private turns: Turn[] = [];
  private control: AbortController | null = null;

  constructor() {
    byId('talk-form').addEventListener('submit', (event) => {
      event.preventDefault();
      void this.go();
    });
    this.prompt.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      void this.go();
    });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') this.control?.abort();
    });
    byId('stop').addEventListener('click', () => this.control?.abort());
    byId('clear').addEventListener('click', () => this.clear());
  }

  async show(engine: Engine | null): Promise<void> {
    this.control?.abort();
    this.engine = engine;
    this.prompt.disabled = byId<HTMLButtonElement>('send').disabled = engine === null;
    if (!engine) return;
    const mode = engine.info.chatTemplate ? 'chat' : 'continue';
    document.querySelector<HTMLInputElement>(`input[name=mode][value=${mode}]`)!.checked = true;
    this.prompt.focus({ preventScroll: true });
  }

  preset(prompt: string): void {
    this.prompt.value = prompt;
  }

  private clear(): void {
    this.control?.abort();
    this.turns = [];
    this.log.replaceChildren(this.hint.cloneNode(true));
    this.prompt.focus();
  }

  private get chatting(): boolean {
    return document.querySelector<HTMLInputElement>('input[name=mode]:checked')!.value === 'chat';
  }

  private async go(): Promise<void> {
    const text = this.prompt.value || this.prompt.placeholder;
    if (!this.engine || this.control) return;
    this.log.querySelector('.hint')?.remove();
    const chat = this.chatting;
    const answer = make('div', { class: 'message model busy' });
    if (chat) {
      this.turns.push({ role: 'user', content: text });
      this.log.append(make('div', { class: 'message user' }, text));
      this.prompt.value = '';
    } else {
      answer.append(make('span', { class: 'given' }, text));
    }
    const body = make('span');
    answer.append(body);
    this.log.append(answer);
    this.setBusy(true);
    const control = (this.control = new AbortController());
    let finish = '';
    try {
      finish = await this.stream(this.start(chat, text, control.signal), body, control.signal);
    } catch (error) {
      if ((error as Error).name === 'AbortError') finish = 'stopped';
      else this.problem(answer, error);
    }
    this.control = null;
    this.setBusy(false);
    answer.classList.remove('busy');
    if (chat) this.turns.push({ role: 'assistant', content: body.textContent ?? '' });
    this.foot(answer, (chat ? '' : text) + (body.textContent ?? ''), finish);
    this.prompt.focus({ preventScroll: true });
  }

  private start(chat: boolean, text: string, signal: AbortSignal): AsyncIterable<string> {
    const options = { ...this.sampling(), signal };
    const engine = this.engine!;
    if (chat) return chatPieces(engine, this.turns, options);
    return plainPieces(engine.generate(text, options));
  }

  /** Appends pieces as they come; answers with how it ended. */
  private async stream(pieces: AsyncIterable<string>, body: HTMLElement, signal: AbortSignal): Promise<string> {
    for await (const piece of pieces) {
      const follow = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
      body.append(piece);
      if (follow) this.log.scrollTop = this.log.scrollHeight;
    }
    return signal.aborted ? 'stopped' : '';
  }

  private foot(answer: HTMLElement, text: string, finish: string): void {
    const stats = this.engine?.stats();
    const figures = stats ? `${stats.generatedTokens} tokens, ${rate(stats.tokensPerSecond)}/s` : '';
    const copy = make('button', { type: 'button', class: 'quiet' }, 'Copy');
    copy.addEventListener('click', async () => {
      await navigator.clipboard.writeText(text);
      copy.textContent = 'Copied';
      setTimeout(() => (copy.textContent = 'Copy'), 1500);
    });
    answer.append(
      make('div', { class: 'foot' }, copy, [figures, finish].filter(Boolean).join(', ')),
    );
    this.log.scrollTop = this.log.scrollHeight;
  }

  private problem(answer: HTMLElement, error: unknown): void {
    const code = error instanceof SluiceError ? ` (${error.code})` : '';
    answer.append(make('p', { class: 'problem' }, `${(error as Error).message}${code}`));
  }

  private setBusy(busy: boolean): void {
    byId('stop').hidden = !busy;
    byId('send').hidden = busy;
  }

  private sampling(): GenerateOptions {
    const options: Record<string, number | string> = {};
    for (const input of byId('sampling').querySelectorAll('input')) {
      if (input.value === '') continue;
      options[input.name] = input.type === 'number' ? Number(input.value) : input.value;
    }
    return options as GenerateOptions;
  }
}

async function* plainPieces(generation: Generation): AsyncIterable<string> {
  for await (const piece of generation) yield piece.text;
}

/** A chat through the model's own template, streamed. */
async function* chatPieces(engine: Engine, turns: Turn[], options: GenerateOptions): AsyncIterable<string> {
  const { signal, temperature, topK, topP, minP, repeatPenalty, maxTokens, seed, stop } = options;
  const stream = await engine.chat.completions.create({
    messages: turns, stream: true, signal, temperature, seed, stop, max_tokens: maxTokens,
    top_k: topK, top_p: topP, min_p: minP, repeat_penalty: repeatPenalty,
  });
  for await (const chunk of stream) yield chunk.choices[0]?.delta.content ?? '';
}
