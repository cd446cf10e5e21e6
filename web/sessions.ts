// Sessions that are saved in the browser and survive a reload:
//   import { SavedSessions } from 'sluice-llm/sessions';
//   const saved = await SavedSessions.open();
//   await saved.save('the report', engine);     // the KV cache of the engine, or of a session
//   await saved.restorePrefix(engine, prompt);  // after a reload: reuses the longest common prefix
// A session is one file of the origin private file system: a header with a checksum, its tokens,
// the pictures of its messages and text, and the engine's state, which has its own checksum and
// belongs to one model. Files are written atomically. If all together exceed the limit, the least
// recently used ones are deleted. A file that cannot be used is ignored, and the prompt is computed.

import type { Engine } from './api/engine.js';
import type { SavedSession, Session } from './api/session.js';
import { packed, unpacked } from './io/packed.js';
import { writeFile } from './io/write-file.js';
import { xxh32 } from './io/xxh32.js';
import { invalid, onlyKnown, SluiceError } from './protocol/errors.js';
import { sharedPrefix } from './protocol/prefix.js';
import type { SavedState } from './protocol/types.js';

/** FileSystemDirectoryHandle, which projects without TypeScript's DOM library lack. */
type DirectoryHandle = typeof globalThis extends {
  FileSystemDirectoryHandle: { prototype: infer Handle };
}
  ? Handle
  : never;

/** Options of SavedSessions.open(). */
export interface SavedSessionsOptions {
  /** Maximum size of all sessions together, in bytes. Default 1 GiB. */
  maxBytes?: number;
  /**
   * Directory to save to, for example one that the user chose. Default: a directory in the origin
   * private file system.
   */
  folder?: DirectoryHandle;
  /**
   * Identifies the model, for example by its URL, so that saved sessions of other models are
   * skipped without reading them. A state knows its model without it.
   */
  model?: string;
}

/** A saved session, as list() returns it. */
export interface SavedSessionInfo {
  /** The name passed to save(). */
  name: string;
  /** Number of tokens. */
  tokens: number;
  /** Size of its file in bytes. */
  bytes: number;
  /** When it was last used, in milliseconds since 1970. */
  used: number;
}

interface Head {
  name: string;
  model: string;
  tokens: number;
  state: number;
  /** Present if it was saved from a session. */
  words?: Conversation;
  /** Bytes of each part of `words`: files and pixels of pictures. */
  parts?: number[];
  /** Their checksums. */
  checksums?: number[];
}

type Conversation = Omit<SavedSession, keyof SavedState>;

interface Entry {
  file: string;
  head: Head;
  tokens: Int32Array;
  partsAt: number;
  stateAt: number;
  bytes: number;
}

const kMagic = 0x32435053; // "SPC2"
const kPrefix = 16; // magic, length of the header, checksum of header and tokens, unused
const kMaxHead = 16 << 20;
const kMaxTokens = 1 << 20;
const kMinReuse = 16; // tokens; a shorter prefix is not worth reading a state
const kMaxName = 96; // bytes; the file name is twice as long
const kUses = 'used.json';

/**
 * File name of a session: its name in hexadecimal, which is valid and unique on any file system.
 */
function fileOf(name: string): string {
  const bytes = new TextEncoder().encode(name);
  if (typeof name !== 'string' || bytes.length === 0 || bytes.length > kMaxName)
    invalid(`The name of a session must have 1 to ${kMaxName} bytes.`);
  return `${[...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')}.session`;
}

const isSession = (from: Engine | Session): from is Session => 'messages' in from;

/** Sessions saved in the browser. */
export class SavedSessions {
  readonly #folder: FileSystemDirectoryHandle;
  readonly #maxBytes: number;
  readonly #model: string;

  private constructor(folder: FileSystemDirectoryHandle, maxBytes: number, model: string) {
    this.#folder = folder;
    this.#maxBytes = maxBytes;
    this.#model = model;
  }

  /**
   * Opens the saved sessions. NOT_SUPPORTED if the browser has no private file system here, for
   * example on plain http.
   *
   * @example
   * ```ts
   * import { SavedSessions } from 'sluice-llm/sessions';
   *
   * const saved = await SavedSessions.open({ maxBytes: 512 * 2 ** 20 });
   * ```
   */
  static async open(options: SavedSessionsOptions = {}): Promise<SavedSessions> {
    onlyKnown('SavedSessions.open()', options, 'maxBytes folder model');
    const { maxBytes = 2 ** 30, model = '' } = options;
    let { folder } = options;
    if (!(Number.isSafeInteger(maxBytes) && maxBytes > 0))
      invalid('maxBytes must be a positive integer.');
    if (!folder) {
      const refuse = (why: string, cause?: unknown): never => {
        const message = `The origin private file system is not available: ${why}.`;
        throw new SluiceError('NOT_SUPPORTED', message, { cause });
      };
      try {
        const root = await globalThis.navigator?.storage?.getDirectory?.();
        folder = await root?.getDirectoryHandle('sluice-saved', { create: true });
      } catch (cause) {
        refuse(`the browser denies storage (${(cause as Error).message})`, cause);
      }
      folder ??= refuse('it needs https or localhost');
    }
    return new SavedSessions(folder, maxBytes, model);
  }

