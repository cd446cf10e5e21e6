// The store behind the model cache: a data file and an index file per model file, in OPFS or in a
// directory (Node), where several processes may write them. Downloaded bytes are written chunk by
// chunk. The index has eight bytes per chunk (mark, checksum), written after the data, so a killed
// worker loses at most the chunk that it was assembling. Each chunk is verified once per session,
// when it is first read; a damaged one becomes missing again. The platform's file access is in
// SyncFile, and the format in store-index.ts.

import type { EntryFiles, EntryMeta, SharedEntry, SharedFile } from './files.js';
import { timeReads } from './model-file.js';
import {
  describeIndex,
  encodeMeta,
  isPresent,
  isRecorded,
  writeRecord,
  clearRecords,
  writeUsed,
} from './store-index.js';
import type { Validators } from './validators.js';

// With 64 KiB, a download from a fast host takes 20 % longer; with 1 MiB, 40 % longer.
export const kChunkSize = 256 * 1024;

const enum Chunk {
  Missing = 0,
  Stored = 1,
  Verified = 2,
}

/** A model file in the store. All methods but readRate() are synchronous. */
export class StoreEntry {
  meta: EntryMeta | null = null;
  /** Number of chunks present. */
  chunksStored = 0;
  /** Number of chunks that turned out damaged since open. */
  corruptChunks = 0;
  #chunks = new Uint8Array(0);
  #scratch = new Uint8Array(0);
  readonly #from = { at: 0 };
  #window = new Uint8Array(0); // cached chunk for small reads
  #windowChunk = -1;
  #sharedReads = true;
  #lastReload = 0;
  #closed = false;
  readonly #files: EntryFiles;
  readonly #now: () => number;

  constructor(files: EntryFiles, now: () => number = Date.now) {
    this.#files = files;
    this.#now = now;
    this.reload();
  }

  get writable(): boolean {
    return this.#files.writable && !this.#closed;
  }

  get complete(): boolean {
    return this.meta !== null && this.chunksStored === this.#chunks.length;
  }

  /** If other processes may write the entry too: who downloads what. */
  get several(): SharedEntry | undefined {
    return this.#files.several;
  }

  /** The data file for other threads, if this engine may write it. */
  get shared(): SharedFile | undefined {
    return this.writable ? this.#files.shared : undefined;
  }

