// A model file at a URL. Chunks arrive over a few parallel range streams (chunk-scheduler.ts
// chooses them), are written to the store (local-chunks.ts) and passed to the reads that wait for
// them. Without a store, only requested chunks are downloaded.

import { fileName, hasUser, isOwnKey, publicUrl } from '../protocol/address.js';
import { abortError, invalid, SluiceError, throwIfAborted, type Warn } from '../protocol/errors.js';
import type { CacheMode } from '../protocol/types.js';
import { assembler, type Sink } from './assembler.js';
import { ChunkScheduler, type Stream, type Waiting } from './chunk-scheduler.js';
import { Fetcher, type FetcherOptions } from './fetcher.js';
import type { SharedFile, StoreBackend } from './files.js';
import { firstContact } from './initial-request.js';
import { LocalChunks } from './local-chunks.js';
import type { FileProgress, ModelFile } from './model-file.js';
import { following } from './timeouts.js';
import { isCurrent } from './revalidate.js';
import { kHeadBytes } from './store-index.js';

export interface RemoteOptions {
  cache?: CacheMode;
  fetcher?: FetcherOptions;
  signal?: AbortSignal | undefined;
  /** Maximum number of parallel streams, and maximum length of one in bytes. */
  streams?: number;
  streamBytes?: number;
  /** Chunk size of the store; smaller only in tests. */
  chunkSize?: number;
  onWarning?: Warn;
  /** The module for addresses with a query and for hosts whose ETags differ. */
  hosts?: () => Promise<typeof import('./hosts.js')>;
  /** Called when bytes have arrived or the download has progressed. */
  onProgress?: () => void;
}

interface Read extends Waiting {
  offset: number;
  into: Uint8Array;
  resolve: () => void;
  reject: (error: unknown) => void;
}

const kStreamBytes = 64 << 20; // hubs limit the number of requests
const kPauseMs = 3_000;
const kPauseMaxMs = 60_000;
const kLookMs = 1_000;
const kPollMs = 250;

export class RemoteFile implements ModelFile {
  readonly name: string;
  readonly #fetcher: Fetcher;
  readonly #local: LocalChunks;
  readonly #plan: ChunkScheduler<Read>;
  readonly #controls = new Map<Stream, AbortController>();
  readonly #ended = new AbortController();
  #store: StoreBackend | null = null;
  #downloading = false;
  #failure: unknown = null;
  #closed = false;
  #pauseMs = kPauseMs;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #poll: ReturnType<typeof setTimeout> | undefined;
  #finish!: { resolve: (stored: boolean) => void; reject: (error: unknown) => void };
  readonly #finished: Promise<boolean>;
  readonly #options: RemoteOptions;

