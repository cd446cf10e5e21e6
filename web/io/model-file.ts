// Interface of a model file: reads any range into memory, immediately if the bytes are local. Blobs
// and local files are implemented here; remote-file.ts implements files that are downloaded.

import { abortError, SluiceError } from '../protocol/errors.js';
import type { SharedFile, SyncFile } from './files.js';

export interface FileProgress {
  /** Bytes of the file that are local: in the store or in a local file. */
  bytesLocal: number;
  /** Bytes that this engine has read from the network. */
  bytesFetched: number;
  /** Bytes that this engine has read from local storage. */
  bytesFromCache: number;
}

/**
 * Virtual addresses from here on are experts of QSF files (expert-records.ts). The engine's threads
 * cannot read them by themselves.
 */
export const kExperts = 2 ** 52;

export interface ModelFile {
  readonly name: string;
  readonly size: number;
  /** The file for the engine's threads, if they can open it. */
  readonly shared?: SharedFile | undefined;
  /** `shared` contains the whole file: a range that read() has returned once can be read there. */
  readonly whole?: boolean;
  /** Bytes that reading takes outside the engine's memory. */
  readonly held?: number;
  /** Fills `into` from `offset`. Returns true if that happened synchronously. */
  read(offset: number, into: Uint8Array): true | Promise<void>;
  /** Discards damaged bytes, so that the next read downloads them again. Only for remote files. */
  refresh?(offset: number, length: number): void;
  progress(): FileProgress;
  /** Bytes per second of a few large local reads, and of the network so far. 0: unknown. */
  rates(): Promise<[local: number, network: number]>;
  /**
   * Starts downloading missing bytes in file order. Resolves with true when everything is local, or
   * immediately with false if nothing is stored. Rejects with QUOTA if storage is full.
   */
  download(): Promise<boolean>;
  /** Stops all transfers and rejects pending reads. Calls after the first have no effect. */
  close(): void;
}

const kWindow = 256 * 1024;
const kTimedReads = 4;
const kTimedBytes = 4 << 20;

/** Rate of reads spread over the first `size` bytes of a file, in bytes per second. */
export async function timeReads(
  size: number,
  read: (at: number, into: Uint8Array) => unknown,
): Promise<number> {
  const bytes = new Uint8Array(Math.min(size, kTimedBytes)).fill(1); // maps its pages
  const start = performance.now();
  for (let i = 0; i < kTimedReads; i++) {
    await read(Math.floor(((size - bytes.length) / kTimedReads) * i), bytes);
  }
  return (kTimedReads * bytes.length * 1000) / (performance.now() - start) || 0;
}

/** A File or Blob, read in slices. */
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

  /** A slice that adjacent small reads share, because each slice is an IPC call. Slices overlap. */
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
