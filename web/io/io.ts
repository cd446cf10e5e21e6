// Interface for all I/O of one engine: opening the model's files, reading the header, serving the
// fill queue, the background download and its progress. A draft model has its own files and queue
// in the same object, so that both models are one download and one thread reads for both. LocalIo
// works in the calling thread; RemoteIo (io-worker.ts) runs a LocalIo in a worker.

import {
  isAbort,
  serializeError,
  SluiceError,
  type PlainError,
  type Warn,
} from '../protocol/errors.js';
import type { IoOptions, SourceSpec } from '../protocol/messages.js';
import type { ProgressEvent, SpeedEstimate } from '../protocol/types.js';
import type { Safetensors } from './directory.js';
import type { SharedFile, StoreBackend } from './files.js';
import { FillServer } from './fill-server.js';
import { BlobFile, type FileProgress, type ModelFile } from './model-file.js';
import { RateMeter } from './rate-meter.js';
import { RemoteFile } from './remote-file.js';

/** Files from this number on belong to the draft model. */
export const kDraftFiles = 1 << 20;
/** Files from this number on belong to the projector. */
export const kProjectorFiles = 2 * kDraftFiles;
/** By numbers of files: the model, its draft model, its projector. */
export type Sources = readonly (SourceSpec | undefined)[];

export interface OpenedFile {
  name: string;
  size: number;
  shared?: SharedFile | undefined;
}

export interface IoStats extends FileProgress {
  bytesTotal: number;
  /** Bytes that reading takes outside the engine's memory. */
  held: number;
}

export interface IoEvents {
  onProgress(event: ProgressEvent): void;
  /** A fill failed and waits for retry(). */
  onError(error: unknown): void;
  onDownloaded(error?: PlainError): void;
}

/** Platform functions of LocalIo. */
export interface IoPlatform {
  store(options: IoOptions): Promise<StoreBackend | null>;
  openPath?(path: string): ModelFile;
  /** The module that reads QSF files, loaded on first use. */
  qsf(): Promise<{ openQsf(file: ModelFile): Promise<ModelFile> }>;
  /** The module for unusual hosts, loaded on first use. */
  hosts(): Promise<typeof import('./hosts.js')>;
  /** The module that reads Hugging Face directories, loaded on first use. */
  safetensors(): Promise<Safetensors>;
}

export interface Io {
  /** Reads make progress while the engine's thread is blocked. */
  readonly concurrent: boolean;
  readonly stats: IoStats;
  /** Open files of the model, by number, that the engine's threads can also open. */
  readonly shared: (SharedFile | undefined)[];
  /** Opens file `index` of the model: at this address, or number `choice` of chosen files. */
  openFile(index: number, address: string, choice: number): Promise<OpenedFile>;
  /** Adds `bytes` as file `index`; if `derived`, a virtual file that they describe. */
  addFile(index: number, bytes: Uint8Array, derived?: boolean): Promise<void>;
  /**
   * Reads a whole small file beside file `index`, of at most `most` bytes. If it does not exist,
   * returns the message that says so.
   */
  readText(
    index: number,
    address: string,
    choice: number,
    most: number,
    optional: boolean,
  ): Promise<Uint8Array | string>;
  /** Reads an open file. Reports header progress unless the bytes are `weights`. */
  read(index: number, offset: number, length: number, weights?: boolean): Promise<Uint8Array>;
  /**
   * Serves this fill queue, replacing an earlier one. Its file 0 is file `first`. Address 0: no queue
   * any more, whose reads must be complete.
   */
  attach(memory: WebAssembly.Memory, queueAddress: number, first: number): Promise<void>;
  /** Checks the queues: the engine may have pushed requests. */
  poke(): void;
  /** Retries the failed requests. */
  retry(): void;
  startDownload(): void;
  close(): Promise<void>;
  /** Reopens all files after close(). Call attach() next. */
  reopen(): Promise<void>;
}

const kReportMs = 100;
/** Number of the first file of the same model. */
const firstOf = (index: number): number => index - (index % kDraftFiles);
const kAbsent = / answered 4(0[134]|10)\b/; // statuses with which servers report a missing file

export class LocalIo implements Io {
  readonly concurrent = false;
  readonly #files = new Map<number, ModelFile>();
  readonly #ways = new Map<number, () => Promise<ModelFile>>();
  readonly #opening: Promise<ModelFile>[] = [];
  #abort = new AbortController();
  #backend: Promise<StoreBackend | null> | undefined;
  #fetch: Promise<typeof fetch> | undefined;
  readonly #servers = new Map<number, FillServer>();
  #offline = false;
  #downloading = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #rate = new RateMeter();
  #lastReport = 0;
  #filled = 0;
  #lastUnit = 0;
  readonly #sources: Sources;
  readonly #options: IoOptions;
  readonly #platform: IoPlatform;
  readonly #events: IoEvents;

