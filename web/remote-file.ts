// A model file behind a URL: chunks arrive over a few parallel range streams, are written through
// to the store and handed to whoever waits for them. What the engine wants next is fetched first;
// the rest of the file follows in file order. Without a store, only what is asked for is fetched,
// plus a few recent chunks kept in memory because neighbouring reads share them.

import { abortError, isAbort, SluiceError, throwIfAborted } from './errors.js';
import { differs, Fetcher, following, type FetcherOptions } from './fetcher.js';
import type { FileProgress, ModelFile } from './model-file.js';
import { keyOf, kChunkSize, StoreEntry, type SharedFile, type StoreBackend } from './store.js';

/** default: revalidate, then use; only: never the network; reload: fetch anew; none: no store. */
export type CacheMode = 'default' | 'only' | 'reload' | 'none';

export interface RemoteOptions {
  cache?: CacheMode;
  fetcher?: FetcherOptions;
  signal?: AbortSignal | undefined;
  /** Streams in flight at once and the longest of them, in bytes. */
  streams?: number;
  streamBytes?: number;
  /** The store's chunk; smaller only in tests. */
  chunkSize?: number;
  onWarning?: (code: string, message: string) => void;
  /** Called whenever bytes have arrived or the download has moved on. */
  onProgress?: () => void;
}

interface Waiter {
  offset: number;
  into: Uint8Array;
  missing: Set<number>;
  resolve: () => void;
  reject: (error: unknown) => void;
}

interface Job {
  first: number;
  end: number; // chunk after the last
  control: AbortController;
}

const kFirstRequest = 1 << 20;
const kStreamBytes = 64 << 20; // hubs limit the number of requests
const kCompareBytes = 64 * 1024;
const kRecentBytes = 8 << 20;
const kOfflineMs = 4_000;
const kPauseMs = 3_000;
const kPauseMaxMs = 60_000;

export class RemoteFile implements ModelFile {
  readonly name: string;
  size = 0;
  private chunkSize: number;
  private count = 0;
  private entry: StoreEntry | null = null;
  private writing = false;
  private busy = false; // another tab is the entry's writer
  private readonly ended = new AbortController();
  private readonly fetcher: Fetcher;
  private readonly jobs = new Set<Job>();
  private readonly flying = new Set<number>();
  private readonly waiters = new Set<Waiter>();
  private readonly recent = new Map<number, Uint8Array>();
  private background = false;
  private cursor = 0;
  private bytesFromStore = 0;
  private failure: unknown = null;
  private closed = false;
  private pauseMs = kPauseMs;
  private pauseTimer: ReturnType<typeof setTimeout> | undefined;
  private finish!: { resolve: () => void; reject: (error: unknown) => void };
  private readonly finished: Promise<void>;

