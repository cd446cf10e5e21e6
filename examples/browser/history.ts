// Conversations, kept in the browser's database: each is one record, so that two tabs disturb each
// other only where they write into the same one. Without a database they last as long as the page.

export interface Turn {
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

function openDatabase(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open('sluice-page', 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore('talks', { keyPath: 'id' });
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}

export class History {
  private readonly database = openDatabase().catch(() => null);

  /** All of them, the latest first. */
  async all(): Promise<Talk[]> {
    const talks = await this.run<Talk[]>('readonly', (store) => store.getAll());
    return (talks ?? []).sort((a, b) => b.updated - a.updated);
  }

  async save(talk: Talk): Promise<void> {
    await this.run('readwrite', (store) => store.put(talk));
  }

  async remove(id: string): Promise<void> {
    await this.run('readwrite', (store) => store.delete(id));
  }

  /** Settles once the transaction is over: what a request has done, a reload can still undo. */
  private async run<T>(mode: IDBTransactionMode, work: (store: IDBObjectStore) => IDBRequest<T>): Promise<T | null> {
    const database = await this.database;
    if (!database) return null;
    return new Promise((resolve, reject) => {
      const transaction = database.transaction('talks', mode);
      const asked = work(transaction.objectStore('talks'));
      transaction.oncomplete = () => resolve(asked.result);
      transaction.onabort = () => reject(transaction.error);
    });
  }
}