  private constructor(
    readonly url: string,
    key: string,
    options: RemoteOptions,
  ) {
    this.#options = options;
    this.name = fileName(url);
    this.#fetcher = new Fetcher(url, { hosts: options.hosts, ...options.fetcher });
    this.#local = new LocalChunks(
      key,
      (code, message) => this.#warn(code, message),
      options.chunkSize,
    );
    this.#plan = new ChunkScheduler(this.#local, (stream) => this.#controls.get(stream)?.abort());
    this.#finished = new Promise((resolve, reject) => (this.#finish = { resolve, reject }));
    this.#finished.catch(() => {});
  }

  /** Opens a URL. The size of the file is known afterwards. */
  static async open(
    url: string,
    store: StoreBackend | null,
    options: RemoteOptions = {},
  ): Promise<RemoteFile> {
    if (/^(file|ftp):/i.test(url) || hasUser(url)) {
      invalid(`${publicUrl(url)}: only http(s) addresses without a password are supported.`);
    }
    const plain = !store || options.cache === 'none' || isOwnKey(url);
    const file = new RemoteFile(
      url,
      plain ? url : (await options.hosts!()).storedUrl(url),
      options,
    );
    try {
      await file.#start(options.cache === 'none' ? null : store);
    } catch (error) {
      file.close();
      throw error;
    }
    if (file.#local.busy)
      file.#takeOver(store!).catch((error: unknown) => file.#finish.reject(error));
    return file;
  }

  get size(): number {
    return this.#local.size;
  }
  get shared(): SharedFile | undefined {
    return this.#local.entry?.shared;
  }
  get whole(): boolean {
    return this.shared !== undefined && this.#local.complete;
  }

  read(offset: number, into: Uint8Array): true | Promise<void> {
    if (this.#failure) throw this.#failure;
    if (this.#closed) throw abortError();
    if (offset + into.length > this.size) {
      throw new SluiceError('TRUNCATED', `${this.name} is shorter than its header says.`);
    }
    if (into.length === 0) return true;
    const missing = this.#local.collect(offset, into);
    if (missing.size === 0) return true;
    return new Promise((resolve, reject) => {
      this.#plan.reads.add({ offset, into, missing, resolve, reject });
      this.#schedule();
    });
  }

  refresh(offset: number, length: number): void {
    const { chunkSize } = this.#local;
    for (let i = Math.floor(offset / chunkSize); i * chunkSize < offset + length; i++)
      this.#local.forget(i);
    this.#plan.rewind();
  }

  progress(): FileProgress {
    const local = this.#local;
    const stored = local.entry ? local.entry.chunksStored * local.chunkSize : 0;
    return {
      bytesLocal: Math.min(stored, this.size),
      bytesFetched: this.#fetcher.bytesReceived,
      bytesFromCache: local.bytesFromCache,
    };
  }

  async rates(): Promise<[number, number]> {
    return [(await this.#local.entry?.readRate()) ?? 0, this.#fetcher.rate];
  }

  /** As in ModelFile. If another tab is the writer: resolves when that one has stored the file. */
  download(): Promise<boolean> {
    const local = this.#local;
    this.#downloading = true;
    this.#plan.background = local.writing;
    this.#schedule();
    if (local.busy) void this.#watch();
    else if (!local.writing) this.#finish.resolve(false);
    return this.#finished;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#ended.abort();
    clearTimeout(this.#timer);
    clearTimeout(this.#poll);
    for (const control of this.#controls.values()) control.abort();
    this.#fail(abortError());
    this.#local.entry?.close();
  }

  // --- opening -------------------------------------------------------------------------------

  async #start(store: StoreBackend | null): Promise<void> {
    const { cache, signal } = this.#options;
    const local = this.#local;
    this.#store = store;
    if (store) await local.open(store);
    throwIfAborted(signal);
    if (local.size > 0 && cache !== 'reload') {
      this.#adopt();
      if (cache === 'only' && local.complete) return;
      if (
        cache !== 'only' &&
        (await isCurrent(
          this.#fetcher,
          local,
          (code, message) => this.#warn(code, message),
          signal,
        ))
      )
        return;
    }
    if (cache === 'only')
      throw new SluiceError('NOT_FOUND', `${publicUrl(this.url)} is not cached.`);
    await this.#contact();
  }

  /**
   * Requests a file that is not stored. If the server ignores ranges, this reads the whole file.
   */
  async #contact(): Promise<void> {
    const fetcher = this.#fetcher;
    const local = this.#local;
    const options = this.#options;
    const begin = (size: number, head: Uint8Array): Sink => {
      local.begin(fetcher.known, size, head, fetcher.mode === 'ranges');
      if (fetcher.mode === 'whole' && !local.writing) {
        throw new SluiceError(
          'NO_RANGE_SUPPORT',
          `${fetcher.name} does not serve byte ranges and there is no model cache.`,
        );
      }
      this.#adopt();
      return this.#assembler(0);
    };
    await following(options.signal, async (control) => {
      const { rest } = await firstContact(
        fetcher,
        Math.max(local.chunkSize, kHeadBytes),
        begin,
        control.signal,
      ).catch((error: unknown) => {
        throwIfAborted(options.signal);
        throw error;
      });
      if (rest)
        void this.#run(this.#plan.begin({ first: 0, end: this.#plan.count }), control, () => rest);
    });
  }

  #adopt(): void {
    this.#plan.count = this.#local.count;
    this.#plan.streamLimit = this.#options.streams ?? 3;
    this.#plan.streamChunks = Math.max(
      1,
      Math.floor((this.#options.streamBytes ?? kStreamBytes) / this.#local.chunkSize),
    );
  }

  // --- while another tab writes --------------------------------------------------------------

  async #takeOver(store: StoreBackend): Promise<void> {
    const mine = await this.#local.takeOver(store, this.#fetcher.known, this.#ended.signal);
    if (!mine)
      throw new SluiceError('CACHE_LOCKED', `Another tab stores another version of ${this.name}.`);
    this.#plan.rewind();
    if (this.#downloading) void this.download();
  }

  async #watch(): Promise<void> {
    const local = this.#local;
    if (await local.completeElsewhere(this.#store!, this.#fetcher.known).catch(() => false))
      this.#finish.resolve(true);
    else if (local.busy && !this.#closed)
      this.#timer = setTimeout(() => void this.#watch(), kLookMs);
  }

  // --- serving -------------------------------------------------------------------------------

  #assembler(chunk: number): Sink {
    return assembler(this.#local, this.#fetcher.name, chunk, (n, bytes) => this.#arrived(n, bytes));
  }

  #arrived(chunk: number, bytes: Uint8Array): void {
    const local = this.#local;
    const plan = this.#plan;
    plan.arrived(chunk);
    this.#pauseMs = kPauseMs;
    try {
      local.put(chunk, bytes);
    } catch (error) {
      plan.background = false;
      this.#warn('QUOTA', (error as Error).message);
      this.#finish.reject(error);
    }
    for (const read of plan.reads) {
      if (!read.missing.delete(chunk)) continue;
      local.copy(bytes, chunk, read.into, read.offset);
      this.#settle(read);
    }
    this.#noteComplete();
    this.#options.onProgress?.();
  }

  /** Serves pending reads with chunks that another tab has stored meanwhile. */
  #serveStored(): void {
    for (const read of this.#plan.reads) {
      for (const chunk of read.missing) {
        if (!this.#local.isStored(chunk)) continue;
        const bad = this.#local.fromStore(chunk, chunk + 1, read.offset, read.into);
        if (bad.length === 0) read.missing.delete(chunk);
      }
      this.#settle(read);
    }
  }

  #settle(read: Read): void {
    if (read.missing.size > 0) return;
    this.#plan.reads.delete(read);
    read.resolve();
  }

  #noteComplete(): void {
    const { entry, complete } = this.#local;
    if (!complete) return;
    entry!.flush();
    entry!.touch();
    this.#finish.resolve(true);
  }

  // --- fetching ------------------------------------------------------------------------------

  /** Starts streams while chunks are needed and the limit is not reached. */
  #schedule(): void {
    const fetcher = this.#fetcher;
    const local = this.#local;
    const plan = this.#plan;
    if (this.#closed || this.#failure || plan.count === 0) return;
    plan.whole = fetcher.mode === 'whole';
    this.#serveStored();
    for (let stream = plan.next(); stream; stream = plan.next()) {
      const { first, end } = stream;
      const control = new AbortController();
      const assemble = this.#assembler(first);
      void this.#run(stream, control, () =>
        fetcher.stream(
          first * local.chunkSize,
          Math.min(this.size, end * local.chunkSize),
          (bytes) => assemble(bytes),
          control.signal,
        ),
      );
    }
    if (plan.background) this.#noteComplete();
    if (local.entry?.several && (plan.reads.size > 0 || (plan.background && !local.complete)))
      this.#poll ??= setTimeout(() => this.#lookAgain(), kPollMs);
  }

  /** Other processes may have stored chunks, or have stopped downloading them. */
  #lookAgain(): void {
    this.#poll = undefined;
    this.#local.entry?.several?.lookAgain();
    this.#schedule();
  }

  async #run(
    stream: Stream,
    control: AbortController,
    work: () => Promise<unknown>,
  ): Promise<void> {
    this.#controls.set(stream, control);
    let error: unknown;
    try {
      await work();
    } catch (cause) {
      error = cause;
    }
    this.#controls.delete(stream);
    this.#plan.ended(stream);
    if (!error) this.#schedule();
    else if (!control.signal.aborted && !this.#closed) this.#streamFailed(stream, error);
  }

  #streamFailed({ first, end }: Stream, error: unknown): void {
    if (error instanceof SluiceError && error.code === 'SOURCE_CHANGED') {
      // The stored chunks are kept until the next load has checked the new file.
      this.#failure = error;
      for (const control of this.#controls.values()) control.abort();
      return this.#fail(error);
    }
    for (const read of this.#plan.reads) {
      if (![...read.missing].some((chunk) => chunk >= first && chunk < end)) continue;
      this.#plan.reads.delete(read);
      read.reject(error);
    }
    if (!this.#plan.background) return;
    // Pauses the background download; reads are still served.
    this.#warn('NETWORK', `The download pauses: ${(error as Error).message}`);
    this.#plan.background = false;
    this.#timer = setTimeout(() => {
      this.#plan.background = this.#local.writing;
      this.#schedule();
    }, this.#pauseMs);
    this.#pauseMs = Math.min(kPauseMaxMs, this.#pauseMs * 2);
  }

  /** Rejects all pending reads and the download. */
  #fail(error: unknown): void {
    for (const read of this.#plan.reads) read.reject(error);
    this.#plan.reads.clear();
    this.#finish.reject(error);
  }

  #warn(code: Parameters<Warn>[0], message: string): void {
    if (code === 'CORRUPT') this.#plan.rewind(); // a stored chunk became missing
    this.#options.onWarning?.(code, message);
  }
}