  private constructor(
    readonly url: string,
    private readonly options: RemoteOptions,
  ) {
    this.name = decodeURIComponent(url.replace(/[?#].*$/, '').replace(/^.*\//, '')) || url;
    this.fetcher = new Fetcher(url, options.fetcher);
    this.chunkSize = options.chunkSize ?? kChunkSize;
    this.finished = new Promise((resolve, reject) => (this.finish = { resolve, reject }));
    this.finished.catch(() => {});
  }

  /** Opens a URL; the file's size is known afterwards. */
  static async open(
    url: string,
    store: StoreBackend | null,
    options: RemoteOptions = {},
  ): Promise<RemoteFile> {
    const file = new RemoteFile(url, options);
    try {
      await file.start(options.cache === 'none' ? null : store);
    } catch (error) {
      file.close();
      throw error;
    }
    if (file.busy) file.takeOver(store!).catch(() => {});
    return file;
  }

  get stored(): StoreEntry | null {
    return this.entry;
  }
  get shared(): SharedFile | undefined {
    return this.entry?.shared;
  }
  get whole(): boolean {
    return this.shared !== undefined && this.entry!.complete;
  }
  get requests(): number {
    return this.fetcher.requests;
  }

  read(offset: number, into: Uint8Array): true | Promise<void> {
    if (this.failure) throw this.failure;
    if (this.closed) throw abortError();
    if (offset + into.length > this.size) {
      throw new SluiceError('TRUNCATED', `${this.name} is shorter than its header says.`);
    }
    if (into.length === 0) return true;
    const missing = this.collect(offset, into);
    if (missing.size === 0) return true;
    return new Promise((resolve, reject) => {
      this.waiters.add({ offset, into, missing, resolve, reject });
      this.schedule();
    });
  }

  progress(): FileProgress {
    const stored = this.entry ? this.entry.chunksStored * this.chunkSize : 0;
    return {
      bytesLocal: Math.min(stored, this.size),
      bytesFetched: this.fetcher.bytesReceived,
      bytesFromStore: this.bytesFromStore,
    };
  }

  async rates(): Promise<[number, number]> {
    return [(await this.entry?.readRate()) ?? 0, this.fetcher.rate];
  }

  download(): Promise<void> {
    if (!this.writing) this.finish.resolve();
    this.background = true;
    this.schedule();
    return this.finished;
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.ended.abort();
    clearTimeout(this.pauseTimer);
    for (const job of this.jobs) job.control.abort();
    for (const waiter of this.waiters) waiter.reject(abortError());
    this.waiters.clear();
    this.recent.clear();
    this.finish.reject(abortError());
    this.entry?.close();
  }

  // --- opening -------------------------------------------------------------------------------

  private async start(store: StoreBackend | null): Promise<void> {
    const { cache, signal } = this.options;
    if (store) await this.openEntry(store);
    throwIfAborted(signal);
    const meta = this.entry?.meta;
    if (meta && cache !== 'reload') {
      this.adopt(meta.size, meta.chunkSize);
      if (cache === 'only' && this.entry!.complete) return;
      if (cache !== 'only' && (await this.revalidate())) return;
    }
    if (cache === 'only') {
      throw new SluiceError('NOT_FOUND', `${this.url} is not in the store.`);
    }
    await this.firstContact();
  }

  private async openEntry(store: StoreBackend): Promise<void> {
    try {
      const files = await store.open(await keyOf(this.url));
      this.busy = !files?.writable;
      if (!files) {
        this.warn('STORE_BUSY', 'Another tab is storing this model; reading from the network.');
        return;
      }
      this.entry = new StoreEntry(files);
      this.writing = this.entry.writable;
      if (!this.writing && !this.entry.meta) this.dropEntry();
    } catch (error) {
      this.warn('IO', `The store cannot be used: ${(error as Error).message}`);
      this.dropEntry();
    }
  }

  /** Waits for the other tab to leave the store, then writes what it left to be stored. */
  private async takeOver(store: StoreBackend): Promise<void> {
    const files = await store.open(await keyOf(this.url), this.ended.signal);
    if (!files) return;
    const entry = new StoreEntry(files);
    const { meta } = entry;
    const own = { ...this.fetcher.known, size: this.size };
    const other = meta && (meta.chunkSize !== this.chunkSize || differs(meta, own));
    if (this.closed || other) return entry.close(); // the next load looks into that
    if (!meta) entry.create(this.url, own, this.chunkSize);
    this.entry?.close();
    this.entry = entry;
    this.writing = true;
    this.cursor = 0;
    this.schedule();
  }

  /** Compares the server's file with the stored one. False when the store was wiped. */
  private async revalidate(): Promise<boolean> {
    const entry = this.entry!;
    const { size } = entry.meta!;
    const length = Math.min(kCompareBytes, size);
    const fresh = new Uint8Array(length);
    const local = new Uint8Array(length);
    try {
      await this.fetcher.peek(fresh, entry.complete ? kOfflineMs : 0, this.options.signal);
    } catch (error) {
      if (isAbort(error)) throw error;
      if (!entry.complete) throw error;
      this.warn('NETWORK', 'The server cannot be reached; using the stored file.');
      return true;
    }
    const known = this.fetcher.known;
    const firstStored = [...Array(Math.ceil(length / this.chunkSize)).keys()].every((i) =>
      entry.has(i),
    );
    const compare = firstStored && entry.read(0, local).length === 0;
    const same = !differs(entry.meta!, known) && (!compare || equal(fresh, local));
    if (same) {
      this.fetcher.known.size = size;
      entry.touch(known);
      return true;
    }
    this.warn('SOURCE_CHANGED', 'The file on the server has changed; fetching it anew.');
    if (!this.writing) this.dropEntry();
    else entry.wipe();
    return false;
  }

  /** The first request of a new file: learns its size, keeps what it brings. */
  private async firstContact(): Promise<void> {
    const { signal } = this.options;
    try {
      await following(signal, (control) => new Promise<void>((...settle) => this.contact(control, ...settle)));
    } catch (error) {
      throwIfAborted(signal);
      throw error;
    }
  }

  /** Resolves when the first bytes are kept; a server that ignores ranges goes on behind that. */
  private contact(
    control: AbortController,
    resolve: () => void,
    reject: (error: unknown) => void,
  ): void {
    const { fetcher } = this;
    const early: Uint8Array[] = [];
    let assemble: Assembler | null = null;
    let job: Job | null = null;
    let probe: Promise<number | undefined> | null = null;
    const settle = (size: number): void => {
      this.begin(size);
      assemble = this.assembler(0);
      for (const part of early.splice(0)) assemble(part);
    };
    const sink = (bytes: Uint8Array, offset: number): void => {
      if (!assemble && fetcher.known.size !== undefined) {
        settle(fetcher.known.size);
        if (fetcher.mode === 'whole') this.track((job = { first: 0, end: this.count, control }));
        if (job) resolve();
      }
      if (assemble) assemble(bytes);
      else early.push(this.admit(bytes, offset));
      if (fetcher.mode === 'ranges' && fetcher.known.size === undefined) {
        probe ??= fetcher.probeSize(control.signal).catch(() => undefined);
      }
    };
    const run = async (): Promise<void> => {
      await fetcher.stream(0, kFirstRequest, sink, control.signal);
      if (!assemble) {
        await probe; // asked for while the first bytes came, so that they can be kept at once
        const { size } = fetcher.known;
        if (size === undefined) throw this.noSize();
        settle(size);
      }
      this.untrack(job);
      resolve();
      this.schedule();
    };
    run().catch((error: unknown) => {
      this.untrack(job);
      reject(error);
      if (job) this.jobFailed(job, error);
    });
  }

  /** Copies bytes that came before the size was known; a whole file without a length is capped. */
  private admit(bytes: Uint8Array, offset: number): Uint8Array {
    if (offset > 256 << 20) throw this.noSize();
    return bytes.slice();
  }

  private noSize(): SluiceError {
    return new SluiceError(
      'NO_RANGE_SUPPORT',
      `${this.url} neither serves byte ranges nor says how long the file is.`,
    );
  }

  /** The size is known: sets up the store's entry. */
  private begin(size: number): void {
    if (this.entry && this.writing) {
      this.entry.create(this.url, { ...this.fetcher.known, size }, this.chunkSize);
    } else if (this.fetcher.mode === 'whole') {
      throw new SluiceError(
        'NO_RANGE_SUPPORT',
        `${this.url} does not serve byte ranges and there is no store to keep the file in.`,
      );
    }
    this.adopt(size, this.chunkSize);
  }

  private adopt(size: number, chunkSize: number): void {
    this.size = size;
    this.chunkSize = chunkSize;
    this.count = Math.ceil(size / chunkSize);
  }

  // --- serving -------------------------------------------------------------------------------

  private isLocal(chunk: number): boolean {
    return this.recent.has(chunk) || (this.entry !== null && this.entry.has(chunk));
  }

  /** Copies what is local of a read; returns the chunks that are not. */
  private collect(offset: number, into: Uint8Array): Set<number> {
    const first = Math.floor(offset / this.chunkSize);
    const last = Math.floor((offset + into.length - 1) / this.chunkSize);
    const missing = new Set<number>();
    for (let i = first; i <= last; ) {
      const held = this.recent.get(i);
      if (held) {
        copyOverlap(held, i * this.chunkSize, into, offset);
        i++;
      } else if (this.entry?.has(i)) {
        let end = i + 1;
        while (end <= last && !this.recent.has(end) && this.entry.has(end)) end++;
        for (const bad of this.fromStore(i, end, offset, into)) missing.add(bad);
        i = end;
      } else {
        missing.add(i++);
      }
    }
    return missing;
  }

  /** Reads the part of chunks [i, end) that falls into the read; returns damaged chunks. */
  private fromStore(i: number, end: number, offset: number, into: Uint8Array): number[] {
    const from = Math.max(offset, i * this.chunkSize);
    const to = Math.min(offset + into.length, end * this.chunkSize);
    const bad = this.entry!.read(from, into.subarray(from - offset, to - offset));
    if (bad.length > 0) {
      this.cursor = 0;
      this.warn('CORRUPT', `${bad.length} damaged chunk(s) in the store are fetched again.`);
    }
    this.bytesFromStore += to - from;
    return bad;
  }

  private arrived(chunk: number, bytes: Uint8Array): void {
    this.flying.delete(chunk);
    this.pauseMs = kPauseMs;
    if (this.writing && !this.entry!.has(chunk)) this.keep(chunk, bytes);
    if (!this.entry?.has(chunk)) this.remember(chunk, bytes);
    for (const waiter of this.waiters) {
      if (!waiter.missing.delete(chunk)) continue;
      copyOverlap(bytes, chunk * this.chunkSize, waiter.into, waiter.offset);
      this.settle(waiter);
    }
    if (this.entry?.complete) this.finishDownload();
    this.options.onProgress?.();
  }

  private keep(chunk: number, bytes: Uint8Array): void {
    try {
      this.entry!.write(chunk, bytes);
    } catch (error) {
      this.writing = false;
      this.background = false;
      this.warn('QUOTA', `The model cannot be stored further (${(error as Error).message}).`);
      this.finish.resolve();
    }
  }

  private remember(chunk: number, bytes: Uint8Array): void {
    this.recent.set(chunk, bytes.slice());
    const limit = Math.max(1, Math.floor(kRecentBytes / this.chunkSize));
    for (const old of this.recent.keys()) {
      if (this.recent.size <= limit) break;
      this.recent.delete(old);
    }
  }

  private finishDownload(): void {
    this.entry?.flush();
    this.entry?.touch(this.fetcher.known);
    this.finish.resolve();
  }

  // --- fetching ------------------------------------------------------------------------------

  private assembler(firstChunk: number): Assembler {
    let chunk = firstChunk;
    let filled = 0;
    const buffer = new Uint8Array(this.chunkSize);
    return (bytes) => {
      for (let at = 0; at < bytes.length; ) {
        const length = Math.min(this.chunkSize, this.size - chunk * this.chunkSize);
        const n = Math.min(length - filled, bytes.length - at);
        if (n <= 0) return;
        buffer.set(bytes.subarray(at, at + n), filled);
        filled += n;
        at += n;
        if (filled < length) continue;
        this.arrived(chunk++, buffer.subarray(0, length));
        filled = 0;
      }
    };
  }

  /** Starts streams while there is something to fetch and a stream is free. */
  private schedule(): void {
    if (this.closed || this.failure || this.count === 0) return;
    const limit = this.fetcher.mode === 'whole' ? 1 : (this.options.streams ?? 3);
    this.serveStored();
    for (;;) {
      const wanted = this.nextWanted();
      if (wanted >= 0 && this.jobs.size >= limit && !this.preempt()) return;
      if (this.jobs.size >= limit) return;
      const chunk = wanted >= 0 ? wanted : this.nextMissing();
      if (chunk < 0) return;
      void this.run(chunk);
    }
  }

  /** Reads can wait for what another tab has stored meanwhile. */
  private serveStored(): void {
    for (const waiter of this.waiters) {
      for (const chunk of waiter.missing) {
        if (!this.entry?.has(chunk)) continue;
        const bad = this.fromStore(chunk, chunk + 1, waiter.offset, waiter.into);
        if (bad.length === 0) waiter.missing.delete(chunk);
      }
      this.settle(waiter);
    }
  }

  private settle(waiter: Waiter): void {
    if (waiter.missing.size > 0) return;
    this.waiters.delete(waiter);
    waiter.resolve();
  }

  /** The first chunk that a read waits for and no stream is bringing; -1 when there is none. */
  private nextWanted(): number {
    for (const waiter of this.waiters) {
      for (const chunk of waiter.missing) if (!this.flying.has(chunk)) return chunk;
    }
    return -1;
  }

  private nextMissing(): number {
    if (!this.background || !this.writing) return -1;
    while (this.cursor < this.count && this.entry!.has(this.cursor)) this.cursor++;
    for (let i = this.cursor; i < this.count; i++) {
      if (!this.flying.has(i) && !this.entry!.has(i)) return i;
    }
    if (this.entry!.complete) this.finishDownload();
    return -1;
  }

  /** Stops a stream that brings nothing anybody waits for. */
  private preempt(): boolean {
    for (const job of [...this.jobs].reverse()) {
      let needed = this.fetcher.mode === 'whole';
      for (const waiter of this.waiters) {
        for (const chunk of waiter.missing) {
          needed ||= chunk >= job.first && chunk < job.end && this.flying.has(chunk);
        }
      }
      if (needed) continue;
      job.control.abort();
      this.untrack(job);
      return true;
    }
    return false;
  }

  /** One stream from `first` over what is missing behind it. */
  private async run(first: number): Promise<void> {
    const limit = Math.max(1, Math.floor((this.options.streamBytes ?? kStreamBytes) / this.chunkSize));
    const ahead = this.writing && this.background;
    const wanted = ahead ? null : this.wantedChunks();
    let end = first + 1;
    while (end < this.count && end - first < limit) {
      if (this.flying.has(end) || this.isLocal(end) || (wanted && !wanted.has(end))) break;
      end++;
    }
    const whole = this.fetcher.mode === 'whole';
    const job: Job = { first: whole ? 0 : first, end: whole ? this.count : end, control: new AbortController() };
    this.track(job);
    const from = job.first * this.chunkSize;
    const to = Math.min(this.size, job.end * this.chunkSize);
    const assemble = this.assembler(job.first);
    try {
      await this.fetcher.stream(from, to, (bytes) => assemble(bytes), job.control.signal);
      this.untrack(job);
      this.schedule();
    } catch (error) {
      this.untrack(job);
      if (!job.control.signal.aborted) this.jobFailed(job, error);
    }
  }

  private wantedChunks(): Set<number> {
    const wanted = new Set<number>();
    for (const waiter of this.waiters) for (const chunk of waiter.missing) wanted.add(chunk);
    return wanted;
  }

  private track(job: Job): void {
    this.jobs.add(job);
    this.fly(job);
  }

  /** Its first chunk flies in any case: a wanted one that does not would be asked for for ever. */
  private fly({ first, end }: Job): void {
    for (let i = first; i < end; i++) if (i === first || !this.isLocal(i)) this.flying.add(i);
  }

  private untrack(job: Job | null): void {
    if (!job || !this.jobs.delete(job)) return;
    for (let i = job.first; i < job.end; i++) this.flying.delete(i);
    for (const other of this.jobs) this.fly(other);
  }

  private jobFailed(job: Job, error: unknown): void {
    if (this.closed) return;
    if (error instanceof SluiceError && error.code === 'SOURCE_CHANGED') {
      this.failure = error;
      if (this.writing) this.entry!.wipe();
      for (const other of this.jobs) other.control.abort();
      this.finish.reject(error);
    }
    for (const waiter of [...this.waiters]) {
      const hit = [...waiter.missing].some((chunk) => chunk >= job.first && chunk < job.end);
      if (!hit && !this.failure) continue;
      this.waiters.delete(waiter);
      waiter.reject(error);
    }
    if (this.failure || !this.background) return;
    // The rest of the download waits a little; a read that is asked for does not.
    this.warn('NETWORK', `The download pauses: ${(error as Error).message}`);
    this.background = false;
    this.pauseTimer = setTimeout(() => {
      this.background = true;
      this.schedule();
    }, this.pauseMs);
    this.pauseMs = Math.min(kPauseMaxMs, this.pauseMs * 2);
  }

  private dropEntry(): void {
    this.entry?.close();
    this.entry = null;
    this.writing = false;
  }

  private warn(code: string, message: string): void {
    this.options.onWarning?.(code, message);
  }
}

type Assembler = (bytes: Uint8Array) => void;

function copyOverlap(from: Uint8Array, fromAt: number, into: Uint8Array, intoAt: number): void {
  const start = Math.max(fromAt, intoAt);
  const end = Math.min(fromAt + from.length, intoAt + into.length);
  if (end > start) into.set(from.subarray(start - fromAt, end - fromAt), start - intoAt);
}

function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
