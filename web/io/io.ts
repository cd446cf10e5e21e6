// All I/O of one engine behind one interface: opening the model's files, their first bytes for the
// header, the fill queue, the background download and its progress. A smaller model that guesses
// for it has files and a queue beside them, so that both are one download, and one thread reads for
// both. LocalIo does the work in the thread that it is in; RemoteIo (io-worker.ts) is the same
// thing in a worker of its own.

import { isAbort, serializeError, SluiceError, type PlainError } from '../protocol/errors.js';
import type { IoOptions, SourceSpec } from '../protocol/messages.js';
import type { ProgressEvent, SpeedEstimate } from '../protocol/types.js';
import type { Safetensors } from './directory.js';
import type { SharedFile, StoreBackend } from './files.js';
import { FillServer } from './fill-server.js';
import { BlobFile, type FileProgress, type ModelFile } from './model-file.js';
import { RateMeter } from './rate-meter.js';
import { RemoteFile } from './remote-file.js';

/** Files from this number on are those of the model that guesses. */
export const kDraftFiles = 1 << 20;

export interface OpenedFile {
  name: string;
  size: number;
  shared?: SharedFile | undefined;
}

export interface IoStats extends FileProgress {
  bytesTotal: number;
  /** What reading takes beside the engine's memory. */
  held: number;
}

export interface IoEvents {
  onProgress(event: ProgressEvent): void;
  /** A fill failed and waits for retry(). */
  onError(error: unknown): void;
  onDownloaded(error?: PlainError): void;
}

/** What a thread can offer to LocalIo. */
export interface IoPlatform {
  store(options: IoOptions): Promise<StoreBackend | null>;
  openPath?(path: string): ModelFile;
  /** What reads QSF files, fetched when one is opened. */
  qsf(): Promise<{ openQsf(file: ModelFile): Promise<ModelFile> }>;
  /** What reads Hugging Face directories, fetched when one is opened. */
  safetensors(): Promise<Safetensors>;
}

export interface Io {
  /** True when a read can make progress while the engine's thread is blocked. */
  readonly concurrent: boolean;
  readonly stats: IoStats;
  /** Of the model's files opened last, by number: what the engine's threads may open too. */
  readonly shared: (SharedFile | undefined)[];
  /**
   * Opens file `index` of the model: the one at this address, or of chosen files number `choice`.
   */
  openFile(index: number, address: string, choice: number): Promise<OpenedFile>;
  /** Takes bytes that were computed as file `index`, or those that say what it is derived from. */
  addFile(index: number, bytes: Uint8Array, derived?: boolean): Promise<void>;
  /**
   * The whole of a small file beside file `index`, of at most `most` bytes; when it is not there,
   * what says so.
   */
  readText(
    index: number,
    address: string,
    choice: number,
    most: number,
    optional: boolean,
  ): Promise<Uint8Array | string>;
  /** Bytes of an open file, of its header unless they are `weights`. */
  read(index: number, offset: number, length: number, weights?: boolean): Promise<Uint8Array>;
  /** Serves this queue from now on in place of the one before, where its file 0 is file `first`. */
  attach(memory: WebAssembly.Memory, queueAddress: number, first: number): Promise<void>;
  /** The engine may have pushed requests. */
  poke(): void;
  /** Tries the failed requests again. */
  retry(): void;
  startDownload(): void;
  close(): Promise<void>;
  /** Opens again what was open when it was closed; attach() comes next. */
  reopen(): Promise<void>;
}

const kReportMs = 100;
/** The number of the first file of the same model. */
const firstOf = (index: number): number => (index < kDraftFiles ? 0 : kDraftFiles);
const kAbsent = / answered 4(0[134]|10)\b/; // what hubs and stores say of a file that is not there

export class LocalIo implements Io {
  readonly concurrent = false;
  readonly #files = new Map<number, ModelFile>();
  readonly #ways = new Map<number, () => Promise<ModelFile>>();
  readonly #opening: Promise<ModelFile>[] = [];
  #abort = new AbortController();
  #backend: Promise<StoreBackend | null> | undefined;
  readonly #servers = new Map<number, FillServer>();
  #offline = false;
  #downloading = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #rate = new RateMeter();
  #lastReport = 0;
  #filled = 0;
  #lastUnit = 0;
  readonly #sources: SourceSpec[];
  readonly #options: IoOptions;
  readonly #platform: IoPlatform;
  readonly #events: IoEvents;

  /** `sources`: of the model, and of the one that guesses for it. */
  constructor(sources: SourceSpec[], options: IoOptions, platform: IoPlatform, events: IoEvents) {
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
      if (code === 'NOT_FOUND' || (code === 'HTTP_STATUS' && kAbsent.test(message))) return message;
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

  /** What reading and fetching have shown so far, for an estimate. */
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

  /** Serves for ever, for a thread that has nothing else to do. */
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
    // Those that are being opened give the store back when they hear of the abort.
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
    const source = this.#sources[firstOf(index) && 1]!;
    if (source.kind === 'blob') return new BlobFile(source.blobs[choice]!, address);
    if (source.kind === 'path') {
      if (!this.#platform.openPath) throw new SluiceError('NOT_SUPPORTED', 'No file paths here.');
      return this.#platform.openPath(address);
    }
    if (this.#offline && this.#options.cache === 'default') {
      // Not worth the patience that one file had; what was never stored counts as not there.
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
    const warn = (code: string, message: string): void => {
      this.#offline ||= code === 'NETWORK';
      this.#events.onProgress({ phase: 'warning', code, message });
    };
    if (cache !== 'none') {
      this.#backend ??= this.#platform.store(this.#options).catch((error: Error) => {
        warn('NOT_SUPPORTED', error.message);
        return null;
      });
    }
    const opening = RemoteFile.open(url, (await this.#backend) ?? null, {
      cache,
      signal: this.#abort.signal,
      fetcher: tuning,
      ...tuning,
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

  /** Reports the download, at most ten times a second. */
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
