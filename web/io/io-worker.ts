// The I/O worker: a LocalIo in its own thread, which reads directly into the shared wasm memory
// while the engine computes. RemoteIo is its owner's side. Used with cross-origin isolation, which
// shared memory requires.

import { deserializeError, serializeError, type PlainError } from '../protocol/errors.js';
import type { IoOptions, Port, WorkerPort } from '../protocol/messages.js';
import { RpcClient, serveRpc, Transferred } from '../protocol/rpc.js';
import type { ProgressEvent } from '../protocol/types.js';
import type { SharedFile } from './files.js';
import { QueueView } from './fill-server.js';
import {
  kDraftFiles,
  LocalIo,
  type Io,
  type IoEvents,
  type IoPlatform,
  type IoStats,
  type OpenedFile,
  type Sources,
} from './io.js';

/** Calls of Io as messages. */
type IoCalls = { start(sources: Sources, options: IoOptions): void } & {
  [
    Name in
      | 'openFile'
      | 'addFile'
      | 'readText'
      | 'read'
      | 'attach'
      | 'poke'
      | 'retry'
      | 'startDownload'
      | 'close'
      | 'reopen'
  ]: (...args: Parameters<Io[Name]>) => Awaited<ReturnType<Io[Name]>>;
};

type IoEvent =
  | { event: 'progress'; progress: ProgressEvent }
  | { event: 'error'; error: PlainError }
  | { event: 'downloaded'; error?: PlainError | undefined }
  | { event: 'stats' };
type IoMessage = { stats: IoStats } & IoEvent;

const kStatsMs = 100;

const moved = <T>(bytes: T): T | Transferred<T> =>
  bytes instanceof Uint8Array ? new Transferred(bytes, [bytes.buffer]) : bytes;

/** The worker's end. */
export function runIoWorker(port: Port, platform: IoPlatform): void {
  let io: LocalIo;
  let reporting: ReturnType<typeof setInterval> | undefined;
  const post = (message: IoEvent): void =>
    port.postMessage({ ...message, stats: io.stats } satisfies IoMessage);
  const events: IoEvents = {
    onProgress: (progress) => post({ event: 'progress', progress }),
    onError: (error) => post({ event: 'error', error: serializeError(error) }),
    onDownloaded: (error) => post({ event: 'downloaded', error }),
  };
  serveRpc<IoCalls>(port, {
    start: (sources, options) => {
      io = new LocalIo(sources, options, platform, events);
    },
    openFile: (index, address, choice) => io.openFile(index, address, choice),
    addFile: async (index, bytes, derived) => {
      await io.addFile(index, bytes, derived);
      post({ event: 'stats' });
    },
    readText: async (index, address, choice, most, optional) =>
      moved(await io.readText(index, address, choice, most, optional)),
    read: async (index, offset, length, weights) =>
      moved(await io.read(index, offset, length, weights)),
    attach: async (memory, address, first) => {
      await io.attach(memory, address, first);
      if (address) void io.serveForever(first);
      let last = '';
      clearInterval(reporting);
      reporting = setInterval(() => {
        const now = JSON.stringify(io.stats);
        if (now !== last) post({ event: 'stats' });
        last = now;
      }, kStatsMs);
    },
    poke: () => io.poke(),
    retry: () => io.retry(),
    startDownload: () => io.startDownload(),
    close: () => io.close(),
    reopen: () => io.reopen(),
  });
}

/** The owner's end, with the interface of LocalIo. */
export class RemoteIo implements Io {
  readonly concurrent = true;
  stats: IoStats = { bytesLocal: 0, bytesFetched: 0, bytesFromCache: 0, bytesTotal: 0, held: 0 };
  readonly shared: (SharedFile | undefined)[] = [];
  readonly #rpc: RpcClient<IoCalls, IoMessage>;
  readonly #queues = new Map<number, { queue: QueueView; poked: number }>();

  constructor(port: WorkerPort, sources: Sources, options: IoOptions, events: IoEvents) {
    const onEvent = (message: IoMessage): void => {
      this.stats = message.stats;
      if (message.event === 'progress') events.onProgress(message.progress);
      if (message.event === 'error') events.onError(deserializeError(message.error));
      if (message.event === 'downloaded') events.onDownloaded(message.error);
    };
    this.#rpc = new RpcClient(port, onEvent, (error) => events.onError(error));
    this.#rpc.call('start', sources, options).catch(() => {});
  }

  async openFile(index: number, address: string, choice: number): Promise<OpenedFile> {
    const file = await this.#rpc.call('openFile', index, address, choice);
    if (index < kDraftFiles) this.shared[index] = file.shared;
    return file;
  }
  addFile(index: number, bytes: Uint8Array, derived?: boolean): Promise<void> {
    return this.#rpc.call('addFile', index, bytes, derived);
  }
  readText(
    index: number,
    address: string,
    choice: number,
    most: number,
    optional: boolean,
  ): Promise<Uint8Array | string> {
    return this.#rpc.call('readText', index, address, choice, most, optional);
  }
  read(index: number, offset: number, length: number, weights?: boolean): Promise<Uint8Array> {
    return this.#rpc.call('read', index, offset, length, weights);
  }
  async attach(memory: WebAssembly.Memory, queueAddress: number, first: number): Promise<void> {
    this.#queues.delete(first);
    await this.#rpc.call('attach', memory, queueAddress, first);
    if (!queueAddress) return;
    this.#queues.set(first, { queue: new QueueView(memory, queueAddress), poked: 0 });
    this.poke();
  }

  poke(): void {
    for (const seen of this.#queues.values()) {
      if (seen.queue.pushed === seen.poked) continue;
      seen.poked = seen.queue.pushed;
      seen.queue.notifyPushed();
      if (QueueView.needsMessages) this.#fire('poke');
    }
  }
  retry(): void {
    this.#fire('retry');
  }
  startDownload(): void {
    this.#fire('startDownload');
  }

  /** Closes the files. The worker itself is terminated together with the engine's. */
  async close(): Promise<void> {
    await this.#rpc.call('close').catch(() => {});
  }
  reopen(): Promise<void> {
    return this.#rpc.call('reopen');
  }

  #fire(method: 'poke' | 'retry' | 'startDownload'): void {
    this.#rpc.call(method).catch(() => {}); // a dead worker has been reported already
  }
}
