// The engine's worker: owns the wasm instance, feeds it bytes and steps it. Everything here runs
// between two calls of step(): nothing blocks the event loop for longer than about one layer, so an
// abort is heard at once. One generation runs at a time; further ones wait in line.

import { Step, type EngineBinding, type OpenOptions } from './binding.js';
import { SluiceError, type PlainError } from './errors.js';
import { collectGarbage } from './garbage.js';
import { initialMemory } from './glue.js';
import { QueueView } from './fill-server.js';
import type { Io, IoEvents, IoPlatform } from './io.js';
import { LocalIo } from './io.js';
import { RemoteIo } from './io-worker.js';
import { Generator } from './generator.js';
import { errorOf, Opening } from './opening.js';
import type {
  EngineStats,
  GenerateSpec,
  LoadSpec,
  ModelInfo,
  Port,
  ProgressEvent,
  Role,
  Snapshot,
  WasmSource,
  WorkerEvent,
  WorkerPort,
} from './protocol.js';
import { serveRpc, Transferred, yieldToEvents } from './rpc.js';
import type { SharedFile, SyncFile } from './store.js';
import { instantiateWasm } from './wasm.js';

export interface WasmInstance {
  binding: EngineBinding;
  memory: WebAssembly.Memory;
  /** Opens these files in all threads, in place of those before. Not while the engine's threads run. */
  shareFiles(files: (SharedFile | undefined)[]): Promise<void>;
  /** Ends the threads' workers, for an engine that makes room for another one in this worker. */
  endThreads(): void;
}

/** What the engine's worker needs from its surroundings. */
export interface HostPlatform extends IoPlatform {
  /** True where a memory can be shared between threads. */
  readonly isolated: boolean;
  /** Most bytes that an engine takes when no budget is given. */
  readonly budgetCap: number;
  readonly hardwareThreads: number;
  /** Opens a file beside others that have it open. */
  openShared(file: SharedFile): Promise<SyncFile>;
  /** Compiles the wasm that suits (or the one named by `kernels`). */
  compile(source: WasmSource, kernels: string): Promise<CompiledWasm>;
}

export interface CompiledWasm {
  module: WebAssembly.Module;
  simd128: boolean;
}

export interface Loaded {
  info: ModelInfo;
  snapshot: Snapshot;
  /** A compiled module can be shared with further engines. */
  simd128: boolean;
}

const kHeaderRoom = 1 << 30; // for a header alone
const kLayerOps = 10;
const kSliceMs = 12;
const kSnapshotMs = 100;
const kBlockMs = 10;

export class Host {
  binding!: EngineBinding;
  /** Tokens in the KV cache, in order. */
  history: number[] = [];
  stats: Omit<EngineStats, 'bytesFetched' | 'bytesFromStore' | 'bytesStored' | 'bytesTotal' | 'position' | 'engine'> = {
    promptTokens: 0, cachedTokens: 0, promptMs: 0, generatedTokens: 0, generateMs: 0,
    timeToFirstTokenMs: 0, tokensPerSecond: 0, loadMs: 0, threads: 1, kernels: '',
  };
  info!: ModelInfo;
  layers = 1;
  private wasm: WasmInstance | null = null;
  private loaded!: { spec: LoadSpec; compiled: CompiledWasm };
  private io!: Io;
  private opening!: Opening;
  private queue!: QueueView;
  private ioError: unknown = null;
  private line: Promise<unknown> = Promise.resolve();
  private waiting = 0;
  private readonly running = new Map<number, { cancelled: boolean }>();
  private lastSnapshot = 0;
  private lastYield = 0;
  private lastCompleted = -1;
  private opsPerStep = kLayerOps;
  private closed = false;
  private workers = 0;

