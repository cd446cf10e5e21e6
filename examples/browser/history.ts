// Stores conversations in IndexedDB. To save, a tab reads the stored record, applies its own
// changes and writes the result, in one transaction, then notifies the other tabs. A deleted
// conversation leaves a tombstone, so that a tab that still has it cannot restore it. Without a
// database, conversations last as long as the page.

import { Marks, readTalk, type Talk } from './conversation.js';

const kStore = 'talks';
/** Topic of trouble that ends with `recovered`. */
export const kUnstored = 'unstored';
const kTombstoneMs = 30 * 24 * 3600_000;

interface Tombstone {
  id: string;
  deleted: number;
}

export interface HistoryEvents {
  /** A record as it is stored now, with this tab's later changes applied. */
  changed(record: Talk): void;
  /** It was deleted, here or in another tab. */
  gone(id: string): void;
  /** The database cannot be used, or a record cannot be read. */
  trouble(text: string, topic?: string): void;
  /** Every change is stored again. */
  recovered(): void;
}

const isTombstone = (value: unknown): value is Tombstone =>
  typeof (value as Tombstone | null)?.deleted === 'number';

function asked<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = (event) => {
      event.preventDefault(); // the caller decides whether to abort the transaction
      event.stopPropagation();
      reject(request.error);
    };
  });
}

function openDatabase(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open('sluice-page', 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(kStore, { keyPath: 'id' });
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
    opening.onblocked = () => reject(new Error('another tab uses an older version of it'));
  });
}

export class History {
  private opening: Promise<IDBDatabase> | null = null;
  private readonly unsaved = new Map<string, { talk: Talk; marks: Marks }>();
  private readonly stored = new Set<string>();
  private readonly deleted = new Set<string>();
  /** A conversation could not be stored, and is not stored yet. */
  private failing = false;
  /** Serializes reads and writes, so that no read comes between a change and its record. */
  private line: Promise<unknown> = Promise.resolve();
  private readonly channel =
    'BroadcastChannel' in globalThis ? new BroadcastChannel('sluice-talks') : null;

  constructor(private readonly events: HistoryEvents) {
    this.channel?.addEventListener('message', ({ data }) => {
      // If it fails, the next change triggers another read.
      if (typeof data === 'string') void this.inLine(() => this.read(data)).catch(() => {});
    });
  }

  /** All readable conversations, the latest first. */
  async all(): Promise<Talk[]> {
    const values = await this.inLine(() => this.run('readonly', readAll)).catch(
      (error: unknown) => {
        this.events.trouble(
          `Conversations cannot be kept here: they last as long as this page. (${reason(error)})`,
        );
        return [];
      },
    );
    const talks: Talk[] = [];
    let damaged = 0;
    for (const value of values) {
      const talk = isTombstone(value) ? null : readTalk(value);
      if (talk) talks.push(talk);
      else if (!isTombstone(value)) damaged++;
      else if (Date.now() - value.deleted > kTombstoneMs) this.sweep(value);
      else this.deleted.add(value.id);
    }
    for (const { id } of talks) this.stored.add(id);
    if (damaged > 0)
      this.events.trouble(
        `${damaged === 1 ? 'A stored conversation is' : `${damaged} stored conversations are`} ` +
          'damaged and not shown.',
      );
    return talks.map((talk) => this.latest(talk)).sort((a, b) => b.updated - a.updated);
  }

  isDeleted({ id }: Pick<Talk, 'id'>): boolean {
    return this.deleted.has(id);
  }

  /** Records what has changed. It is stored with the next save. */
  mark(talk: Talk, mark: (marks: Marks) => void): void {
    if (this.deleted.has(talk.id)) return;
    const entry = this.unsaved.get(talk.id) ?? { talk, marks: new Marks() };
    mark(entry.marks);
    this.unsaved.set(talk.id, entry);
  }

  /** Resolves when the transaction is complete. Until then, a reload can undo its requests. */
  save(talk: Talk): Promise<void> {
    return this.inLine(() => this.write(talk.id));
  }

