// Sends the worker's events to its owner: progress, generated tokens, and snapshots of statistics,
// memory and unit states. Snapshots are sent at most ten times per second, except when work ends.

import type { Gpu } from '../gpu/gpu.js';
import type { Io } from '../io/io.js';
import type { OwnStats } from '../protocol/calls.js';
import type { Port, Snapshot, WorkerEvent } from '../protocol/messages.js';
import type { EngineStats, ProgressEvent } from '../protocol/types.js';
import type { EngineBinding } from './binding.js';

const kSnapshotMs = 100;

/** The engine's parts that are reported on. */
export interface Reported {
  binding: EngineBinding;
  memory: WebAssembly.Memory;
  io: Io;
  gpu?: Gpu | null | undefined;
}

export class Reporter {
  stats: OwnStats = {
    promptTokens: 0,
    cachedTokens: 0,
    promptMs: 0,
    generatedTokens: 0,
    generateMs: 0,
    timeToFirstTokenMs: 0,
    tokensPerSecond: 0,
    bytesFetched: 0,
    bytesFromCache: 0,
    loadMs: 0,
    threads: 1,
    kernels: '',
    device: 'wasm',
  };
  #last = 0;
  readonly #port: Port;

  constructor(port: Port) {
    this.#port = port;
  }

  post(event: WorkerEvent, transfer?: Transferable[]): void {
    this.#port.postMessage(event, transfer);
  }

  readonly progress = (progress: ProgressEvent): void => this.post({ event: 'progress', progress });

  /** Current statistics. */
  counters({ binding, io, gpu }: Reported): EngineStats {
    const { timeBreakdown, ...rest } = JSON.parse(binding.stats()) as Partial<EngineStats>;
    const engine = rest as EngineStats['engine'];
    return {
      ...this.stats,
      ...gpu?.device,
      bytesFetched: this.stats.bytesFetched + io.stats.bytesFetched,
      bytesFromCache: this.stats.bytesFromCache + io.stats.bytesFromCache + engine['ownBytes']!,
      bytesCached: io.stats.bytesLocal,
      bytesTotal: io.stats.bytesTotal,
      kvTokens: binding.position(),
      draftedTokens: engine['drafted']!,
      acceptedTokens: engine['accepted']!,
      forwardPasses: engine['passes']!,
      timeBreakdown,
      engine: { ...engine, ...gpu?.counts() },
    };
  }

  snapshot(engine: Reported): Snapshot {
    const memory = JSON.parse(engine.binding.memory()) as Snapshot['memory'];
    memory.heap = engine.memory.buffer.byteLength;
    memory.gpu = engine.gpu?.executor.bytes ?? 0;
    memory.kvOnGpu = engine.gpu?.executor.kvBytes ?? 0;
    return { stats: this.counters(engine), memory, units: engine.binding.unitStates().slice() };
  }

  publish(engine: Reported, now: boolean): void {
    const time = performance.now();
    if (!now && time - this.#last < kSnapshotMs) return;
    this.#last = time;
    this.post({ event: 'snapshot', snapshot: this.snapshot(engine) });
  }
}
