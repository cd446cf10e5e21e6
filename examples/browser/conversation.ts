// Data of a conversation, and merging of changes from several tabs. Every turn has an id. A tab
// marks what it has changed; everything else stays as another tab stored it. This module does not
// use the database, so that merging can be tested alone.

/** Why a turn failed: what the page shows, also after a reload. */
export interface Problem {
  message: string;
  /** Code of a SluiceError, or the name of another error. */
  code: string;
}

export interface Turn {
  /** Unique. Turns stored by an older version of the page are numbered. */
  id: string;
  role: 'user' | 'assistant';
  content: string;
  /** Pictures of a question. */
  pictures?: Blob[];
  /** Reasoning of the model before its response. */
  reasoning?: string;
  /** Note below a response: its speed, and why it ended. */
  note?: string;
  /** Question and response are shown, but not sent to the model again. */
  failed?: boolean;
  problem?: Problem;
}

/** 'chat' uses the chat template; 'text' continues each prompt. */
export type Mode = 'chat' | 'text';

export interface Talk {
  id: string;
  title: string;
  mode: Mode;
  /** System prompt. */
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

/** Validates a database record. Null if it is not a complete conversation. */
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
  const { id = String(place), role, content, ...more } = (value ?? {}) as Partial<Turn>;
  const { reasoning, note, failed, problem, pictures } = more;
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
    ...(Array.isArray(pictures) && pictures.every((one) => one instanceof Blob) && { pictures }),
    ...(typeof reasoning === 'string' && { reasoning }),
    ...(typeof note === 'string' && { note }),
    ...(failed === true && { failed }),
    ...(typeof problem?.message === 'string' &&
      typeof problem.code === 'string' && { problem: { ...problem } }),
  };
}

/** Changes of this tab to a conversation that are not stored yet. */
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

  /** Adds older marks, those of a failed write. */
  join(older: Marks): void {
    for (const field of older.fields) this.fields.add(field);
    for (const id of older.added) if (!this.dropped.has(id)) this.added.add(id);
    for (const id of older.changed) this.changed.add(id);
    for (const id of older.dropped) this.dropped.add(id);
  }

  /** The stored conversation with this tab's changes applied. `own`: this tab's version. */
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

const kNothing = { reasoning: undefined, note: undefined, failed: undefined, problem: undefined };

/**
 * Copies `record` to `talk` and keeps the objects of its turns. Returns whether that changed
 * anything that is displayed or sent to the model.
 */
export function adopt(talk: Talk, record: Talk): boolean {
  const before = JSON.stringify([talk.system, talk.mode, talk.turns]);
  const known = new Map(talk.turns.map((turn) => [turn.id, turn]));
  const turns = record.turns.map((turn) => {
    const own = known.get(turn.id);
    return own && own !== turn ? Object.assign(own, kNothing, turn) : turn;
  });
  Object.assign(talk, record, { turns });
  return JSON.stringify([talk.system, talk.mode, talk.turns]) !== before;
}
