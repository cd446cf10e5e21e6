// The list of conversations: open, rename, delete, start a new one, and apply changes of other
// tabs. A row keeps its element while its conversation is listed, so that typing a name or
// confirming a deletion is not interrupted when a response is stored.

import { announce, byId, deleteButton, iconButton, make, on } from './dom.js';
import { ago } from './format.js';
import { History, kUnstored } from './history.js';
import { notice, withdraw } from './notices.js';
import { adopt, newTalk, type Marks, type Talk } from './conversation.js';

interface Row {
  item: HTMLElement;
  draw(): void;
}

export interface TalkListEvents {
  /** A conversation is opened. */
  open(talk: Talk): void;
  /** Another tab has changed the conversation. */
  update(talk: Talk): void;
  /** A conversation was deleted. */
  gone(talk: Talk): void;
}

export class TalkList {
  private talks: Talk[] = [];
  private current: Talk = newTalk('chat');
  private readonly rows = new Map<string, Row>();
  private readonly list = byId('talk-list');
  private readonly history = new History({
    changed: (record) => this.stored(record),
    gone: (id) => this.lost(id),
    trouble: notice,
    recovered: () => withdraw(kUnstored),
  });

  constructor(private readonly events: TalkListEvents) {
    on(byId('new-talk'), 'click', () => this.begin());
    on<PageTransitionEvent>(window, 'pageshow', ({ persisted }) => persisted && this.refresh());
  }

  /** Shows the latest conversation, unless a new one has been started meanwhile. */
  async start(): Promise<void> {
    this.open(this.current);
    await this.refresh();
    const idle =
      this.current.turns.length === 0 &&
      this.current.system === '' &&
      document.activeElement !== byId('prompt');
    if (idle && this.talks[0]) this.open(this.talks[0]);
  }

  /** Opens a new conversation. Reuses an empty one that is already open. */
  begin(): void {
    if (this.current.turns.length > 0) this.open(newTalk(this.current.mode));
    else this.open(this.current);
    byId('prompt').focus();
  }

  /**
   * A conversation was changed in this tab. `now`: store it immediately, not with the next change.
   */
  changed(talk: Talk, mark: (marks: Marks) => void, now = true): void {
    this.history.mark(talk, mark);
    if (!now || talk.turns.length === 0 || this.history.isDeleted(talk)) return;
    talk.title ||= titleOf(talk);
    this.put(talk);
    void this.history.save(talk); // errors are reported with trouble()
  }

  /** Applies changes that other tabs have made, for example while the page was suspended. */
  private async refresh(): Promise<void> {
    const records = await this.history.all();
    for (const talk of this.talks) if (this.history.isDeleted(talk)) this.lost(talk.id);
    const known = new Map([...this.talks, this.current].map((talk) => [talk.id, talk]));
    for (const record of records) {
      const talk = known.get(record.id);
      if (!talk || !this.talks.includes(talk)) this.talks.push(talk ?? record);
      if (talk && adopt(talk, record)) this.events.update(talk);
    }
    this.order();
  }

  private stored(record: Talk): void {
    const known = this.find(record.id);
    const changed = known && adopt(known, record);
    this.put(known ?? record);
    if (changed) this.events.update(known);
  }

  /** Another tab has deleted it. */
  private lost(id: string): void {
    const talk = this.find(id);
    if (!talk) return;
    this.talks = this.talks.filter((other) => other !== talk);
    notice(`“${talk.title || 'This conversation'}” was deleted in another tab.`);
    this.events.gone(talk);
    // Opens an empty conversation: the next prompt must not go to another one.
    if (talk === this.current) this.open(newTalk(talk.mode));
    else this.draw();
  }

  private find(id: string): Talk | undefined {
    return [this.current, ...this.talks].find((talk) => talk.id === id);
  }

  private put(talk: Talk): void {
    if (!this.talks.includes(talk)) this.talks.push(talk);
    this.order();
  }

  private order(): void {
    this.talks.sort((a, b) => b.updated - a.updated);
    this.draw();
  }

  private open(talk: Talk): void {
    this.current = talk;
    this.draw();
    this.events.open(talk);
  }

