// The list of conversations: choose, rename, delete, begin a new one.

import { announce, byId, deleteButton, iconButton, make } from './dom.js';
import { ago } from './format.js';
import { History, newTalk, type Talk } from './history.js';

export class TalkList {
  private talks: Talk[] = [];
  private current: Talk = newTalk('chat');
  /** An answer that was being written to one of these must not bring it back. */
  private readonly deleted = new WeakSet<Talk>();
  private readonly list = byId('talk-list');

  /** Called with the conversation to show, and with one that was deleted. */
  constructor(
    private readonly history: History,
    private readonly onOpen: (talk: Talk) => void,
    private readonly onDelete: (talk: Talk) => void,
  ) {
    byId('new-talk').addEventListener('click', () => this.begin());
  }

  /** Shows the latest conversation, or an empty one. */
  async start(): Promise<void> {
    this.talks = await this.history.all();
    this.open(this.talks[0] ?? this.current);
  }

  /** A new conversation; an empty one that is open already will do. */
  begin(): void {
    if (this.current.turns.length > 0) this.open(newTalk(this.current.mode));
    else this.open(this.current);
    byId('prompt').focus();
  }

  /** A conversation has changed: it goes to the top and is stored. */
  async changed(talk: Talk): Promise<void> {
    if (this.deleted.has(talk)) return;
    talk.updated = Date.now();
    talk.title ||= titleOf(talk);
    this.talks = [talk, ...this.talks.filter((other) => other !== talk)];
    this.draw();
    await this.history.save(talk);
  }

  private open(talk: Talk): void {
    this.current = talk;
    this.draw();
    this.onOpen(talk);
  }

  private draw(): void {
    byId('no-talks').hidden = this.talks.length > 0;
    this.list.replaceChildren(...this.talks.map((talk) => this.row(talk)));
    byId('talk-title').textContent = this.current.title || 'New conversation';
  }

  private row(talk: Talk): HTMLElement {
    const current = talk === this.current;
    const pick = make('button', { type: 'button', class: 'pick', 'aria-current': current },
      make('span', { class: 'name' }, talk.title), make('small', {}, ago(talk.updated)));
    pick.addEventListener('click', () => {
      this.open(talk);
      document.dispatchEvent(new CustomEvent('show-pane', { detail: 'talk' }));
    });
    const item = make('li', { class: current ? 'row-item current' : 'row-item' }, pick);
    item.append(
      iconButton('pencil', `Rename ${talk.title}`, () => this.rename(talk, item)),
      deleteButton(`Delete ${talk.title}`, () => void this.remove(talk)),
    );
    return item;
  }

  private rename(talk: Talk, item: HTMLElement): void {
    const field = make('input', { type: 'text', value: talk.title, 'aria-label': 'New name', maxLength: 120 });
    item.replaceChildren(field);
    field.focus();
    field.select();
    let over = false;
    const finish = async (keep: boolean): Promise<void> => {
      if (over) return;
      over = true;
      if (keep && field.value.trim()) talk.title = field.value.trim();
      await this.history.save(talk);
      this.draw();
      const place = this.talks.indexOf(talk);
      this.list.children[place]?.querySelectorAll('button')[1]?.focus();
    };
    field.addEventListener('blur', () => void finish(true));
    field.addEventListener('keydown', (event) => {
      event.stopPropagation();
      if (event.key !== 'Enter' && event.key !== 'Escape') return;
      event.preventDefault(); // else the key would press the button that gets the focus
      void finish(event.key === 'Enter');
    });
  }

  /** It leaves the list once it has left the database: what is not seen any more is gone for good. */
  private async remove(talk: Talk): Promise<void> {
    if (this.deleted.has(talk)) return;
    this.deleted.add(talk);
    this.onDelete(talk);
    try {
      await this.history.remove(talk.id);
    } catch {
      this.deleted.delete(talk);
      return announce(`${talk.title} could not be deleted.`);
    }
    const place = this.talks.indexOf(talk);
    this.talks.splice(place, 1);
    announce(`${talk.title} was deleted.`);
    if (talk === this.current) this.open(this.talks[0] ?? newTalk(talk.mode));
    else this.draw();
    const near = this.list.children[Math.min(place, this.talks.length - 1)]?.querySelector('button');
    (near ?? byId('new-talk')).focus();
  }
}

function titleOf(talk: Talk): string {
  const text = (talk.turns[0]?.content ?? '').replace(/\s+/g, ' ').trim();
  return text.length > 48 ? `${text.slice(0, 47)}…` : text;
}
