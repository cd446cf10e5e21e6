// One message of the conversation: streamed text, buttons, and a note below it. Drawn at most once
// per frame, and announced to screen readers by sentences, not by tokens.

import { announce, icon, iconButton, make } from './dom.js';
import { render, splitReasoning } from './markup.js';
import { Sentences } from './sentences.js';
import { jsonOf, spoken, TreeView } from './tree.js';

const kSpeakMs = 1500;

export class MessageView {
  readonly element: HTMLElement;
  text = '';
  private readonly body = make('div', { class: 'body' });
  private readonly foot = make('div', { class: 'foot' });
  private readonly sentences = new Sentences();
  private again: HTMLButtonElement | null = null;
  private frame = 0;
  private spoken = 0;
  private spokenAt = 0;
  private shown: { value: unknown } | null = null;
  private readonly tree = new TreeView();

  constructor(
    readonly role: 'user' | 'assistant',
    text = '',
    private readonly given = '',
  ) {
    const who = role === 'user' ? 'You' : 'Model';
    this.element = make(
      'article',
      { class: `message ${role}` },
      make('h3', { class: 'visually-hidden' }, who),
      this.body,
    );
    this.text = text;
    if (role === 'assistant') this.element.append(this.foot);
    this.draw();
  }

  set busy(busy: boolean) {
    this.element.classList.toggle('busy', busy);
    this.element.setAttribute('aria-busy', String(busy));
  }

  push(text: string): void {
    this.text += text;
    this.frame ||= requestAnimationFrame(() => this.draw());
    if (this.shown) return;
    this.sentences.push(text);
    const now = performance.now();
    if (now - this.spokenAt < kSpeakMs || this.sentences.end <= this.spoken) return;
    this.spokenAt = now;
    this.speak(this.sentences.end);
  }

  /** Partial value of a JSON response. */
  set value(value: unknown) {
    this.shown = { value };
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  /** The response is complete: announces the rest and shows the buttons. */
  finish(note: string): void {
    cancelAnimationFrame(this.frame);
    this.draw();
    if (this.shown) this.say(spoken(this.shown.value));
    else this.speak(this.text.length);
    this.busy = false;
    this.foot.replaceChildren(this.copyButton(), make('span', { class: 'note' }, note));
  }

  /** Action of the button "Answer again"; null: no button. */
  repeat(act: (() => void) | null): void {
    this.again?.remove();
    this.again = act && iconButton('again', 'Answer again', act);
    if (this.again) this.foot.lastElementChild?.before(this.again);
  }

  problem(content: Node): void {
    this.element.insertBefore(make('div', { class: 'problem', role: 'alert' }, content), this.foot);
  }

  private speak(end: number): void {
    const { answer } = splitReasoning(this.text.slice(0, end));
    const start = this.spoken;
    this.spoken = end;
    this.say(answer.slice(Math.max(0, start - (end - answer.length))).trim());
  }

  private say(text: string): void {
    if (text && this.element.isConnected && this.element.getAttribute('aria-busy') === 'true')
      announce(text);
  }

  private draw(): void {
    this.frame = 0;
    if (this.role === 'user') return this.body.replaceChildren(this.text);
    const { thought, answer } = splitReasoning(this.text);
    const given = this.given && make('span', { class: 'given' }, this.given);
    const json = this.shown ?? jsonOf(answer);
    if (json) {
      this.tree.show(json.value);
      return this.body.replaceChildren(
        ...(given ? [make('div', { class: 'prose' }, given)] : []),
        this.tree.element,
      );
    }
    // Text mode shows plain text; chat responses are rendered as Markdown.
    if (given) return this.body.replaceChildren(make('div', { class: 'prose' }, given, this.text));
    const parts: Node[] = render(answer);
    if (thought) {
      const open = this.body.querySelector('details')?.open ?? false;
      parts.unshift(
        make(
          'details',
          { class: 'thought', open },
          make('summary', {}, answer ? 'Reasoning' : 'Thinking…'),
          thought,
        ),
      );
    }
    this.body.replaceChildren(...parts);
  }

  private copyButton(): HTMLButtonElement {
    const copy = iconButton('copy', 'Copy', async () => {
      await navigator.clipboard.writeText(this.given + this.text);
      copy.replaceChildren(icon('check'));
      announce('Copied');
      setTimeout(() => copy.replaceChildren(icon('copy')), 1500);
    });
    return copy;
  }
}
