// Opening a model in the engine's worker: its files, the wasm that suits, the header, the plan, and
// an engine that can take work. What the budget is, and how many threads compute, is decided here,
// for Engine.inspect and Engine.load alike.

import type { Gpu, GpuModule } from '../gpu/gpu.js';
import type { SharedFile, SwapFiles, SyncFile } from '../io/files.js';
import { RemoteIo } from '../io/io-worker.js';
import { kDraftFiles, LocalIo, type Io, type IoEvents, type IoPlatform } from '../io/io.js';
import { SluiceError, type PlainError } from '../protocol/errors.js';
import type { AdapterSpec, LoadSpec, Role, WasmSource, WorkerPort } from '../protocol/messages.js';
import type { MemoryPlan, ModelInfo } from '../protocol/types.js';
import type { EngineBinding, OpenOptions } from './binding.js';
import { initialMemory } from './glue.js';
import { errorOf, HeaderLoader } from './header-loader.js';
import type { Reporter } from './reporter.js';
import { instantiateWasm, kMaxBudget, type WasmInstance } from './wasm.js';

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
  compile(source: WasmSource, kernels: string): Promise<WebAssembly.Module>;
  /** What drives GPUs, fetched when it is asked for. */
  gpu(): Promise<GpuModule>;
  /** Where sequences wait; null: there is no such place. */
  swapFiles(): Promise<SwapFiles | null>;
}

/** An engine that can take work. */
export interface Opened {
  wasm: WasmInstance;
  binding: EngineBinding;
  memory: WebAssembly.Memory;
  compiled: WebAssembly.Module;
  info: ModelInfo;
  io: Io;
  gpu?: Gpu | null;
}

const kHeaderRoom = 1 << 30;

export class Loading {
  #io!: Io;
  #opening!: HeaderLoader;
  /** Of the model that guesses. */
  #draft: HeaderLoader | null = null;
  readonly #spec: LoadSpec;
  readonly #platform: HostPlatform;
  readonly #reporter: Reporter;
  readonly #onError: (error: unknown) => void;

  constructor(
    spec: LoadSpec,
    platform: HostPlatform,
    reporter: Reporter,
    onError: (error: unknown) => void,
  ) {
    this.#spec = spec;
    this.#platform = platform;
    this.#reporter = reporter;
    this.#onError = onError;
  }

