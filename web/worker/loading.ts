// Loads a model in the engine's worker: opens its files, compiles a wasm binary, reads the header,
// plans and allocates memory. The default budget and thread count are decided here, for
// Engine.inspect and Engine.load alike.

import type { Gpu, GpuModule } from '../gpu/gpu.js';
import type { SharedFile, SwapFiles, SyncFile } from '../io/files.js';
import { RemoteIo } from '../io/io-worker.js';
import {
  kDraftFiles,
  kProjectorFiles,
  LocalIo,
  type Io,
  type IoEvents,
  type IoPlatform,
} from '../io/io.js';
import { SluiceError, type PlainError } from '../protocol/errors.js';
import type { AdapterSpec, LoadSpec, Role, WasmSource, WorkerPort } from '../protocol/messages.js';
import type { KvType, ModelInfo } from '../protocol/types.js';
import type { EngineBinding, OpenOptions } from './binding.js';
import { errorOf, HeaderLoader } from './header-loader.js';
import type { Reporter } from './reporter.js';
import type { PicturesModule } from './pictures/types.js';
import { instantiateWasm, kMaxBudget, type EngineWasm } from './engine-wasm.js';

/** Platform functions of the engine's worker. */
export interface HostPlatform extends IoPlatform {
  /** Memory can be shared between threads. */
  readonly isolated: boolean;
  /** Maximum of the default budget, in bytes. */
  readonly budgetCap: number;
  readonly hardwareThreads: number;
  /** Opens a file that other threads also have open. */
  openShared(file: SharedFile): Promise<SyncFile>;
  /** Compiles the binary for this machine, or the one that `kernels` names. */
  compile(source: WasmSource, kernels: string): Promise<WebAssembly.Module>;
  /** The WebGPU module, loaded on first use. */
  gpu(): Promise<GpuModule>;
  /** The module for pictures, loaded on first use. */
  pictures(): Promise<PicturesModule>;
  /** Files for swapped-out sequences; null: not available. */
  swapFiles(): Promise<SwapFiles | null>;
}

/** An engine that is ready for work. */
export interface Opened {
  wasm: EngineWasm;
  binding: EngineBinding;
  memory: WebAssembly.Memory;
  compiled: WebAssembly.Module;
  info: ModelInfo;
  io: Io;
  gpu?: Gpu | null;
  /** Only the GPU has the KV cache. */
  kvOnGpu: boolean;
}

const kHeaderRoom = 1 << 30;
/** Types of a KV cache that the GPU can have alone. */
const kOnGpu = new Set(['f16', 'q8_0', 'q4_0']);
const evicts = ({ kvPolicy }: LoadSpec['engine']): boolean => !!kvPolicy && kvPolicy !== 'full';

export class Loading {
  #io!: Io;
  #opening!: HeaderLoader;
  /** Header of the draft model. */
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

  /** `opened` receives the Io as soon as it exists. The caller closes it if this rejects. */
  async load(opened: (io: Io) => void): Promise<Opened> {
    const spec = this.#spec;
    const found = spec.device === 'wasm' ? null : await (await this.#platform.gpu()).findGpu(spec);
    const compiled = await this.#prepare(
      opened,
      spec.ioWorker,
      found ? 'gpu' : spec.engine.kernels,
    );
    const budget = this.budget();
    const threads = this.threads(budget);
    const options = this.#openOptions(budget, threads);
    let wasm!: EngineWasm;
    try {
      wasm = await this.#instantiate(compiled, budget, threads);
      await this.#read(wasm);
    } catch (error) {
      const room = error instanceof SluiceError && error.code === 'OUT_OF_MEMORY';
      if (!room || !spec.memoryBudget) throw error;
      await this.#refuseBudget(compiled, options, !!found?.beside);
      throw error;
    }
    const { binding, memory } = wasm;
    options.held = this.#io.stats.held;
    let info = await this.#plan(binding, options, !!found?.beside);
    if (found?.beside && !spec.memoryBudget) {
      // Half of what is above the minimum is at least the draft model's.
      const draft = 2 * (this.#draft?.bytes ?? 0);
      options.memoryBudget = Math.min(budget, info.plan.minimum + found.beside + draft);
      info = await this.#describe(binding, options);
    }
    const directReads = this.#io.concurrent && this.#readsOwn(threads);
    if (directReads) await wasm.shareFiles(this.#io.shared);
    if (!binding.open({ ...options, directReads })) {
      const error = errorOf(binding);
      await wasm.shareFiles([]);
      throw error;
    }
    wasm.pictures?.attach();
    this.#opening.over();
    this.#draft?.over();
    binding.forgetAdapters();
    if (info.plan.contextFrom === 'budget' && !spec.engine.contextLength)
      this.#reporter.progress({
        phase: 'warning',
        code: 'CONTEXT_REDUCED',
        message: `The memory budget limits the context to ${info.plan.kvCapacity} tokens.`,
      });
    const io = this.#io;
    const kvOnGpu = options.kvOnGpu === true;
    const { progress } = this.#reporter;
    const gpu = await found?.open({ binding, memory, spec, io, kvOnGpu, progress });
    return { wasm, binding, memory, compiled, info, io, gpu, kvOnGpu };
  }