  constructor(
    private readonly port: Port,
    private readonly platform: HostPlatform,
  ) {
    serveRpc(port, {
      load: (spec: LoadSpec) => this.load(spec),
      inspect: (spec: LoadSpec) => this.inspect(spec),
      generate: (id: number, spec: GenerateSpec) => this.generate(id, spec),
      cancel: (id: number) => this.cancel(id),
      tokenize: (text: string, addBos: boolean, parseSpecial: boolean) =>
        this.binding.tokenize(text, addBos, parseSpecial).slice(),
      detokenize: (tokens: Int32Array, special: boolean) =>
        this.binding.detokenize(tokens, special),
      logits: (tokens: Int32Array) => this.inLine(() => this.logits(tokens)),
      saveState: () => this.inLine(() => this.saveState()),
      restoreState: (tokens: Int32Array, state: Uint8Array) =>
        this.inLine(() => this.restoreState(tokens, state)),
      setMemoryBudget: (bytes: number) => this.inLine(() => this.setMemoryBudget(bytes)).finally(() => void this.idle()),
      dispose: () => this.dispose(),
    });
  }

  // --- loading -------------------------------------------------------------------------------

  private async load(spec: LoadSpec): Promise<Loaded> {
    const started = performance.now();
    const compiled = await this.prepare(spec);
    const budget = this.budgetFor(spec.memoryBudget);
    const threads = this.threadsFor(spec, budget);
    const options = openOptions(spec, budget, threads);
    this.loaded = { spec, compiled };
    await this.start(spec, compiled, budget, threads, options);
    await this.attach();
    this.io.startDownload();
    this.stats.threads = this.binding.threads();
    this.stats.kernels = this.binding.kernelName();
    this.layers = this.binding.unitStates().length;
    this.stats.loadMs = performance.now() - started;
    this.progress({ phase: 'ready', bytesTotal: this.io.stats.bytesTotal });
    void this.idle();
    return { info: this.info, snapshot: this.snapshot(), simd128: compiled.simd128 };
  }

  /** The header's answer to "will it run here, and how fast", without weights. */
  private async inspect(spec: LoadSpec): Promise<ModelInfo> {
    const compiled = await this.prepare({ ...spec, ioWorker: false });
    const headerRoom = Math.max(spec.memoryBudget, kHeaderRoom);
    const budget = this.budgetFor(spec.memoryBudget);
    const threads = this.threadsFor(spec, budget);
    this.wasm = await this.instantiate(compiled, headerRoom, threads);
    this.binding = this.wasm.binding;
    await this.opening.read(this.wasm);
    const options = openOptions(spec, budget, threads);
    const { storeBandwidth, ...network } = await (this.io as LocalIo).rates();
    const ownReads = spec.ioWorker && this.platform.isolated && this.readsOwn(threads);
    const info = describe(this.binding, { ...options, ownReads, storeBandwidth });
    info.speed = { ...info.speed, ...network };
    return info;
  }

  private async prepare(spec: LoadSpec): Promise<CompiledWasm> {
    const events: IoEvents = {
      onProgress: (progress) => this.progress(progress),
      onError: (error) => (this.ioError = error),
      onDownloaded: (error) => this.post({ event: 'downloaded', error }),
    };
    const separate = spec.ioWorker && this.platform.isolated;
    this.io = separate
      ? new RemoteIo(this.startWorker('io'), spec.source, spec.io, events)
      : new LocalIo(spec.source, spec.io, this.platform, events);
    const compiling = this.platform.compile(spec.wasm, spec.kernels);
    compiling.catch(() => {}); // reported below, unless the file's error comes first
    this.opening = new Opening(this.io, spec.source);
    const opened = await this.opening.first();
    const compiled = await compiling;
    if (!opened) {
      // Budget and threads follow from the model's size, and that from what the directory holds.
      const scout = await this.instantiate(compiled, kHeaderRoom, 1);
      await this.opening.read(scout, true);
      scout.binding.delete();
    }
    return compiled;
  }

  private instantiate(wasm: CompiledWasm, budget: number, threads: number): Promise<WasmInstance> {
    const { openShared } = this.platform;
    return instantiateWasm(wasm, budget, threads - 1, () => this.startWorker('thread'), openShared);
  }

