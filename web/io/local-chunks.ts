// Local chunks of a remote file: those in the store, which one engine at a time writes, and a few
// recent chunks in memory if there is no store, because adjacent reads share chunks. Stored bytes
// are only replaced by bytes that can be a newer version of the file, not by an error page or a
// login form.

import { publicUrl } from '../protocol/address.js';
import { SluiceError, type Warn } from '../protocol/errors.js';
import type { StoreBackend } from './files.js';
import { describeIndex, entryPrefix } from './store-index.js';
import { kChunkSize, StoreEntry } from './store.js';
import { differs, type Validators } from './validators.js';

/** Number of first bytes that identify the kind of a file. */
const kMagicBytes = 16;
const kRecentBytes = 8 << 20;

export class LocalChunks {
  size = 0;
  entry: StoreEntry | null = null;
  /** Arriving chunks are stored. */
  writing = false;
  /** Another tab is the writer of the entry. */
  busy = false;
  bytesFromCache = 0;
  readonly #recent = new Map<number, Uint8Array>();
  readonly #url: string;
  readonly #warn: Warn;

  /** `url`: storedUrl() of the file. */
  constructor(
    url: string,
    warn: Warn,
    public chunkSize = kChunkSize,
  ) {
    this.#url = url;
    this.#warn = warn;
  }

  get count(): number {
    return Math.ceil(this.size / this.chunkSize);
  }
  get complete(): boolean {
    return this.entry?.complete === true;
  }