  /** Metadata, memory plan and speed estimate, from the header only. */
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
    const given: OpenOptions = {
      ...this.#openOptions(budget, threads),
      held: this.#io.stats.held,
      directReads,
      storeBandwidth,
    };
    const onGpu = spec.device === 'webgpu' && !spec.gpuLayers;
    const info = await this.#plan(wasm.binding, given, onGpu, async () => {
      const compiled = await this.#platform.compile(spec.wasm, 'gpu');
      const gpu = await this.#instantiate(compiled, headerRoom, threads);
      await this.#read(gpu);
      return gpu.binding;
    });
    info.speed = { ...info.speed, ...network };
    if (spec.device !== 'wasm') {
      const start = async (kernels: string): Promise<EngineWasm> =>
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
    kernels = this.#spec.engine.kernels,
  ): Promise<WebAssembly.Module> {
    const spec = this.#spec;
    const platform = this.#platform;
    this.#io = this.#makeIo(ioWorker);
    opened(this.#io);
    const compiling = platform.compile(spec.wasm, kernels);
    compiling.catch(() => {}); // awaited by the caller, unless a file's error comes first
    this.#opening = new HeaderLoader(this.#io, spec.source);
    await this.#opening.first(platform, spec.memoryBudget);
    if (spec.draftSource) {
      const draft = (this.#draft = new HeaderLoader(this.#io, spec.draftSource, kDraftFiles));
      await ofDraft(draft.first(platform, spec.memoryBudget));
    }
    return compiling;
  }

  /**
   * Reads the headers into the engine's memory. The draft's comes last, so its plan counts both.
   */
  async #read(wasm: EngineWasm): Promise<void> {
    await this.#opening.read(wasm);
    const { binding, memory } = wasm;
    if (this.#draft) await ofDraft(this.#draft.read({ binding: binding.draft(), memory }));
    const { projectorSource, imageTokens, engine } = this.#spec;
    if (!projectorSource) return;
    if (!wasm.Pictures)
      throw new SluiceError('NOT_SUPPORTED', 'This engine takes no pictures: a full engine does.');
    const pictures = (wasm.pictures = new wasm.Pictures(binding));
    const projector = new HeaderLoader(this.#io, projectorSource, kProjectorFiles, true);
    await projector.first(this.#platform, 0);
    await projector.read({ binding: pictures.header(), memory });
    if (!pictures.open({ ...imageTokens, kernels: engine.kernels })) throw errorOf(binding);
  }

  #makeIo(ioWorker: boolean): Io {
    const spec = this.#spec;
    const platform = this.#platform;
    const reporter = this.#reporter;
    const onError = this.#onError;
    const sources = [spec.source, spec.draftSource, spec.projectorSource];
    const events: IoEvents = {
      onProgress: reporter.progress,
      onError,
      onDownloaded: (error) => reporter.post({ event: 'downloaded', error }),
    };
    return ioWorker && platform.isolated
      ? new RemoteIo(this.#startWorker('io'), sources, spec.io, events)
      : new LocalIo(sources, spec.io, platform, events);
  }

  #instantiate(wasm: WebAssembly.Module, budget: number, threads: number): Promise<EngineWasm> {
    const { openShared } = this.#platform;
    return instantiateWasm(
      wasm,
      budget,
      threads - 1,
      () => this.#startWorker('thread'),
      openShared,
    );
  }

  /** Port to a new worker, which the owner starts and terminates together with this one. */
  #startWorker(role: Role): WorkerPort {
    const { port1, port2 } = new MessageChannel();
    this.#reporter.post({ event: 'start', role, port: port2 }, [port2]);
    return Object.assign(port1, { terminate() {} }) as unknown as WorkerPort;
  }

  #readsOwn(threads: number): boolean {
    return threads > 1 && this.#io.shared.every(Boolean);
  }

  /** Not even the header fits. Computes the smallest budget in a larger memory and throws it. */
  async #refuseBudget(
    compiled: WebAssembly.Module,
    options: OpenOptions,
    onGpu: boolean,
  ): Promise<void> {
    const wasm = await this.#instantiate(compiled, kHeaderRoom, 1);
    await this.#read(wasm);
    await this.#plan(wasm.binding, { ...options, held: this.#io.stats.held }, onGpu);
  }

  /**
   * Describes the model. If the KV cache does not fit in memory, it is left to the GPU, which computes
   * everything (`onGpu`). What the CPU computes needs it in memory: drafts, pictures and adapters.
   * `again`: the binding of a binary for GPUs.
   */
  async #plan(
    binding: EngineBinding,
    options: OpenOptions,
    onGpu: boolean,
    again = async (): Promise<EngineBinding> => binding,
  ): Promise<ModelInfo> {
    const { draftSource, projectorSource, lora, engine } = this.#spec;
    const reads = draftSource || projectorSource || lora.length;
    const may = onGpu && !reads && !evicts(engine) && kOnGpu.has(engine.kvType);
    try {
      return await this.#describe(binding, options);
    } catch (error) {
      if (!may || !(error instanceof SluiceError) || error.code !== 'BUDGET_TOO_SMALL') throw error;
      options.kvOnGpu = true;
      return this.#describe(await again(), options);
    }
  }

  /** Metadata and plan. Must be called before open(), which frees the header. */
  async #describe(binding: EngineBinding, options: OpenOptions): Promise<ModelInfo> {
    await stageAdapters(binding, this.#spec.lora);
    const info = JSON.parse(binding.inspect(options)) as ModelInfo & { error?: PlainError };
    if (info.error) throw new SluiceError(info.error.code ?? 'INTERNAL', info.error.message);
    info.modalities = this.#spec.projectorSource ? ['text', 'image'] : ['text'];
    const { plan } = info;
    plan.kvOnGpu = options.kvOnGpu ? info.kvBytes[plan.kvType as KvType]! - plan.kv : 0;
    return info;
  }

  /** The requested budget, or the default for this device; at most what a wasm memory can have. */
  budget(bytes = this.#spec.memoryBudget): number {
    const files = this.#opening.bytes + (this.#draft ? this.#draft.bytes : 0);
    const chosen = Math.min(this.#platform.budgetCap, Math.ceil(files * 1.1) + (512 << 20));
    return Math.min(bytes || chosen, kMaxBudget);
  }

  /**
   * Number of compute threads. If most of the model streams through the I/O worker, one core is
   * left for it: otherwise all threads wait for the one that shares its core with reading, and a
   * token took 1.5 times as long.
   */
  threads(budget: number): number {
    return 2 * budget < this.#opening.bytes ? this.#minThreads() : this.#maxThreads();
  }

  #maxThreads(): number {
    const { isolated, hardwareThreads } = this.#platform;
    return isolated ? this.#spec.threads || hardwareThreads : 1;
  }

  /** Number of threads with the smallest budget. */
  #minThreads(): number {
    const { ioWorker, threads } = this.#spec;
    const reads = ioWorker && !threads && !this.#readsOwn(2);
    return Math.max(1, this.#maxThreads() - (reads ? 1 : 0));
  }

  #openOptions(memoryBudget: number, threads: number): OpenOptions {
    return {
      ...this.#spec.engine,
      memoryBudget,
      threads,
      minThreads: this.#minThreads(),
      // Directories are described one by one, before the engine needs memory.
      minBudget: Math.max(this.#opening.room, this.#draft?.room ?? 0),
    };
  }
}

/** Passes the adapters to the binding, for its next inspect(), open() or setAdapters(). */
export async function stageAdapters(binding: EngineBinding, lora: AdapterSpec[]): Promise<void> {
  binding.forgetAdapters();
  for (const { name, data, scale } of lora) {
    if (binding.adapter(new Uint8Array(await data.arrayBuffer()), scale)) continue;
    const { code, message } = errorOf(binding);
    throw new SluiceError(code, `${name}: ${message}`);
  }
}

/** Prefixes errors of loading the draft model. */
function ofDraft(work: Promise<void>): Promise<void> {
  return work.catch((error: unknown) => {
    if (error instanceof SluiceError) error.message = `The draft model: ${error.message}`;
    throw error;
  });
}