  /** What is open by now is closed by closing `opened` when this rejects. */
  async load(opened: (io: Io) => void): Promise<Opened> {
    const spec = this.#spec;
    const found = spec.device === 'wasm' ? null : await (await this.#platform.gpu()).findGpu(spec);
    const compiled = await this.#prepare(opened, spec.ioWorker, found ? 'gpu' : spec.kernels);
    const budget = this.budget();
    const threads = this.threads(budget);
    const options = openOptions(spec, budget, threads);
    let wasm!: WasmInstance;
    try {
      const room = this.#room <= budget;
      wasm = await this.#instantiate(compiled, room ? budget : 0, threads);
      await this.#read(wasm);
    } catch (error) {
      const room = error instanceof SluiceError && error.code === 'OUT_OF_MEMORY';
      if (!room || !spec.memoryBudget) throw error;
      await this.#refuseBudget(compiled, options);
    }
    const { binding, memory } = wasm;
    options.held = this.#io.stats.held;
    let info = await this.#describe(binding, options);
    if (found?.beside && !spec.memoryBudget) {
      options.memoryBudget = Math.min(budget, info.plan.minimum + found.beside);
      info = await this.#describe(binding, options);
    }
    const directReads = this.#io.concurrent && this.#readsOwn(threads);
    if (directReads) await wasm.shareFiles(this.#io.shared);
    if (!binding.open({ ...options, directReads })) {
      const error = errorOf(binding);
      await wasm.shareFiles([]);
      throw error;
    }
    this.#opening.over();
    this.#draft?.over();
    binding.forgetAdapters();
    const io = this.#io;
    const gpu = await found?.open({ binding, memory, spec, io, progress: this.#reporter.progress });
    return { wasm, binding, memory, compiled, info, io, gpu };
  }

  /** The header's answer to "will it run here, and how fast", without weights. */
  async inspect(opened: (io: Io) => void): Promise<ModelInfo> {
    const spec = this.#spec;
    const compiled = await this.#prepare(opened, false);
    const budget = this.budget();
    const headerRoom = Math.max(budget, kHeaderRoom);
    const threads = this.threads(budget);
    const wasm = await this.#instantiate(compiled, headerRoom, threads);
    await this.#read(wasm);
    const { storeBandwidth, ...network } = await (this.#io as LocalIo).rates();
    const directReads = spec.ioWorker && this.#platform.isolated && this.#readsOwn(threads);
    const given = {
      ...openOptions(spec, budget, threads),
      held: this.#io.stats.held,
      directReads,
      storeBandwidth,
    };
    const info = await this.#describe(wasm.binding, given);
    info.speed = { ...info.speed, ...network };
    if (spec.device !== 'wasm') {
      const start = async (kernels: string): Promise<WasmInstance> =>
        this.#instantiate(await this.#platform.compile(spec.wasm, kernels), headerRoom, threads);
      info.device = await (
        await this.#platform.gpu()
      ).advise(spec, info, given, this.#opening, start);
    }
    return info;
  }

  async #prepare(
    opened: (io: Io) => void,
    ioWorker: boolean,
    kernels = this.#spec.kernels,
  ): Promise<WebAssembly.Module> {
    const spec = this.#spec;
    const platform = this.#platform;
    this.#io = this.#makeIo(ioWorker);
    opened(this.#io);
    const compiling = platform.compile(spec.wasm, kernels);
    compiling.catch(() => {}); // reported below, unless the file's error comes first
    this.#opening = new HeaderLoader(this.#io, spec.source);
    await this.#opening.first(platform, spec.memoryBudget);
    if (spec.draftSource) {
      const draft = (this.#draft = new HeaderLoader(this.#io, spec.draftSource, kDraftFiles));
      await ofDraft(draft.first(platform, spec.memoryBudget));
    }
    return compiling;
  }

  /**
   * Has the headers in the engine's memory: the draft's last, so that what is taken by then counts
   * both.
   */
  async #read(wasm: WasmInstance): Promise<void> {
    await this.#opening.read(wasm);
    if (this.#draft)
      await ofDraft(this.#draft.read({ binding: wasm.binding.draft(), memory: wasm.memory }));
  }

  /** Memory that describing directories has taken, one after the other. */
  get #room(): number {
    return Math.max(this.#opening.room, this.#draft?.room ?? 0);
  }

  #makeIo(ioWorker: boolean): Io {
    const spec = this.#spec;
    const platform = this.#platform;
    const reporter = this.#reporter;
    const onError = this.#onError;
    const sources = spec.draftSource ? [spec.source, spec.draftSource] : [spec.source];
    const events: IoEvents = {
      onProgress: reporter.progress,
      onError,
      onDownloaded: (error) => reporter.post({ event: 'downloaded', error }),
    };
    return ioWorker && platform.isolated
      ? new RemoteIo(this.#startWorker('io'), sources, spec.io, events)
      : new LocalIo(sources, spec.io, platform, events);
  }

  #instantiate(wasm: WebAssembly.Module, budget: number, threads: number): Promise<WasmInstance> {
    const { openShared } = this.#platform;
    return instantiateWasm(
      wasm,
      budget,
      threads - 1,
      () => this.#startWorker('thread'),
      openShared,
    );
  }

  /** The way to a worker that the owner starts, and ends with this one. */
  #startWorker(role: Role): WorkerPort {
    const { port1, port2 } = new MessageChannel();
    this.#reporter.post({ event: 'start', role, port: port2 }, [port2]);
    return Object.assign(port1, { terminate() {} }) as unknown as WorkerPort;
  }

  #readsOwn(threads: number): boolean {
    return threads > 1 && this.#io.shared.every(Boolean);
  }

  /** Not even the header fits: asks an engine with more room what the smallest budget would be. */
  async #refuseBudget(compiled: WebAssembly.Module, options: OpenOptions): Promise<never> {
    const wasm = await this.#instantiate(compiled, kHeaderRoom, 1);
    await this.#read(wasm);
    const { plan } = await this.#describe(wasm.binding, {
      ...options,
      memoryBudget: 0,
      held: this.#io.stats.held,
    });
    plan.minimum = Math.max(plan.minimum, initialMemory);
    throw tooSmall(options.memoryBudget, plan);
  }

  /** What the header says; must come before open(), which lets the header go. */
  async #describe(binding: EngineBinding, options: OpenOptions): Promise<ModelInfo> {
    await stageAdapters(binding, this.#spec.lora);
    const info = JSON.parse(binding.inspect(options)) as ModelInfo & { error?: PlainError };
    if (info.error) throw new SluiceError(info.error.code ?? 'INTERNAL', info.error.message);
    info.plan.minimum = Math.max(info.plan.minimum, this.#room);
    return info;
  }

  /** What was asked for, or what the device can give; no more than a wasm memory can have. */
  budget(bytes = this.#spec.memoryBudget): number {
    const files = this.#opening.bytes + (this.#draft ? this.#draft.bytes : 0);
    const chosen = Math.min(this.#platform.budgetCap, Math.ceil(files * 1.1) + (512 << 20));
    return Math.min(bytes || chosen, kMaxBudget);
  }

  /**
   * Where most of the model streams through the I/O worker, that gets a core: threads that wait for
   * the one that lost its core to reading made a token take half as long again.
   */
  threads(budget: number): number {
    const spec = this.#spec;
    const platform = this.#platform;
    if (!platform.isolated) return 1;
    const streams = spec.ioWorker && 2 * budget < this.#opening.bytes && !this.#readsOwn(2);
    return spec.threads || Math.max(1, platform.hardwareThreads - (streams ? 1 : 0));
  }
}

/** Adapters for what the binding does next. */
export async function stageAdapters(binding: EngineBinding, lora: AdapterSpec[]): Promise<void> {
  binding.forgetAdapters();
  for (const { name, data, scale } of lora) {
    if (binding.adapter(new Uint8Array(await data.arrayBuffer()), scale)) continue;
    const { code, message } = errorOf(binding);
    throw new SluiceError(code, `${name}: ${message}`);
  }
}

export function tooSmall(
  budget: number,
  { minimum, contextLength, draft }: MemoryPlan,
): SluiceError {
  const what = draft ? 'the model and its draft' : `this model with a context of ${contextLength}`;
  const text =
    `a memory budget of ${budget} bytes is too small for ${what}: the smallest that works is ` +
    `${minimum} bytes`;
  return new SluiceError('BUDGET_TOO_SMALL', text);
}

/** What is done for the model that guesses: its errors say so. */
function ofDraft(work: Promise<void>): Promise<void> {
  return work.catch((error: unknown) => {
    if (error instanceof SluiceError) error.message = `The draft model: ${error.message}`;
    throw error;
  });
}

function openOptions(spec: LoadSpec, budget: number, threads: number): OpenOptions {
  const {
    contextLength,
    kvType,
    kvPolicy,
    kvSinks,
    kvCapacity,
    skipLayersRatio,
    headClusters,
    kernels,
    structuredOutput,
    draft,
    parallel,
  } = spec;
  return {
    memoryBudget: budget,
    contextLength,
    kvType,
    kvPolicy,
    kvSinks,
    kvCapacity,
    skipLayersRatio,
    headClusters,
    threads,
    kernels,
    structuredOutput,
    draft,
    parallel,
  };
}