  /** The way to a worker that the owner starts. */
  private startWorker(role: Role): WorkerPort {
    const { port1, port2 } = new MessageChannel();
    const worker = ++this.workers;
    this.post({ event: 'start', role, port: port2 }, [port2]);
    const terminate = (): void => this.post({ event: 'end', worker });
    return Object.assign(port1, { terminate }) as unknown as WorkerPort;
  }

  private async start(
    spec: LoadSpec,
    compiled: CompiledWasm,
    budget: number,
    threads: number,
    options: OpenOptions,
  ): Promise<void> {
    try {
      this.wasm = await this.instantiate(compiled, budget, threads);
      this.binding = this.wasm.binding;
      await this.opening.read(this.wasm);
    } catch (error) {
      const room = error instanceof SluiceError && error.code === 'OUT_OF_MEMORY';
      if (!room || !spec.memoryBudget) throw error;
      await this.refuseBudget(compiled, options);
    }
    this.info = describe(this.binding, options);
    const opening = await this.withFiles(this.wasm!, options);
    if (!this.binding.open(opening)) throw this.engineError();
  }

  /** Several threads read for themselves what is local, where they can share its files. */
  private async withFiles(wasm: WasmInstance, options: OpenOptions): Promise<OpenOptions> {
    const ownReads = this.io.concurrent && this.readsOwn(options.threads);
    if (ownReads) await wasm.shareFiles(this.io.shared);
    return { ...options, ownReads };
  }

  private readsOwn(threads: number): boolean {
    return threads > 1 && this.io.shared.every(Boolean);
  }

  /** Ends the threads of an engine that is no more; its files are closed when this resolves. */
  private async leave({ shareFiles, endThreads }: WasmInstance): Promise<void> {
    await shareFiles([]);
    endThreads();
  }

  /** Not even the header fits: asks an engine with more room what the smallest budget would be. */
  private async refuseBudget(compiled: CompiledWasm, options: OpenOptions): Promise<never> {
    this.wasm = await this.instantiate(compiled, kHeaderRoom, 1);
    this.binding = this.wasm.binding;
    await this.opening.read(this.wasm);
    const { plan } = describe(this.binding, { ...options, memoryBudget: 0 });
    const least = Math.max(plan.minimum, initialMemory);
    throw new SluiceError(
      'BUDGET_TOO_SMALL',
      `a memory budget of ${options.memoryBudget} bytes is too small for this model with a context of ` +
        `${plan.contextLength}: the smallest that works is ${least} bytes`,
    );
  }

  /**
   * Moves to a memory with another maximum: the KV cache comes along, weights are read again. When
   * the new budget is refused everything stays as it was.
   */
  private async setMemoryBudget(bytes: number): Promise<Omit<Loaded, 'simd128'>> {
    this.begin();
    const { spec, compiled } = this.loaded;
    const { contextLength, minimum } = this.info.plan;
    const budget = this.budgetFor(bytes);
    const threads = this.threadsFor(spec, budget);
    const options = openOptions({ ...spec, contextLength }, budget, threads);
    let next: WasmInstance | null = null;
    let info: ModelInfo;
    try {
      next = await this.instantiate(compiled, budget, threads);
      await this.opening.read(next);
      info = describe(next.binding, options);
    } catch (error) {
      next?.endThreads();
      if (!(error instanceof SluiceError) || error.code !== 'OUT_OF_MEMORY') throw error;
      const text = `a memory budget of ${bytes} bytes is too small for this model: the smallest that works is ${minimum} bytes`;
      throw new SluiceError('BUDGET_TOO_SMALL', text);
    }
    const opening = await this.withFiles(next, options);
    const state = this.history.length > 0 ? this.binding.saveState().slice() : null;
    // Without a pause, because texts are tokenized at any time.
    const before = this.wasm!;
    before.binding.delete();
    this.wasm = next;
    this.binding = next.binding;
    this.info = info;
    if (!this.binding.open(opening)) throw this.engineError();
    if (state && !this.binding.restoreState(state)) throw this.engineError();
    await this.leave(before);
    await this.attach();
    this.stats.threads = this.binding.threads();
    this.layers = this.binding.unitStates().length;
    collectGarbage();
    return { info, snapshot: this.snapshot() };
  }

