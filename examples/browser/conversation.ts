// A conversation as it is kept, and how two tabs' changes to one become one: every turn has an id,
// a tab marks what it has changed, and what it has not changed stays as the other one stored it. No
// database here, so that the rules can be tested by themselves.

export interface Turn {
  /** Never given twice; turns kept by an older page are numbered. */
  id: string;
  role: 'user' | 'assistant';
  content: string;
  /** What is said below an answer: its rate, why it ended. */
  note?: string;
  /** The question and its answer are shown, but not told to the model again. */
  failed?: boolean;
}

/** chat: through the model's template; text: each prompt is continued. */
export type Mode = 'chat' | 'text';

export interface Talk {
  id: string;
  title: string;
  mode: Mode;
  /** Instructions that every chat begins with. */
  system: string;
  updated: number;
  turns: Turn[];
}

export function newTalk(mode: Mode): Talk {
  return { id: crypto.randomUUID(), title: '', mode, system: '', updated: Date.now(), turns: [] };
}

export function newTurn(role: Turn['role'], content = ''): Turn {
  return { id: crypto.randomUUID(), role, content };
}

/** A record as the database gave it; null where it is not a whole conversation. */
export function readTalk(value: unknown): Talk | null {
  const { id, title, mode, system = '', updated, turns } = (value ?? {}) as Partial<Talk>;
  const texts = [id, title, system].every((text) => typeof text === 'string');
  if (
    !texts ||
    (mode !== 'chat' && mode !== 'text') ||
    !Number.isFinite(updated) ||
    !Array.isArray(turns)
  )
    return null;
  const read = turns.map(readTurn);
  if (!read.every((turn) => turn !== null)) return null;
  return { id: id!, title: title!, mode, system, updated: updated!, turns: read };
}

function readTurn(value: unknown, place: number): Turn | null {
  const { id = String(place), role, content, note, failed } = (value ?? {}) as Partial<Turn>;
  if (
    typeof id !== 'string' ||
    typeof content !== 'string' ||
    (role !== 'user' && role !== 'assistant')
  )
    return null;
  return {
    id,
    role,
    content,
    ...(typeof note === 'string' && { note }),
    ...(failed === true && { failed }),
  };
}

/** What of a conversation this tab has changed and not stored yet. */
export class Marks {
  readonly fields = new Set<'title' | 'system' | 'mode'>();
  private readonly added = new Set<string>();
  private readonly changed = new Set<string>();
  private readonly dropped = new Set<string>();

  add(...turns: Turn[]): void {
    for (const { id } of turns) this.added.add(id);
  }

  change(...turns: Turn[]): void {
    for (const { id } of turns) this.changed.add(id);
  }

  drop(...turns: Turn[]): void {
    for (const { id } of turns) {
      this.added.delete(id);
      this.dropped.add(id);
    }
  }

  /** Takes older marks along, those of a write that failed. */
  join(older: Marks): void {
    for (const field of older.fields) this.fields.add(field);
    for (const id of older.added) if (!this.dropped.has(id)) this.added.add(id);
    for (const id of older.changed) this.changed.add(id);
    for (const id of older.dropped) this.dropped.add(id);
  }

  /** The stored conversation with this tab's changes to it; `own` is how this tab has it. */
  merge(stored: Talk | null, own: Talk): Talk {
    if (!stored) return { ...own };
    const turns = stored.turns.filter(({ id }) => !this.dropped.has(id));
    for (const turn of own.turns) {
      const place = turns.findIndex(({ id }) => id === turn.id);
      if (place >= 0 && (this.added.has(turn.id) || this.changed.has(turn.id))) turns[place] = turn;
      else if (place < 0 && this.added.has(turn.id)) turns.push(turn);
    }
    const merged = { ...stored, turns, updated: Math.max(stored.updated, own.updated) };
    for (const field of this.fields) (merged as Record<string, unknown>)[field] = own[field];
    return merged;
  }
}

/**
 * Makes `talk` say what `record` says; its turns stay the same objects. True where that changed
 * what is told or shown.
 */
export function adopt(talk: Talk, record: Talk): boolean {
  const before = JSON.stringify([talk.system, talk.mode, talk.turns]);
  const known = new Map(talk.turns.map((turn) => [turn.id, turn]));
  const turns = record.turns.map((turn) => {
    const own = known.get(turn.id);
    return own && own !== turn
      ? Object.assign(own, { note: undefined, failed: undefined }, turn)
      : turn;
  });
  Object.assign(talk, record, { turns });
  return JSON.stringify([talk.system, talk.mode, talk.turns]) !== before;
}