  constructor(sources: Sources, options: IoOptions, platform: IoPlatform, events: IoEvents) {
    this.#sources = sources;
    this.#options = options;
    this.#platform = platform;
    this.#events = events;
  }

  get shared(): (SharedFile | undefined)[] {
    return [...this.#files].filter(([index]) => index < kDraftFiles).map(([, file]) => file.shared);
  }

  get stats(): IoStats {
    const sum = { bytesLocal: 0, bytesFetched: 0, bytesFromCache: 0, bytesTotal: 0, held: 0 };
    for (const file of this.#files.values()) {
      const progress = file.progress();
      sum.bytesLocal += progress.bytesLocal;
      sum.bytesFetched += progress.bytesFetched;
      sum.bytesFromCache += progress.bytesFromCache;
      sum.bytesTotal += file.size;
      sum.held += file.held ?? 0;
    }
    return sum;
  }

  async openFile(index: number, address: string, choice: number): Promise<OpenedFile> {
    const open = (): Promise<ModelFile> => this.#open(index, address, choice);
    this.#ways.set(index, open);
    const file = await open();
    this.#files.get(index)?.close();
    this.#files.set(index, file);
    return { name: file.name, size: file.size, shared: file.shared };
  }

  async addFile(index: number, bytes: Uint8Array, derived = false): Promise<void> {
    const first = firstOf(index);
    const open = async (): Promise<ModelFile> =>
      derived
        ? (await this.#platform.safetensors()).derivedFile(bytes, (file) =>
            this.#files.get(first + file)!,
          )
        : new BlobFile(new Blob([bytes as BlobPart]), 'computed');
    this.#ways.set(index, open);
    this.#files.set(index, await open());
  }

  async readText(
    index: number,
    address: string,
    choice: number,
    most: number,
    optional: boolean,
  ): Promise<Uint8Array | string> {
    let file: ModelFile | null = null;
    try {
      file = await this.#open(index, address, choice, optional);
      if (file.size > most)
        throw new SluiceError('BAD_HEADER', `${file.name} is too large (${file.size} bytes).`);
      const bytes = new Uint8Array(file.size);
      await file.read(0, bytes);
      return bytes;
    } catch (error) {
      const { code, message } = error as SluiceError;
      // Some hosts answer with a web page for every path.
      const page = optional && code === 'NOT_GGUF';
      if (page || code === 'NOT_FOUND' || (code === 'HTTP_STATUS' && kAbsent.test(message)))
        return message;
      throw error;
    } finally {
      file?.close();
    }
  }

  async read(index: number, offset: number, length: number, weights = false): Promise<Uint8Array> {
    const file = this.#files.get(index)!;
    const bytes = new Uint8Array(length);
    await file.read(offset, bytes);
    if (!offset && !file.held && String.fromCharCode(...bytes.subarray(0, 4)) === 'QSF1') {
      const open = this.#ways.get(index)!;
      const { openQsf } = await this.#platform.qsf();
      this.#ways.set(index, async () => openQsf(await open()));
      this.#files.set(index, await openQsf(file));
    }
    if (!weights)
      this.#events.onProgress({
        phase: 'header',
        bytesLoaded: offset + length,
        bytesTotal: file.size,
      });
    return bytes;
  }

  /** Measured rates of reading and downloading, in bytes per second, for the speed estimate. */
  async rates(): Promise<
    { storeBandwidth: number } & Pick<SpeedEstimate, 'networkBytesPerSecond' | 'downloadSeconds'>
  > {
    const { bytesLocal, bytesTotal } = this.stats;
    const [local, network] = await this.#files.get(0)!.rates();
    const missing = bytesTotal - bytesLocal;
    return {
      storeBandwidth: local || (bytesLocal ? 0 : network),
      ...(network && { networkBytesPerSecond: network }),
      ...((network || !missing) && { downloadSeconds: missing && missing / network }),
    };
  }

  async attach(memory: WebAssembly.Memory, queueAddress: number, first: number): Promise<void> {
    this.#servers.get(first)?.stop();
    this.#servers.delete(first);
    if (!queueAddress) return;
    this.#servers.set(
      first,
      new FillServer(memory, queueAddress, {
        file: (index) => this.#files.get(first + index)!,
        onFilled: (unit, bytes, network) => this.#onFilled(unit, bytes, network),
        onError: (error) => this.#events.onError(error),
      }),
    );
  }

  poke(): void {
    for (const server of this.#servers.values()) void server.serve(false);
  }

  /** Serves the queue until close() or another attach(). For the I/O worker. */
  async serveForever(first: number): Promise<void> {
    const server = this.#servers.get(first)!;
    while (!this.#abort.signal.aborted && server === this.#servers.get(first)) {
      await server.serve(true);
      await server.queue.waitPushed(server.taken, 500);
    }
  }

  retry(): void {
    for (const server of this.#servers.values()) server.retry();
  }

  startDownload(): void {
    this.#downloading = true;
    Promise.all([...this.#files.values()].map((file) => file.download())).then(
      (stored) => {
        this.#downloading = false;
        this.#report(true);
        if (stored.every(Boolean))
          this.#events.onProgress({ phase: 'cached', bytesTotal: this.stats.bytesTotal });
        this.#events.onDownloaded();
      },
      (error: unknown) => {
        this.#downloading = false;
        if (!isAbort(error)) this.#events.onDownloaded(serializeError(error));
      },
    );
  }

  async close(): Promise<void> {
    this.#abort.abort();
    clearTimeout(this.#timer);
    for (const server of this.#servers.values()) server.stop();
    this.#servers.clear();
    for (const file of this.#files.values()) file.close();
    // Files that are still being opened close when they see the abort.
    for (const file of await Promise.allSettled(this.#opening))
      if (file.status === 'fulfilled') file.value.close();
  }

  async reopen(): Promise<void> {
    this.#abort = new AbortController();
    const opened = await Promise.all(
      [...this.#ways].map(async ([index, open]) => [index, await open()] as const),
    );
    for (const [index, file] of opened) this.#files.set(index, file);
  }

  async #open(
    index: number,
    address: string,
    choice: number,
    optional = false,
  ): Promise<ModelFile> {
    const source = this.#sources[Math.floor(index / kDraftFiles)]!;
    if (source.kind === 'files') {
      const file = source.files[choice]!;
      if (typeof file !== 'string') return new BlobFile(file, address);
      address = file;
    }
    if (source.kind === 'path') {
      if (!this.#platform.openPath) throw new SluiceError('NOT_SUPPORTED', 'No file paths here.');
      return this.#platform.openPath(address);
    }
    if (this.#offline && this.#options.cache === 'default') {
      // One file has already waited for the network. An optional file not in the cache is missing.
      const stored = await this.#openUrl(address, 'only').catch((error: unknown) => {
        if (optional) throw error;
        return null;
      });
      if (stored) return stored;
    }
    return this.#openUrl(address);
  }

  async #openUrl(url: string, cache = this.#options.cache): Promise<ModelFile> {
    const { tuning = {} } = this.#options;
    const warn: Warn = (code, message) => {
      this.#offline ||= code === 'NETWORK';
      this.#events.onProgress({ phase: 'warning', code, message });
    };
    const onRetry = (attempt: number, ms: number, message: string): void =>
      this.#events.onProgress({ phase: 'retry', attempt, secondsLeft: ms / 1000, message });
    if (cache !== 'none') {
      this.#backend ??= this.#platform.store(this.#options).catch((error: Error) => {
        if ((error as SluiceError).code === 'INVALID_ARGUMENT') throw error;
        warn('NOT_SUPPORTED', error.message);
        return null;
      });
    }
    const { request } = this.#options;
    if (request)
      this.#fetch ??= this.#platform.hosts().then(({ requestFetch }) => requestFetch(request));
    const opening = RemoteFile.open(url, (await this.#backend) ?? null, {
      cache,
      signal: this.#abort.signal,
      fetcher: { ...tuning, onRetry, fetch: await this.#fetch },
      ...tuning,
      hosts: () => this.#platform.hosts(),
      onWarning: warn,
      onProgress: () => this.#report(false),
    });
    this.#opening.push(opening);
    return opening;
  }

  #onFilled(unit: number, bytes: number, network: boolean): void {
    this.#lastUnit = unit;
    this.#filled += bytes;
    const { bytesTotal } = this.stats;
    if (this.#filled > bytesTotal || performance.now() - this.#lastReport < kReportMs) return;
    this.#lastReport = performance.now();
    this.#events.onProgress({
      phase: 'weights',
      source: network ? 'network' : 'cache',
      bytesLoaded: this.#filled,
      bytesTotal,
      layer: this.#lastUnit,
    });
  }

  /** Reports the download, at most ten times per second. */
  #report(now: boolean): void {
    if (this.#abort.signal.aborted) return;
    const { bytesLocal, bytesFetched, bytesTotal } = this.stats;
    const perSecond = this.#rate.add(bytesFetched);
    if (!this.#downloading && !now) return;
    const due = this.#lastReport + kReportMs - performance.now();
    if (due > 0 && !now) {
      this.#timer ??= setTimeout(() => this.#report(false), due);
      return;
    }
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#lastReport = performance.now();
    const left = perSecond > 0 ? (bytesTotal - bytesLocal) / perSecond : undefined;
    this.#events.onProgress({
      phase: 'download',
      bytesLoaded: bytesLocal,
      bytesTotal,
      bytesPerSecond: perSecond,
      secondsLeft: left,
    });
  }
}