  /** Lets the engine's read requests be served. */
  private async attach(): Promise<void> {
    const { memory } = this.wasm!;
    this.queue = new QueueView(memory, this.binding.fillQueue());
    this.lastCompleted = -1;
    await this.io.attach(memory, this.binding.fillQueue());
  }

  private budgetFor(bytes: number): number {
    return bytes || Math.min(this.platform.budgetCap, Math.ceil(this.opening.bytes * 1.1) + (512 << 20));
  }

  /**
   * Where most of the model streams through the I/O worker, that gets a core: threads that wait for the
   * one that lost its core to reading made a token take half as long again.
   */
  private threadsFor(spec: LoadSpec, budget: number): number {
    if (!this.platform.isolated) return 1;
    const streams = spec.ioWorker && 2 * budget < this.opening.bytes && !this.readsOwn(2);
    return spec.threads || Math.max(1, this.platform.hardwareThreads - (streams ? 1 : 0));
  }

  // --- working -------------------------------------------------------------------------------

  private inLine<T>(work: () => Promise<T> | T): Promise<T> {
    this.waiting++;
    const run = this.line.then(work).finally(() => this.waiting--);
    this.line = run.catch(() => {});
    return run;
  }

  private generate(id: number, spec: GenerateSpec): Promise<unknown> {
    const ticket = { cancelled: false };
    this.running.set(id, ticket);
    return this.inLine(async () => {
      const generator = new Generator(this, spec, ticket, (pieces) =>
        this.post({ event: 'piece', generation: id, pieces }),
      );
      try {
        await this.breathe(); // a cancel that came while waiting in line is heard first
        return await generator.run();
      } finally {
        this.running.delete(id);
        this.publish(true);
        void this.idle();
      }
    });
  }

  private cancel(id: number): void {
    const ticket = this.running.get(id);
    if (ticket) ticket.cancelled = true;
  }

  /**
   * A new piece of work: what failed to load before is worth another try, and steps begin short, since
   * an operation on a prompt may take a hundred times as long as the last one on a token did.
   */
  begin(): void {
    if (this.closed) throw new SluiceError('DISPOSED', 'The engine was disposed of.');
    this.opsPerStep = kLayerOps;
    if (this.ioError === null) return;
    this.ioError = null;
    this.io.retry();
  }

  /**
   * Runs the pass that prefill() began to its end. False when `ticket` was cancelled; the pass is
   * then aborted, and what is in the KV cache is what position() says.
   */
  async pass(ticket: { cancelled: boolean }, onSlice?: () => void): Promise<boolean> {
    for (;;) {
      const before = performance.now();
      if (before - this.lastYield > kSliceMs) {
        onSlice?.();
        this.publish(false);
        await this.breathe();
      }
      if (ticket.cancelled) return false;
      const step = this.binding.step(this.opsPerStep);
      this.io.poke();
      if (step === Step.Done) return true;
      if (step === Step.Failed) throw this.engineError();
      if (step === Step.Blocked) await this.waitForBytes();
      else this.adapt(performance.now() - before);
    }
  }

  /** Logits after each token of a sequence that begins the context: [tokens x vocabulary]. */
  private async logits(tokens: Int32Array): Promise<Transferred> {
    const ticket = { cancelled: false };
    this.begin();
    this.running.set(-1, ticket);
    this.history = [];
    this.binding.rewind(0);
    let out = new Float32Array(0);
    for (let i = 0; i < tokens.length; i++) {
      if (!this.binding.prefill(tokens.subarray(i, i + 1))) throw this.engineError();
      if (!(await this.pass(ticket))) this.begin(); // says that the engine is gone
      const row = this.binding.logits();
      if (i === 0) out = new Float32Array(tokens.length * row.length);
      out.set(row, i * row.length);
    }
    this.history = Array.from(tokens);
    return new Transferred(out, [out.buffer]);
  }

  async breathe(): Promise<void> {
    await yieldToEvents();
    this.lastYield = performance.now();
  }