  /** Deletes a conversation. Rejects if it stays in the database. */
  async remove(id: string): Promise<void> {
    this.deleted.add(id);
    try {
      await this.inLine(() =>
        this.run('readwrite', (store) =>
          asked(store.put({ id, deleted: Date.now() } satisfies Tombstone)),
        ),
      );
    } catch (error) {
      if (this.stored.has(id)) {
        this.deleted.delete(id);
        throw error;
      }
    }
    this.unsaved.delete(id);
    this.channel?.postMessage(id);
  }

  private async write(id: string): Promise<void> {
    const entry = this.unsaved.get(id);
    if (!entry || this.deleted.has(id)) return; // an earlier write included it
    this.unsaved.delete(id);
    try {
      const record = await this.run('readwrite', async (store) => {
        const value: unknown = await asked(store.get(id));
        if (isTombstone(value)) return null;
        const merged = entry.marks.merge(readTalk(value), entry.talk);
        await asked(store.put(merged));
        return merged;
      });
      if (!record) return this.buried(id);
      this.stored.add(id);
      this.channel?.postMessage(id);
      if (this.failing && this.unsaved.size === 0) this.events.recovered();
      this.failing &&= this.unsaved.size > 0;
      this.events.changed(this.latest(record));
    } catch (error) {
      const later = this.unsaved.get(id);
      if (later) later.marks.join(entry.marks);
      else this.unsaved.set(id, entry);
      this.failing = true;
      this.events.trouble(
        'A conversation could not be stored. It stays on this page, and storing is retried when ' +
          `it changes. (${reason(error)})`,
        kUnstored,
      );
    }
  }

  /** Another tab has stored or deleted it. */
  private async read(id: string): Promise<void> {
    const value: unknown = await this.run('readonly', (store) => asked(store.get(id)));
    if (isTombstone(value)) return this.buried(id);
    const talk = readTalk(value);
    if (!talk || this.deleted.has(id)) return;
    this.stored.add(id);
    this.events.changed(this.latest(talk));
  }

  private buried(id: string): void {
    this.deleted.add(id);
    this.unsaved.delete(id);
    this.events.gone(id);
  }

  private latest(record: Talk): Talk {
    const entry = this.unsaved.get(record.id);
    return entry ? entry.marks.merge(record, entry.talk) : record;
  }

  private sweep({ id }: Tombstone): void {
    void this.inLine(() => this.run('readwrite', (store) => asked(store.delete(id)))).catch(
      () => {},
    ); // the next visit retries
  }

  private inLine<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.line.then(work);
    this.line = turn.catch(() => {});
    return turn;
  }

  private async run<T>(
    mode: IDBTransactionMode,
    work: (store: IDBObjectStore) => Promise<T>,
  ): Promise<T> {
    const database = await this.open();
    return new Promise((resolve, reject) => {
      const transaction = database.transaction(kStore, mode);
      let result: T;
      let failure: unknown;
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () => reject(failure ?? transaction.error);
      work(transaction.objectStore(kStore)).then(
        (value) => (result = value),
        (error: unknown) => {
          failure = error;
          transaction.abort();
        },
      );
    });
  }

  /** Opens the database, also again after the browser has closed it or opening has failed. */
  private open(): Promise<IDBDatabase> {
    const forget = (): void => void (this.opening = null);
    this.opening ??= openDatabase().then(
      (database) => {
        database.onclose = forget;
        database.onversionchange = () => (database.close(), forget());
        return database;
      },
      (error: unknown) => {
        forget();
        throw error;
      },
    );
    return this.opening;
  }
}

/** Reads records one by one, so that an unreadable one does not affect the others. */
async function readAll(store: IDBObjectStore): Promise<unknown[]> {
  const keys = await asked(store.getAllKeys());
  return Promise.all(
    keys.map(async (key) => {
      try {
        return await asked(store.get(key));
      } catch {
        return null;
      }
    }),
  );
}

const reason = (error: unknown): string =>
  (error as Error | null)?.message ||
  (error as Error | null)?.name ||
  'the browser gives no reason';
