// Sessions that outlive the page:
//   import { SavedSessions } from 'sluice-llm/sessions';
//   const saved = await SavedSessions.open();
//   await saved.save('the report', engine);     // what its KV cache holds, or a session's
//   await saved.restorePrefix(engine, prompt);  // after a reload: what begins like the prompt
// A session is one file of the origin's private file system, under its name: a head with a sum, its
// tokens, then the state as the engine gives it, which has its own sum and belongs to one model. A
// file appears whole or not at all. The least recently used go when all together are larger than
// allowed. One that cannot be used costs time at most.

import type { Engine } from './api/engine.js';
import type { SavedSession, Session } from './api/session.js';
import { xxh32 } from './io/xxh32.js';
import { invalid, onlyKnown, SluiceError } from './protocol/errors.js';
import { sharedPrefix } from './protocol/prefix.js';
import type { SavedState } from './protocol/types.js';

/** How saved sessions are kept. */
export interface SavedSessionsOptions {
  /** Bytes that all of them may take together; 1 GiB if not given. */
  maxBytes?: number;
  /**
   * Where they are kept, such as a folder that the user has chosen; the origin's private files if
   * not given.
   */
  folder?: FileSystemDirectoryHandle;
  /** Tells models apart whose headers are equal, such as the URL of the weights. */
  model?: string;
}

/** One of them, as list() gives it. */
export interface SavedSessionInfo {
  /** As save() was told. */
  name: string;
  /** Tokens that it holds. */
  tokens: number;
  /** Bytes that it takes in the store. */
  bytes: number;
  /** Milliseconds since 1970. */
  used: number;
}

interface Head {
  name: string;
  model: string;
  tokens: number;
  state: number;
  /** Of a session. */
  words?: Pick<SavedSession, 'messages' | 'text' | 'exact'>;
}

interface Entry {
  file: string;
  head: Head;
  tokens: Int32Array;
  stateAt: number;
  bytes: number;
}

const kMagic = 0x32435053; // "SPC2"
const kPrefix = 16; // magic, length of the head, sum over head and tokens, nothing
const kMaxHead = 16 << 20;
const kMaxTokens = 1 << 20;
const kMinReuse = 16; // tokens that are worth reading a state
const kMaxName = 96; // bytes; a file's name is twice as long
const kUses = 'used.json';

/**
 * A name for each name: what a file system would not take, or takes for the same, is written as
 * hexadecimal digits.
 */
function fileOf(name: string): string {
  const bytes = new TextEncoder().encode(name);
  if (typeof name !== 'string' || bytes.length === 0 || bytes.length > kMaxName)
    invalid(`A name has 1 to ${kMaxName} bytes.`);
  return `${[...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')}.session`;
}

const isSession = (from: Engine | Session): from is Session => 'messages' in from;

/** Sessions kept in the browser. */
export class SavedSessions {
  readonly #folder: FileSystemDirectoryHandle;
  readonly #maxBytes: number;
  readonly #model: string;

  private constructor(folder: FileSystemDirectoryHandle, maxBytes: number, model: string) {
    this.#folder = folder;
    this.#maxBytes = maxBytes;
    this.#model = model;
  }

  /** Opens the browser's; throws NOT_SUPPORTED where there is none (such as plain http). */
  static async open(options: SavedSessionsOptions = {}): Promise<SavedSessions> {
    onlyKnown('SavedSessions.open()', options, 'maxBytes folder model');
    const { maxBytes = 2 ** 30, model = '' } = options;
    let { folder } = options;
    if (!(Number.isSafeInteger(maxBytes) && maxBytes > 0))
      invalid('maxBytes must be a whole number of bytes above 0.');
    if (!folder) {
      const root = await globalThis.navigator?.storage?.getDirectory?.();
      if (!root)
        throw new SluiceError('NOT_SUPPORTED', 'No file store: it needs https or localhost.');
      folder = await root.getDirectoryHandle('sluice-saved', { create: true });
    }
    return new SavedSessions(folder, maxBytes, model);
  }