  /**
   * Saves the KV cache of an engine, or a session, under a name. Replaces what had this name.
   * Returns false if it is larger than `maxBytes`. QUOTA if the storage is full.
   *
   * @example
   * ```ts
   * const kept = await saved.save('sky', session);
   * if (!kept) console.log('The session is larger than maxBytes.');
   * ```
   */
  async save(name: string, from: Engine | Session): Promise<boolean> {
    const saved: SavedState & Partial<SavedSession> = isSession(from)
      ? await from.save()
      : await from.saveState();
    const { tokens, state, ...words } = saved;
    const parts: Uint8Array<ArrayBuffer>[] = [];
    const head: Head = { name, model: this.#model, tokens: tokens.length, state: state.length };
    if (words.messages) head.words = (await packed(words, parts)) as Conversation;
    head.parts = parts.map((part) => part.length);
    head.checksums = parts.map((part) => xxh32(part));
    const json = new TextEncoder().encode(JSON.stringify(head));
    const headBytes = (json.length + 3) & ~3;
    const front = new Uint8Array(kPrefix + headBytes + tokens.byteLength).fill(32);
    front.set(json, kPrefix);
    front.set(
      new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength),
      kPrefix + headBytes,
    );
    new Uint32Array(front.buffer, 0, 4).set([kMagic, headBytes, xxh32(front.subarray(kPrefix)), 0]);
    const bytes = parts.reduce((sum, part) => sum + part.length, front.length + state.length);
    if (bytes > this.#maxBytes || headBytes > kMaxHead) return false;
    const file = fileOf(name);
    await this.#evict(bytes, file);
    try {
      await writeFile(this.#folder, file, [front, ...parts, state as Uint8Array<ArrayBuffer>]);
    } catch (cause) {
      const denied = /^(NotAllowed|Security|TypeMismatch)Error$/.test((cause as Error).name);
      const message = `The session could not be saved: ${String(cause)}`;
      throw new SluiceError(denied ? 'NOT_SUPPORTED' : 'QUOTA', message, { cause });
    }
    await this.#touch(file);
    return true;
  }

  /**
   * Restores what was saved under this name. Returns false if there is nothing, or nothing that
   * this model can use.
   *
   * @example
   * ```ts
   * const session = engine.session();
   * const found = await saved.restore('sky', session);
   * console.log(found ? session.messages.length : 'nothing was saved');
   * ```
   */
  async restore(name: string, into: Engine | Session): Promise<boolean> {
    const entry = await this.#read(fileOf(name));
    return entry !== null && this.#enter(entry, into);
  }

  /**
   * Restores the saved KV cache that shares the longest prefix with a prompt, so that only the rest
   * of the prompt is computed. Returns the length of the prefix in tokens; 0 if nothing was
   * restored. Prefixes below 16 tokens are ignored.
   *
   * @example
   * ```ts
   * const prompt = 'A long document … Question: who wrote it?';
   * const cachedTokens = await saved.restorePrefix(engine, prompt); // these need no prefill
   * console.log(await engine.generate(prompt, { maxTokens: 64 }).text());
   * if (cachedTokens === 0) await saved.save('document', engine);
   * ```
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

  /**
   * All saved sessions, the most recently used first.
   *
   * @example
   * ```ts
   * for (const { name, tokens, bytes } of await saved.list()) console.log(name, tokens, bytes);
   * ```
   */
  async list(): Promise<SavedSessionInfo[]> {
    const uses = await this.#uses();
    const all: SavedSessionInfo[] = [];
    for await (const { file, head, bytes } of this.#entries())
      all.push({ name: head.name, tokens: head.tokens, bytes, used: uses[file] ?? 0 });
    return all.sort((a, b) => b.used - a.used);
  }

  /**
   * Deletes what was saved under this name.
   *
   * @example
   * ```ts
   * await saved.delete('sky');
   * console.log((await saved.list()).length);
   * ```
   */
  async delete(name: string): Promise<void> {
    await this.#remove(fileOf(name));
  }

  async #enter(entry: Entry, into: Engine | Session): Promise<boolean> {
    const file = await (await this.#folder.getFileHandle(entry.file)).getFile();
    const state = new Uint8Array(await file.slice(entry.stateAt).arrayBuffer());
    const { tokens, head, partsAt } = entry;
    const parts: Uint8Array<ArrayBuffer>[] = [];
    let at = partsAt;
    for (const [i, bytes] of (head.parts ?? []).entries()) {
      const part = new Uint8Array(await file.slice(at, (at += bytes)).arrayBuffer());
      if (xxh32(part) !== head.checksums?.[i]) return (await this.#remove(entry.file), false);
      parts.push(part);
    }
    if (isSession(into) && !head.words)
      invalid(`${JSON.stringify(head.name)} was saved from an engine, not from a session.`);
    try {
      await (isSession(into)
        ? into.restore({ tokens, state, ...(unpacked(head.words, parts) as Conversation) })
        : into.restoreState({ tokens, state }));
    } catch (error) {
      // The state is damaged, of another model or too long. The engine has changed nothing.
      if (!['CORRUPT', 'CONTEXT_FULL'].includes((error as SluiceError).code)) throw error;
      return false;
    }
    await this.#touch(entry.file);
    return true;
  }

  /** Reads and verifies header and tokens. Null for another model; damaged files are deleted. */
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
    const partsAt = kPrefix + headBytes + 4 * head.tokens;
    const stateAt = [...(head.parts ?? [])].reduce((sum, bytes) => sum + bytes, partsAt);
    if (!(head.tokens >= 0 && head.tokens <= kMaxTokens) || stateAt + head.state !== file.size)
      return damaged();
    const front = await part(kPrefix, partsAt);
    if (xxh32(new Uint8Array(front)) !== sum) return damaged();
    if (head.model !== this.#model) return null;
    return {
      file: name,
      head,
      tokens: new Int32Array(front, headBytes),
      partsAt,
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

  /** Deletes the least recently used files until `room` bytes are free. `but` is never deleted. */
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

  /** Time of the last use of each file, which the browser's file system does not record. */
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
    const uses = JSON.stringify({ ...Object.fromEntries(kept), [file]: Date.now() });
    await writeFile(this.#folder, kUses, [uses]).catch(() => {}); // only the order of use is lost
  }
}