  /** Keeps one step() at around half a slice, whatever the model's size. */
  private adapt(ms: number): void {
    if (ms < kSliceMs / 4 && this.opsPerStep < 4096) this.opsPerStep *= 2;
    else if (ms > kSliceMs && this.opsPerStep > 1) this.opsPerStep = Math.ceil(this.opsPerStep / 2);
  }

  private async waitForBytes(): Promise<void> {
    const seen = this.queue.completed;
    if (seen !== this.lastCompleted) {
      this.lastCompleted = seen; // something arrived since the engine looked
      return;
    }
    if (this.ioError !== null) throw this.ioError;
    if (this.io.concurrent) this.queue.blockCompleted(seen, kBlockMs);
    else await this.queue.waitCompleted(seen, 5 * kBlockMs);
  }

  /** Between generations: lets weights arrive. */
  private async idle(): Promise<void> {
    while (!this.closed && this.waiting === 0) {
      const { completed } = this.queue; // all that pump() takes over, and perhaps some more
      this.binding.pump();
      this.io.poke();
      if (completed === this.queue.pushed) return this.publish(true);
      await this.queue.waitCompleted(completed, kSnapshotMs);
      await this.breathe();
      this.publish(false);
    }
  }

  private saveState(): Transferred {
    const state = this.binding.saveState().slice();
    const tokens = Int32Array.from(this.history);
    return new Transferred({ tokens, state }, [tokens.buffer, state.buffer]);
  }

  private restoreState(tokens: Int32Array, state: Uint8Array): void {
    if (!this.binding.restoreState(state)) {
      this.history = [];
      this.binding.rewind(0);
      throw this.engineError();
    }
    this.history = Array.from(tokens.subarray(0, this.binding.position()));
  }

  // --- reporting -----------------------------------------------------------------------------

  engineError(): SluiceError {
    return errorOf(this.binding);
  }

  progress(progress: ProgressEvent): void {
    this.post({ event: 'progress', progress });
  }

  private post(event: WorkerEvent, transfer?: Transferable[]): void {
    this.port.postMessage(event, transfer);
  }

  private snapshot(): Snapshot {
    const io = this.io.stats;
    const engine = JSON.parse(this.binding.stats()) as Record<string, number>;
    const stats: EngineStats = {
      ...this.stats,
      bytesFetched: io.bytesFetched,
      bytesFromStore: io.bytesFromStore + engine.ownBytes!,
      bytesStored: io.bytesLocal,
      bytesTotal: io.bytesTotal,
      position: this.binding.position(),
      engine,
    };
    const memory = JSON.parse(this.binding.memory()) as Snapshot['memory'];
    memory.heap = this.wasm!.memory.buffer.byteLength;
    return { stats, memory, units: this.binding.unitStates().slice() };
  }

  /** Sends a snapshot, at most ten a second unless it is the last of something. */
  publish(now: boolean): void {
    const time = performance.now();
    if (this.closed || (!now && time - this.lastSnapshot < kSnapshotMs)) return;
    this.lastSnapshot = time;
    this.post({ event: 'snapshot', snapshot: this.snapshot() });
  }

  /** Closes what is open. The owner ends all of the engine's workers next. */
  private async dispose(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    for (const ticket of this.running.values()) ticket.cancelled = true;
    await this.line;
    await this.io?.close();
    const { wasm } = this;
    this.wasm = null;
    wasm?.binding.delete();
    if (wasm) await this.leave(wasm);
  }
}

/** What the header says; must come before open(), which lets the header go. */
function describe(binding: EngineBinding, options: OpenOptions): ModelInfo {
  const info = JSON.parse(binding.inspect(options)) as ModelInfo & { error?: PlainError };
  if (info.error) throw new SluiceError(info.error.code ?? 'INTERNAL', info.error.message);
  return info;
}

function openOptions(spec: LoadSpec, budget: number, threads: number): OpenOptions {
  const { contextLength, kernels } = spec;
  return { memoryBudget: budget, contextLength, threads, kernels };
}