  /**
   * Keeps what an engine's KV cache or a session holds, in place of what had this name. False: it
   * is too large.
   */
  async save(name: string, from: Engine | Session): Promise<boolean> {
    const saved: SavedState & Partial<SavedSession> = isSession(from)
      ? await from.save()
      : await from.saveState();
    const { tokens, state, messages, text, exact } = saved;
    const head: Head = { name, model: this.#model, tokens: tokens.length, state: state.length };
    if (messages) head.words = { messages, text: text!, exact: exact! };
    const json = new TextEncoder().encode(JSON.stringify(head));
    const headBytes = (json.length + 3) & ~3;
    const front = new Uint8Array(kPrefix + headBytes + tokens.byteLength).fill(32);
    front.set(json, kPrefix);
    front.set(
      new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength),
      kPrefix + headBytes,
    );
    new Uint32Array(front.buffer, 0, 4).set([kMagic, headBytes, xxh32(front.subarray(kPrefix)), 0]);
    const bytes = front.length + state.length;
    if (bytes > this.#maxBytes || headBytes > kMaxHead) return false;
    const file = fileOf(name);
    await this.#evict(bytes, file);
    const out = await (await this.#folder.getFileHandle(file, { create: true })).createWritable();
    try {
      await out.write(front);
      await out.write(state as Uint8Array<ArrayBuffer>);
      await out.close();
    } catch (error) {
      await out.abort().catch(() => {});
      throw new SluiceError('QUOTA', `The session could not be saved: ${String(error)}`);
    }
    await this.#touch(file);
    return true;
  }

  /**
   * Makes `into` what was saved under this name; false where there is nothing that this model can
   * go on with.
   */
  async restore(name: string, into: Engine | Session): Promise<boolean> {
    const entry = await this.#read(fileOf(name));
    return entry !== null && this.#enter(entry, into);
  }

  /**
   * Makes the engine's KV cache the saved one that shares the most with a prompt, from the first
   * token on, so that the prompt is computed from there. Returns how many tokens those are; 0:
   * there is none.
   */
  async restorePrefix(engine: Engine, prompt: string | ArrayLike<number>): Promise<number> {
    const tokens =
      typeof prompt === 'string' ? await engine.tokenize(prompt) : Int32Array.from(prompt);
    const found: { entry: Entry; length: number }[] = [];
    for await (const entry of this.#entries()) {
      const length = sharedPrefix(entry.tokens, tokens);
      if (length >= kMinReuse) found.push({ entry, length });
    }
    found.sort((a, b) => b.length - a.length);
    for (const { entry, length } of found) if (await this.#enter(entry, engine)) return length;
    return 0;
  }

  /** What there is, the latest used first. */
  async list(): Promise<SavedSessionInfo[]> {
    const uses = await this.#uses();
    const all: SavedSessionInfo[] = [];
    for await (const { file, head, bytes } of this.#entries())
      all.push({ name: head.name, tokens: head.tokens, bytes, used: uses[file] ?? 0 });
    return all.sort((a, b) => b.used - a.used);
  }

  /** Forgets what has this name. */
  async delete(name: string): Promise<void> {
    await this.#remove(fileOf(name));
  }

  async #enter(entry: Entry, into: Engine | Session): Promise<boolean> {
    const file = await (await this.#folder.getFileHandle(entry.file)).getFile();
    const state = new Uint8Array(await file.slice(entry.stateAt).arrayBuffer());
    const { tokens, head } = entry;
    if (isSession(into) && !head.words)
      invalid(`What was saved as ${JSON.stringify(head.name)} is an engine's, no session.`);
    try {
      await (isSession(into)
        ? into.restore({ tokens, state, ...head.words! })
        : into.restoreState({ tokens, state }));
    } catch (error) {
      // Another model's, damaged, or too long: only the engine knows, and has left everything as it
      // was.
      if (!['CORRUPT', 'CONTEXT_FULL'].includes((error as SluiceError).code)) throw error;
      return false;
    }
    await this.#touch(entry.file);
    return true;
  }

  /**
   * An entry whose head and tokens are as they were written, and of this model; others that are
   * damaged are deleted.
   */
  async #read(name: string): Promise<Entry | null> {
    const handle = await this.#folder.getFileHandle(name).catch(() => null);
    if (!handle) return null;
    const file = await handle.getFile();
    const part = async (from: number, to: number): Promise<ArrayBuffer> =>
      file.slice(from, to).arrayBuffer();
    const prefix = new DataView(
      file.size < kPrefix ? new ArrayBuffer(kPrefix) : await part(0, kPrefix),
    );
    const [magic, headBytes, sum] = [0, 4, 8].map((at) => prefix.getUint32(at, true)) as [
      number,
      number,
      number,
    ];
    const damaged = async (): Promise<null> => (await this.#remove(name), null);
    if (
      magic !== kMagic ||
      headBytes % 4 !== 0 ||
      headBytes > kMaxHead ||
      kPrefix + headBytes > file.size
    )
      return damaged();
    let head: Head;
    try {
      head = JSON.parse(new TextDecoder().decode(await part(kPrefix, kPrefix + headBytes)));
    } catch {
      return damaged();
    }
    const stateAt = kPrefix + headBytes + 4 * head.tokens;
    if (!(head.tokens >= 0 && head.tokens <= kMaxTokens) || stateAt + head.state !== file.size)
      return damaged();
    const front = await part(kPrefix, stateAt);
    if (xxh32(new Uint8Array(front)) !== sum) return damaged();
    if (head.model !== this.#model) return null;
    return {
      file: name,
      head,
      tokens: new Int32Array(front, headBytes),
      stateAt,
      bytes: file.size,
    };
  }

  async *#entries(): AsyncGenerator<Entry> {
    for (const name of await this.#names()) {
      const entry = await this.#read(name);
      if (entry) yield entry;
    }
  }

  async #names(): Promise<string[]> {
    const names: string[] = [];
    for await (const name of this.#folder.keys()) if (name.endsWith('.session')) names.push(name);
    return names;
  }

  /** Deletes the least recently used until the others leave so much room. */
  async #evict(room: number, but: string): Promise<void> {
    const uses = await this.#uses();
    const names = (await this.#names())
      .filter((name) => name !== but)
      .sort((a, b) => (uses[b] ?? 0) - (uses[a] ?? 0));
    let bytes = room;
    for (const name of names) {
      bytes += (await (await this.#folder.getFileHandle(name)).getFile()).size;
      if (bytes > this.#maxBytes) await this.#remove(name);
    }
  }

  async #remove(file: string): Promise<void> {
    await this.#folder.removeEntry(file).catch(() => {});
  }

  /** When each file was used, which no file system of a browser says. */
  async #uses(): Promise<Record<string, number>> {
    try {
      const uses: unknown = JSON.parse(
        await (await (await this.#folder.getFileHandle(kUses)).getFile()).text(),
      );
      return typeof uses === 'object' && uses !== null ? (uses as Record<string, number>) : {};
    } catch {
      return {};
    }
  }

  async #touch(file: string): Promise<void> {
    const names = new Set(await this.#names());
    const kept = Object.entries(await this.#uses()).filter(([name]) => names.has(name));
    const out = await (await this.#folder.getFileHandle(kUses, { create: true })).createWritable();
    await out.write(JSON.stringify({ ...Object.fromEntries(kept), [file]: Date.now() }));
    await out.close();
  }
}