  private draw(): void {
    byId('no-talks').hidden = this.talks.length > 0;
    const listed = new Set(this.talks.map(({ id }) => id));
    for (const [id, { item }] of this.rows) {
      if (listed.has(id)) continue;
      this.rows.delete(id);
      item.remove();
    }
    // Rows do not move while a name is edited or a deletion confirmed, which would lose the focus.
    const busy = this.list.querySelector('input, .armed') !== null;
    let place = this.list.firstElementChild;
    for (const talk of this.talks) {
      const row = this.rows.get(talk.id) ?? this.row(talk);
      this.rows.set(talk.id, row);
      row.draw();
      if (row.item === place) place = place.nextElementSibling;
      else if (!busy || !row.item.isConnected) this.list.insertBefore(row.item, place);
    }
    byId('talk-title').textContent = this.current.title || 'New conversation';
  }

  private row(talk: Talk): Row {
    const name = make('span', { class: 'name' });
    const when = make('small');
    const pick = make('button', { type: 'button', class: 'pick' }, name, when);
    on(pick, 'click', () => {
      this.open(talk);
      document.dispatchEvent(new CustomEvent('show-pane', { detail: 'talk' }));
    });
    const item = make('li', {}, pick);
    const buttons = (): HTMLElement[] => [
      iconButton('pencil', `Rename ${talk.title}`, () => this.rename(talk, item)),
      deleteButton(`Delete ${talk.title}`, () => this.remove(talk)),
    ];
    const draw = (): void => {
      const current = talk === this.current;
      item.className = current ? 'row-item current' : 'row-item';
      pick.setAttribute('aria-current', String(current));
      const then = ago(talk.updated);
      if (when.textContent !== then) when.textContent = then;
      if (item.childElementCount === 3 && name.textContent === talk.title) return;
      if (item.querySelector('input, .armed')) return; // in use: drawn afterwards
      name.textContent = talk.title;
      item.replaceChildren(pick, ...buttons());
    };
    return { item, draw };
  }

  private rename(talk: Talk, item: HTMLElement): void {
    const field = make('input', {
      type: 'text',
      value: talk.title,
      'aria-label': 'New name',
      maxLength: 120,
    });
    item.replaceChildren(field);
    field.focus();
    field.select();
    let over = false;
    const finish = (keep: boolean, byKey: boolean): void => {
      if (over) return;
      over = true;
      const title = field.value.trim();
      item.replaceChildren();
      if (!this.talks.includes(talk)) return;
      if (keep && title && title !== talk.title) {
        talk.title = title;
        this.changed(talk, (marks) => marks.fields.add('title'));
      }
      this.draw();
      if (byKey) item.querySelectorAll('button')[1]?.focus();
    };
    on(field, 'blur', () => finish(true, false));
    on<KeyboardEvent>(field, 'keydown', (event) => {
      event.stopPropagation();
      if (event.isComposing || (event.key !== 'Enter' && event.key !== 'Escape')) return;
      event.preventDefault(); // otherwise the key would press the button that gets the focus
      finish(event.key === 'Enter', true);
    });
  }

  /** Deletes a conversation. It leaves the list only after it has left the database. */
  private async remove(talk: Talk): Promise<void> {
    if (!this.talks.includes(talk) || this.history.isDeleted(talk)) return;
    this.events.gone(talk);
    try {
      await this.history.remove(talk.id);
    } catch {
      return notice(`“${talk.title}” could not be deleted.`, talk.id);
    }
    withdraw(talk.id);
    const place = this.talks.indexOf(talk);
    if (place < 0) return;
    this.talks.splice(place, 1);
    announce(`${talk.title} was deleted.`);
    if (talk === this.current) this.open(this.talks[0] ?? newTalk(talk.mode));
    else this.draw();
    if (document.activeElement !== document.body) return; // the user has moved the focus
    const near =
      this.list.children[Math.min(place, this.talks.length - 1)]?.querySelector('button');
    (near ?? byId('new-talk')).focus();
  }
}

function titleOf(talk: Talk): string {
  const text = (talk.turns[0]?.content ?? '').replace(/\s+/g, ' ').trim();
  return text.length > 48 ? `${text.slice(0, 47)}…` : text;
}