  has(chunk: number): boolean {
    if (this.#chunks[chunk] !== Chunk.Missing) return true;
    const alone = this.#files.writable && !this.#files.several;
    if (alone || this.#now() - this.#lastReload < 250) return false;
    this.reload(); // another writer may have stored more
    return this.#chunks[chunk] !== Chunk.Missing && this.#chunks[chunk] !== undefined;
  }

  /**
   * Starts the entry of the file with this key, whose first bytes are `head`. Discards what
   * was stored, but not what other processes have stored of this version.
   */
  create(
    url: string,
    validators: Validators & { size: number },
    chunkSize: number,
    head: Uint8Array,
  ): void {
    const now = this.#now();
    const meta = { url, ...validators, chunkSize, created: now, used: now };
    const index = encodeMeta(meta);
    this.#windowChunk = -1;
    this.#chunks = new Uint8Array(0);
    if (this.#files.several) {
      if (!this.#files.several.begin(index, meta, head)) clearRecords(this.#files.index);
      return this.reload();
    }
    this.wipe();
    this.#files.index.write(index, { at: 0 });
    this.meta = meta;
    this.#chunks = new Uint8Array(Math.ceil(validators.size / chunkSize));
  }

  /** Deletes everything stored. */
  wipe(): void {
    this.#files.index.truncate(0);
    this.#files.data.truncate(0);
    this.meta = null;
    this.#chunks = new Uint8Array(0);
    this.chunksStored = 0;
    this.#windowChunk = -1;
  }

  /** Updates the time of use. */
  touch(): void {
    if (this.meta && this.writable) writeUsed(this.#files.index, this.#now());
  }

  /**
   * Stores one whole chunk. Throws the platform's error if storage is full; the entry then keeps
   * what it had.
   */
  write(chunk: number, bytes: Uint8Array): void {
    const at = chunk * this.meta!.chunkSize;
    const written = this.#files.data.write(bytes, { at });
    if (written !== bytes.length) throw new DOMException('storage full', 'QuotaExceededError');
    if (!writeRecord(this.#files.index, chunk, bytes))
      throw new DOMException('storage full', 'QuotaExceededError');
    if (this.#chunks[chunk] === Chunk.Missing) this.chunksStored++;
    this.#chunks[chunk] = Chunk.Verified;
    this.#files.several?.refresh();
    if (chunk === 0) this.#files.several?.removeOthers();
  }

  /**
   * Reads [offset, offset + into.length), whose chunks must all be present. Returns the damaged
   * chunks, which are now missing and whose bytes in `into` are invalid. Empty: success.
   */
  read(offset: number, into: Uint8Array): number[] {
    const { chunkSize, size } = this.meta!;
    const end = offset + into.length;
    const first = Math.floor(offset / chunkSize);
    const last = Math.floor((end - 1) / chunkSize);
    if (first === last && into.length <= chunkSize / 4) return this.#readSmall(first, offset, into);
    const bad: number[] = [];
    if (this.#readFile(into, offset) !== into.length) {
      // The data file is shorter than its index says.
      const stored = this.#files.data.getSize();
      for (let i = first; i <= last; i++) {
        if (Math.min((i + 1) * chunkSize, size) > stored) bad.push(i);
      }
      if (bad.length === 0) bad.push(first);
    }
    for (let i = first; i <= last; i++) {
      if (this.#chunks[i] !== Chunk.Stored || bad.includes(i)) continue;
      const from = i * chunkSize;
      const to = Math.min(from + chunkSize, size);
      const inside = from >= offset && to <= end;
      const aligned = (into.byteOffset + from - offset) % 4 === 0;
      const view = inside && aligned ? into.subarray(from - offset, to - offset) : null;
      if (this.#verify(i, view, from, to - from)) this.#chunks[i] = Chunk.Verified;
      else bad.push(i);
    }
    for (const i of bad) this.drop(i);
    return bad;
  }

  /**
   * Reads a whole chunk for small reads: they are often adjacent, and each can need an IPC call.
   */
  #readSmall(chunk: number, offset: number, into: Uint8Array): number[] {
    const { chunkSize, size } = this.meta!;
    const from = chunk * chunkSize;
    const length = Math.min(chunkSize, size - from);
    if (this.#windowChunk !== chunk) {
      this.#windowChunk = -1;
      if (this.#window.length < chunkSize) this.#window = new Uint8Array(chunkSize);
      const bytes = this.#window.subarray(0, length);
      const whole = this.#files.data.read(bytes, { at: from }) === length;
      const good =
        whole &&
        (this.#chunks[chunk] === Chunk.Verified || this.#verify(chunk, bytes, from, length));
      if (!good) {
        this.drop(chunk);
        return [chunk];
      }
      this.#chunks[chunk] = Chunk.Verified;
      this.#windowChunk = chunk;
    }
    into.set(this.#window.subarray(offset - from, offset - from + into.length));
    return [];
  }

  /** Measured read rate in bytes per second, over the chunks at the start without gaps. */
  readRate(): Promise<number> {
    let end = 0;
    while (this.#chunks[end]) end++;
    const { size, chunkSize } = this.meta ?? { size: 0, chunkSize: 0 };
    return timeReads(Math.min(size, end * chunkSize), (at, into) => this.#readFile(into, at));
  }

  flush(): void {
    if (!this.writable) return;
    this.#files.data.flush();
    this.#files.index.flush();
  }

  close(): void {
    if (this.#closed) return;
    this.flush();
    this.#closed = true;
    this.#files.release();
  }

  #verify(chunk: number, view: Uint8Array | null, from: number, length: number): boolean {
    let bytes = view;
    if (!bytes) {
      if (this.#scratch.length < length) this.#scratch = new Uint8Array(this.meta!.chunkSize);
      bytes = this.#scratch.subarray(0, length);
      if (this.#files.data.read(bytes, { at: from }) !== length) return false;
    }
    return isRecorded(this.#files.index, chunk, bytes);
  }

  /** Marks a chunk as missing because it is damaged. */
  drop(chunk: number): void {
    if (this.#windowChunk === chunk) this.#windowChunk = -1;
    this.corruptChunks++;
    if (this.#chunks[chunk] !== Chunk.Missing) this.chunksStored--;
    this.#chunks[chunk] = Chunk.Missing;
    if (this.writable) writeRecord(this.#files.index, chunk, null);
  }

  /** Reads into any view. Copies if the platform does not support views of shared memory. */
  #readFile(into: Uint8Array, at: number): number {
    if (this.#sharedReads) {
      try {
        this.#from.at = at;
        return this.#files.data.read(into, this.#from);
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
        this.#sharedReads = false;
      }
    }
    const copy = new Uint8Array(into.length);
    const n = this.#files.data.read(copy, { at });
    into.set(copy);
    return n;
  }

  /** Reads the index: another process may have stored chunks. */
  reload(): void {
    this.#lastReload = this.#now();
    const index = new Uint8Array(this.#files.index.getSize());
    this.#files.index.read(index, { at: 0 });
    const described = describeIndex(index);
    if (!described) {
      if (this.#files.writable && !this.#files.several && index.length > 0) this.wipe();
      return;
    }
    const { bytesCached: _, ...meta } = described;
    const count = Math.ceil(meta.size / meta.chunkSize);
    const verified = this.#chunks;
    this.#chunks = new Uint8Array(count);
    this.chunksStored = 0;
    this.meta = meta;
    for (let i = 0; i < count; i++) {
      if (!isPresent(index, i)) continue;
      this.#chunks[i] = verified[i] === Chunk.Verified ? Chunk.Verified : Chunk.Stored;
      this.chunksStored++;
    }
  }
}
