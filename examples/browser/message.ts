// One message of the conversation: what it waits for, streamed text, buttons, and a note below it.
// Drawn at most once per frame, and announced to screen readers by sentences, not by tokens.

import { announce, icon, iconButton, make } from './dom.js';
import { explained } from './error-advice.js';
import { render, spokenText } from './markup.js';
import { thumbnail } from './pictures.js';
import { Sentences } from './sentences.js';
import { jsonOf, spoken, TreeView } from './tree.js';
import type { Problem, Turn } from './conversation.js';

const kSpeakMs = 1500;

export class MessageView {
  readonly element: HTMLElement;
  private readonly role: Turn['role'];
  private text: string;
  private reasoning: string;
  private readonly body = make('div', { class: 'body' });
  private readonly foot = make('div', { class: 'foot' });
  private readonly sentences = new Sentences();
  private again: HTMLButtonElement | null = null;
  private frame = 0;
  private spoken = 0;
  private spokenAt = 0;
  private awaited = '';
  private readonly begun = performance.now();
  private saidWhy = false;
  private shown: { value: unknown } | null = null;
  private readonly tree = new TreeView();
  private readonly pictures: HTMLElement[];

  /** `given`: the prompt, which text mode shows as the beginning of the response. */
  constructor(
    { role, content, pictures = [], reasoning = '', problem }: Turn,
    private readonly given = '',
  ) {
    this.role = role;
    this.text = content;
    this.reasoning = reasoning;
    this.pictures = pictures.map((picture) => thumbnail(picture));
    this.element = make(
      'article',
      { class: `message ${role}` },
      make('h3', { class: 'visually-hidden' }, role === 'user' ? 'You' : 'Model'),
      this.body,
    );
    if (role === 'assistant') this.element.append(this.foot);
    if (problem) this.problem(problem);
    this.draw();
  }

  set busy(busy: boolean) {
    this.element.classList.toggle('busy', busy);
    this.element.setAttribute('aria-busy', String(busy));
  }

  /** What the response waits for, until its text begins. */
  set waitsFor(text: string) {
    if (this.text || this.reasoning || text === this.awaited) return;
    this.awaited = text;
    this.redraw();
    if (this.saidWhy || performance.now() - this.begun < kSpeakMs) return;
    this.saidWhy = true;
    this.say(text);
  }

  push(text: string, reasoning = ''): void {
    this.reasoning += reasoning;
    this.text += text;
    this.redraw();
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
    this.redraw();
  }

  /** The response is complete: announces the rest and shows the buttons. */
  finish({ content, reasoning = '', note = '' }: Turn): void {
    cancelAnimationFrame(this.frame);
    this.text = content;
    this.reasoning = reasoning;
    this.awaited = '';
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

  /** Shows why the turn failed, and a button that may help. */
  problem(problem: Problem, help?: HTMLElement): void {
    const box = make('div', { class: 'problem', role: 'alert' }, explained(problem), help);
    this.element.insertBefore(box, this.foot);
  }

  private speak(end: number): void {
    const text = this.text.slice(this.spoken, end);
    this.spoken = end;
    this.say(spokenText(text));
  }

  private say(text: string): void {
    if (text && this.element.isConnected && this.element.getAttribute('aria-busy') === 'true')
      announce(text);
  }

  private redraw(): void {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  private draw(): void {
    this.frame = 0;
    if (this.role === 'user') return this.body.replaceChildren(...this.pictures, this.text);
    const given = this.given && make('span', { class: 'given' }, this.given);
    const json = this.shown ?? jsonOf(this.text);
    const parts: (Node | string)[] = [];
    if (json) {
      this.tree.show(json.value);
      if (given) parts.push(make('div', { class: 'prose' }, given));
      parts.push(this.tree.element);
    } else if (given) {
      // Text mode shows plain text; chat responses are rendered as Markdown.
      parts.push(make('div', { class: 'prose' }, given, this.text));
    } else if (this.text) {
      parts.push(...render(this.text));
    }
    if (this.reasoning) parts.unshift(this.thought());
    if (this.awaited && !this.text && !this.reasoning)
      parts.push(make('p', { class: 'waiting' }, this.awaited));
    this.body.replaceChildren(...parts);
  }

  private thought(): HTMLElement {
    const open = this.body.querySelector<HTMLDetailsElement>('.thought')?.open ?? false;
    const title = this.text ? 'Reasoning' : 'Thinking…';
    return make('details', { class: 'thought', open }, make('summary', {}, title), this.reasoning);
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
