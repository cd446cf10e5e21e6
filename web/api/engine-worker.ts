// The worker that has an engine's model: calls in turns, the last snapshot that it sent, and the
// move to a new worker for another budget.

import { persistOnce } from '../io/store-manager.js';
import type { EngineCalls } from '../protocol/calls.js';
import { abortable, deserializeError, SluiceError } from '../protocol/errors.js';
import type { LoadSpec, Snapshot, WorkerEvent } from '../protocol/messages.js';
import type { InspectOptions } from '../protocol/options.js';
import { Turns } from '../protocol/turns.js';
import type { ModelInfo } from '../protocol/types.js';
import { ActiveCalls } from './active-calls.js';
import { startWorker } from './start.js';
import { WorkerClient } from './worker-client.js';

const disposed = (): SluiceError => new SluiceError('DISPOSED', 'The engine was disposed of.');

export class EngineWorker {
  /** What the model was loaded with. */
  spec: LoadSpec;
  /** Keeps the module alive, so that V8 does not compile the same bytes again for other engines. */
  module!: WebAssembly.Module;
  /** Last snapshot of the worker. Set once the model is loaded. */
  snapshot!: Snapshot;
  /** Calls, and changes of budget and adapters, in order. */
  readonly turns = new Turns();
  readonly calls = new ActiveCalls(this);
  /** Resolves when the complete file is in the model cache. */
  readonly downloaded: Promise<void>;
  readonly options: InspectOptions;
  /** The worker that has the model, and the one that is about to replace it. */
  #link: WorkerClient;
  #next: WorkerClient | null = null;
  /** Ends the requests that this thread makes for the worker. */
  readonly #close: (() => void) | undefined;
  #disposing: Promise<void> | null = null;
  #stored = false;
  #onDownloaded!: { resolve: () => void; reject: (error: unknown) => void };

  constructor(options: InspectOptions, spec: LoadSpec, close: (() => void) | undefined) {
    this.options = options;
    this.spec = spec;
    this.#close = close;
    this.downloaded = new Promise((resolve, reject) => (this.#onDownloaded = { resolve, reject }));
    this.downloaded.catch(() => {});
    this.#link = this.#connect();
  }

  /** A call to the worker that has the model, in a turn. */
  ask<Name extends keyof EngineCalls>(
    method: Name,
    ...args: Parameters<EngineCalls[Name]>
  ): Promise<ReturnType<EngineCalls[Name]>> {
    return this.#link.rpc.call(method, ...args);
  }

  /**
   * Moves the model to a new worker, whose memory has the new maximum. `moved` gets what it reports
   * of the model. If this fails, everything is as before.
   */
  async move(
    memoryBudget: number,
    signal: AbortSignal | undefined,
    before: ModelInfo,
    moved: (info: ModelInfo) => void,
  ): Promise<void> {
    const link = this.#link;
    const left = await link.rpc.call('release');
    try {
      if (this.#disposing) throw disposed();
      const next = (this.#next = this.#connect());
      const spec = this.#specAt(memoryBudget, before);
      const { info } = await abortable({ signal }, () => next.rpc.call('load', spec, true));
      if (info.bytes !== before.bytes || info.name !== before.name)
        throw new SluiceError('SOURCE_CHANGED', 'The model has changed; load it again.');
      moved(info);
      this.#link = next;
    } catch (error) {
      await this.#next?.end(error);
      await link.rpc.call('resume').catch(() => {}); // if it fails, the next call retries
      throw error;
    } finally {
      this.#next = null;
    }
    // Ends the old worker before the new one reads weights, so that only one budget is filled.
    await link.end(new SluiceError('WORKER_LOST', 'The engine has moved to another worker.'), true);
    this.snapshot = await this.#link.rpc.call('begin', left, !this.#stored);
  }

  /** What a worker with another budget loads: the same model, context and KV cache. */
  #specAt(memoryBudget: number, { plan }: ModelInfo): LoadSpec {
    const { spec } = this;
    const { cache } = spec.io;
    const { bytesCached, bytesTotal, gpuKernels } = this.snapshot.stats;
    return {
      ...spec,
      memoryBudget,
      device: spec.device === 'wasm' ? spec.device : 'auto', // a GPU may be lost by now
      gpuKernels, // a new measurement could choose others
      engine: {
        ...spec.engine,
        contextLength: plan.contextLength,
        contextFrom: plan.contextFrom,
        kvType: plan.kvType,
        kvCapacity: (spec.engine.kvPolicy ?? 'full') !== 'full' ? plan.kvCapacity : 0,
      },
      wasm: { ...spec.wasm, module: this.module },
      // A complete file needs no network, and a file that was just reloaded is up to date.
      io: {
        ...spec.io,
        cache: bytesCached === bytesTotal ? 'only' : cache === 'reload' ? 'default' : cache,
      },
    };
  }

  /** Ends the worker. Calls after the first have no effect. */
  dispose(): Promise<void> {
    return (this.#disposing ??= this.#shutDown());
  }

  async #shutDown(): Promise<void> {
    const gone = disposed();
    this.#onGone(gone);
    await Promise.all([this.#next?.end(gone), this.#link.end(gone)]);
  }

  #connect(): WorkerClient {
    const link: WorkerClient = new WorkerClient(
      (first) =>
        startWorker(
          this.options.workerUrl,
          this.options.tuning?.greetMs,
          first && this.spec.device !== 'wasm',
        ),
      (event) => this.#onEvent(event),
      (error) => {
        if (link === this.#link) this.#onGone(error);
      },
    );
    return link;
  }

  #onEvent(message: WorkerEvent): void {
    switch (message.event) {
      case 'snapshot':
        this.snapshot = message.snapshot;
        break;
      case 'downloaded':
        this.#stored = !message.error;
        if (message.error) this.#onDownloaded.reject(deserializeError(message.error));
        else this.#onDownloaded.resolve();
        break;
      case 'progress':
        if (message.progress.phase === 'cached') persistOnce();
        this.options.onProgress?.(message.progress);
        break;
      default:
        this.calls.receive(message);
    }
  }

  #onGone(error: unknown): void {
    this.#close?.();
    this.#onDownloaded.reject(error);
    this.turns.end(error);
    this.calls.fail(error);
  }
}
