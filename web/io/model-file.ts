// A file of the model as the fill queue sees it: read any range into memory, at once where the
// bytes are local, later where they must come over the network. Blobs and Node files are here;
// remote-file.ts has the one that downloads and stores.

import { abortError, SluiceError } from '../protocol/errors.js';
import type { SharedFile, SyncFile } from './files.js';

export interface FileProgress {
  /** Bytes of the file that are local (stored or in a local file). */
  bytesLocal: number;
  /** Bytes that this engine has had from the network and from local storage. */
  bytesFetched: number;
  bytesFromCache: number;
}

export interface ModelFile {
  readonly name: string;
  readonly size: number;
  /** What the engine's threads may open. */
  readonly shared?: SharedFile | undefined;
  /** All of the file lies in `shared`: a range that read() has once filled may be read there. */
  readonly whole?: boolean;
  /** Bytes that reading it takes beside the engine's memory. */
  readonly held?: number;
  /** Fills `into` from `offset`. True when that happened at once. */
  read(offset: number, into: Uint8Array): true | Promise<void>;
  /**
   * These bytes are wrong: the next read fetches them anew. Absent where there is nothing to fetch.
   */
  refresh?(offset: number, length: number): void;
  progress(): FileProgress;
  /**
   * Bytes a second of a few large reads of what is local, and of the network so far; 0: unknown.
   */
  rates(): Promise<[local: number, network: number]>;
  /**
   * Starts fetching what is missing in file order. Resolves with true when everything is local, at
   * once with false where nothing is stored; rejects with QUOTA when it cannot be stored to the
   * end.
   */
  download(): Promise<boolean>;
  /** Stops all transfers; reads that wait reject. Idempotent. */
  close(): void;
}

const kWindow = 256 * 1024;
const kTimedReads = 4;
const kTimedBytes = 4 << 20;

/** Times reads spread over the first `size` bytes of a file. */
export async function timeReads(
  size: number,
  read: (at: number, into: Uint8Array) => unknown,
): Promise<number> {
  const bytes = new Uint8Array(Math.min(size, kTimedBytes)).fill(1); // its pages are there
  const start = performance.now();
  for (let i = 0; i < kTimedReads; i++) {
    await read(Math.floor(((size - bytes.length) / kTimedReads) * i), bytes);
  }
  return (kTimedReads * bytes.length * 1000) / (performance.now() - start) || 0;
}

/** A File or Blob, read by slices. */
export class BlobFile implements ModelFile {
  readonly size: number;
  #bytes = 0;
  #closed = false;
  #window: { at: number; bytes: Promise<ArrayBuffer> } | null = null;
  readonly #blob: Blob;

  constructor(
    blob: Blob,
    readonly name: string,
  ) {
    this.#blob = blob;
    this.size = blob.size;
  }

  async read(offset: number, into: Uint8Array): Promise<void> {
    let at = offset;
    let slice: ArrayBuffer;
    try {
      if (into.length > kWindow / 4) {
        slice = await this.#blob.slice(offset, offset + into.length).arrayBuffer();
      } else {
        at = Math.floor(offset / (kWindow / 2)) * (kWindow / 2);
        slice = await this.#windowAt(at);
      }
    } catch (cause) {
      throw new SluiceError('IO', `${this.name} can no longer be read; choose it again.`, {
        cause,
      });
    }
    if (this.#closed) throw abortError();
    const bytes = new Uint8Array(slice).subarray(offset - at, offset - at + into.length);
    if (bytes.length !== into.length) throw truncated(this.name);
    into.set(bytes);
    this.#bytes += into.length;
  }

  /**
   * Small reads come in runs and cost a message each, so they share slices; these overlap by half.
   */
  #windowAt(at: number): Promise<ArrayBuffer> {
    if (this.#window?.at !== at) {
      this.#window = { at, bytes: this.#blob.slice(at, at + kWindow).arrayBuffer() };
    }
    return this.#window.bytes;
  }

  progress(): FileProgress {
    return { bytesLocal: this.size, bytesFetched: 0, bytesFromCache: this.#bytes };
  }
  async rates(): Promise<[number, number]> {
    return [
      await timeReads(this.size, (at, into) =>
        this.#blob.slice(at, at + into.length).arrayBuffer(),
      ),
      0,
    ];
  }
  async download(): Promise<boolean> {
    return true;
  }
  close(): void {
    this.#closed = true;
  }
}

/** A local file with synchronous access. */
export class LocalFile implements ModelFile {
  readonly size: number;
  #bytes = 0;
  readonly #file: SyncFile;

  constructor(
    file: SyncFile,
    readonly name: string,
    readonly shared?: SharedFile,
    readonly whole = shared !== undefined,
  ) {
    this.#file = file;
    this.size = file.getSize();
  }

  read(offset: number, into: Uint8Array): true {
    if (this.#file.read(into, { at: offset }) !== into.length) throw truncated(this.name);
    this.#bytes += into.length;
    return true;
  }

  progress(): FileProgress {
    return { bytesLocal: this.size, bytesFetched: 0, bytesFromCache: this.#bytes };
  }
  async rates(): Promise<[number, number]> {
    return [await timeReads(this.size, (at, into) => this.#file.read(into, { at })), 0];
  }
  async download(): Promise<boolean> {
    return true;
  }
  close(): void {
    this.#file.close();
  }
}

function truncated(name: string): SluiceError {
  return new SluiceError('TRUNCATED', `${name} is shorter than its header says.`);
}