  async open(store: StoreBackend): Promise<void> {
    try {
      const files = await store.open(this.#url);
      this.busy = !files?.writable;
      if (!files)
        return this.#warn(
          'CACHE_LOCKED',
          'Another tab is caching this model; reading from the network.',
        );
      this.entry = new StoreEntry(files);
      this.writing = this.entry.writable;
      const { meta } = this.entry;
      if (meta ? meta.url !== this.#url : !this.writing) this.drop();
      if (this.entry?.meta) ({ size: this.size, chunkSize: this.chunkSize } = this.entry.meta);
    } catch (error) {
      this.#warn('IO', `The cache cannot be used: ${(error as Error).message}`);
      this.drop();
    }
  }

  /** Starts storing a file that begins with `head`: all of it, or kHeadBytes. */
  begin(known: Validators, size: number, head: Uint8Array, ranges: boolean): void {
    this.mayReplace(head, ranges);
    this.size = size;
    if (!this.writing) return this.drop();
    try {
      this.entry!.create(this.#url, { ...known, size }, this.chunkSize, head);
      this.chunkSize = this.entry!.meta!.chunkSize;
    } catch (error) {
      this.#warn('QUOTA', `The model cannot be cached (${(error as Error).message}).`);
      this.drop();
    }
  }

  /** Throws if a file that begins with `fresh` cannot be a version of the stored one. */
  mayReplace(fresh: Uint8Array, ranges: boolean): void {
    const { entry } = this;
    if (!entry?.meta || entry.chunksStored === 0) return;
    const old = new Uint8Array(Math.min(kMagicBytes, entry.meta.size));
    if (!entry.has(0) || entry.read(0, old).length > 0) old.fill(0);
    if (resembles(fresh, old, ranges)) return;
    throw new SluiceError(
      'NETWORK',
      `${publicUrl(this.#url)} does not return the cached model, which is kept.`,
    );
  }

  /**
   * Waits until the other tab closes the entry, then continues to write it. Returns false if it
   * contains another version.
   */
  async takeOver(store: StoreBackend, known: Validators, until: AbortSignal): Promise<boolean> {
    const files = await store.open(this.#url, until);
    if (!files) return false;
    const entry = new StoreEntry(files);
    const { meta } = entry;
    const own = { ...known, size: this.size };
    if (until.aborted || (meta && (meta.chunkSize !== this.chunkSize || differs(meta, own)))) {
      entry.close(); // the next load checks it
      return false;
    }
    if (!meta) entry.create(this.#url, own, this.chunkSize, new Uint8Array(0));
    this.entry?.close();
    this.entry = entry;
    this.writing = true;
    this.busy = false;
    return true;
  }

  /** Whether another tab has stored the complete file in this version. */
  async completeElsewhere(store: StoreBackend, known: Validators): Promise<boolean> {
    const index = await store.readIndex(entryPrefix(this.#url));
    const found = index && describeIndex(index);
    return found?.bytesCached === this.size && !differs(found, known);
  }

  isLocal(chunk: number): boolean {
    return this.#recent.has(chunk) || this.isStored(chunk);
  }
  isStored(chunk: number): boolean {
    return this.entry?.has(chunk) === true;
  }
  isElsewhere(chunk: number): boolean {
    return this.entry?.several?.isElsewhere(chunk * this.chunkSize) === true;
  }
  reserve(first: number, end: number): number {
    const { entry, chunkSize } = this;
    const last = entry?.several?.reserve(first * chunkSize, end * chunkSize);
    if (!last) return end;
    entry!.reload();
    return last / chunkSize;
  }
  release(first: number, end: number): void {
    this.entry?.several?.unreserve(first * this.chunkSize, end * this.chunkSize);
  }

  /** Copies the local part of a read. Returns the missing chunks. */
  collect(offset: number, into: Uint8Array): Set<number> {
    const first = Math.floor(offset / this.chunkSize);
    const last = Math.floor((offset + into.length - 1) / this.chunkSize);
    const missing = new Set<number>();
    for (let i = first; i <= last;) {
      const held = this.#recent.get(i);
      if (held) {
        this.copy(held, i, into, offset);
        i++;
      } else if (this.isStored(i)) {
        let end = i + 1;
        while (end <= last && !this.#recent.has(end) && this.isStored(end)) end++;
        for (const bad of this.fromStore(i, end, offset, into)) missing.add(bad);
        i = end;
      } else {
        missing.add(i++);
      }
    }
    return missing;
  }

  /** Copies the overlap of a chunk with the read at `offset`. */
  copy(bytes: Uint8Array, chunk: number, into: Uint8Array, offset: number): void {
    const at = chunk * this.chunkSize;
    const start = Math.max(at, offset);
    const end = Math.min(at + bytes.length, offset + into.length);
    if (end > start) into.set(bytes.subarray(start - at, end - at), start - offset);
  }

  /** Reads the overlap of chunks [i, end) with the read. Returns damaged chunks. */
  fromStore(i: number, end: number, offset: number, into: Uint8Array): number[] {
    const from = Math.max(offset, i * this.chunkSize);
    const to = Math.min(offset + into.length, end * this.chunkSize);
    const bad = this.entry!.read(
      from,
      to - from === into.length ? into : into.subarray(from - offset, to - offset),
    );
    if (bad.length > 0)
      this.#warn('CORRUPT', `${bad.length} damaged chunk(s) in the cache are fetched again.`);
    this.bytesFromCache += to - from;
    return bad;
  }

  /** Stores a chunk. Throws QUOTA for the first chunk that does not fit. */
  put(chunk: number, bytes: Uint8Array): void {
    try {
      if (this.writing && !this.isStored(chunk)) this.entry!.write(chunk, bytes);
    } catch (cause) {
      this.writing = false;
      throw new SluiceError('QUOTA', `The model cannot be cached (${(cause as Error).message}).`, {
        cause,
      });
    } finally {
      if (!this.isStored(chunk)) this.#remember(chunk, bytes);
    }
  }

  forget(chunk: number): void {
    this.#recent.delete(chunk);
    this.entry?.drop(chunk);
  }

  drop(): void {
    this.entry?.close();
    this.entry = null;
    this.writing = false;
  }

  #remember(chunk: number, bytes: Uint8Array): void {
    this.#recent.set(chunk, bytes.slice());
    const limit = Math.max(1, Math.floor(kRecentBytes / this.chunkSize));
    for (const old of this.#recent.keys()) {
      if (this.#recent.size <= limit) break;
      this.#recent.delete(old);
    }
  }
}

// GGUF, QSF or safetensors.
const isModel = (text: string): boolean => /^(GGUF|QSF1|.{5}\0\0\0\{)/s.test(text);

/**
 * Whether `fresh` can be the start of a new version of the file that started with `old`. Login
 * pages do not serve ranges, so a changed JSON file needs ranges or the same first key.
 */
function resembles(fresh: Uint8Array, old: Uint8Array, ranges: boolean): boolean {
  const [a, b] = [fresh, old].map((head) =>
    String.fromCharCode(...head.subarray(0, kMagicBytes)),
  ) as [string, string];
  const alike = a !== '' && a.slice(0, 8) === b.slice(0, 8);
  return alike || isModel(a) || (!isModel(b) && (ranges || b[0] !== '{') && /^\s*[^\s<]/.test(a));
}
