// The public Engine: one loaded model in a worker of its own. It keeps the last snapshot that the
// worker sent, so that stats(), memory() and layers() answer at once; everything else is a call.

import { ChatCompletions, Completions } from './chat.js';
import { abortable, deserializeError, invalid, signalOf, SluiceError, throwIfAborted, type CallOptions } from './errors.js';
import { begun, Generation } from './generation.js';
import type { Loaded } from './host.js';
import { huggingFaceUrl } from './huggingface.js';
import { platform } from './platform.js';
import { PromptRenderer } from './prompt.js';
import type {
  EngineStats,
  GenerateSpec,
  GenerationResult,
  IoTuning,
  LoadSpec,
  MemoryReport,
  ModelInfo,
  ProgressEvent,
  SamplingOptions,
  Snapshot,
  SourceSpec,
  TokenizeSpec,
  UnitState,
  WorkerEvent,
  WorkerPort,
} from './protocol.js';
import type { CacheMode } from './remote-file.js';
import { RpcClient } from './rpc.js';
import { checkSaved, Session, SessionTable, type SessionOptions } from './session.js';
import { Parking } from './stash.js';
import { StoreManager } from './store.js';

/** A URL (absolute, relative, hf:owner/repo/file.gguf, or a path in Node), a File or Blob, or the parts of a split model. */
export type ModelSource = string | URL | Blob | readonly Blob[];

/** How a model is opened. */
export interface InspectOptions {
  /**
   * Bytes that the engine may hold: weights, KV cache, activations, tokenizer and scratch together.
   * It is the hard maximum of the engine's memory. Default: the whole model where the device has
   * room for it, else what the device can give.
   */
  memoryBudget?: number;
  /** Positions of the KV cache. Default: the model's own, at most 4096. */
  contextLength?: number;
  /**
   * Threads that compute; more than one needs cross-origin isolation. Default: chosen by the device, and
   * one less where the budget is below half of the model and they cannot read it themselves (a Blob, no
   * store, or a store that opens a file once).
   */
  threads?: number;
  /** Kernel table by name, for tests and measurements. Default: the best. */
  kernels?: string;
  /** Aborts the loading. */
  signal?: AbortSignal;
  /**
   * default: check with the server, then use what is stored; only: never use the network; reload:
   * fetch anew; none: store nothing. In Node nothing is stored unless `cacheDir` is given.
   */
  cache?: CacheMode;
  /** Node: the store's directory. */
  cacheDir?: string;
  /** Called at most ten times a second, and for warnings at once. */
  onProgress?: (event: ProgressEvent) => void;
  /** The engine's wasm, where it is not next to the script. */
  wasmUrl?: string | URL;
  /** The engine's wasm itself, where it cannot be fetched. */
  wasmBinary?: Uint8Array | ArrayBuffer;
  /** The worker script, where it is not next to the script; must be same-origin. */
  workerUrl?: string | URL;
  /** False: no I/O worker even where one is possible. */
  ioWorker?: boolean;
  /** @internal */
  tuning?: IoTuning;
}

/** What Engine.load takes. */
export type EngineOptions = InspectOptions;

/** How a text becomes tokens. */
export interface TokenizeOptions {
  /** Prepend BOS as the model's metadata says. Default true. */
  addBos?: boolean;
  /** Read "<|im_end|>" and the like as control tokens. Default true. */
  parseSpecial?: boolean;
  /** What stands between U+FDD0 and U+FDD1 is never read so; the two vanish. Default false. */
  marked?: boolean;
  /** The text goes on from other text: no BOS, no space before its first word. Default false. */
  continues?: boolean;
}

/** What a generation takes; `addBos` and the like are of text prompts. */
export interface GenerateOptions extends SamplingOptions, TokenizeOptions {
  /** Default: until the context is full or the model ends. */
  maxTokens?: number;
  /** Strings that end the text; they are not part of it. */
  stop?: string | readonly string[];
  /** Aborts it: everything pending rejects with its reason. */
  signal?: AbortSignal;
  /** true: the log-probability of each token; a number: also so many of the likeliest. */
  logprobs?: boolean | number;
  /** Emit the text of control tokens too. Default false. */
  special?: boolean;
  /** Keep what the KV cache already holds of this prompt. Default true. */
  reusePrefix?: boolean;
  /** Go on after an end token. Default false. */
  ignoreEos?: boolean;
}

/** One unit of the model's weights, for pictures. */
export interface LayerState {
  /** Its number. */
  unit: number;
  /** Where it is. */
  state: UnitState;
  /** The pass is in it now. */
  computing: boolean;
}

/** A KV cache and its tokens, for restoreState(). */
export interface SavedState {
  /** The tokens, in order. */
  tokens: Int32Array;
  /** Their keys and values; only the same model can read them. */
  state: Uint8Array;
}

const kUnitStates: UnitState[] = ['absent', 'loading', 'resident', 'pinned', 'pinned-absent'];
const kDisposeMs = 2000;
const kMostThreads = 64; // each is a worker

/** Engines whose loading was aborted give the store back first. */
let leaving: Promise<unknown> = Promise.resolve();

/** A loaded model. */
export class Engine {
  /** The models in the browser's file store (Node: in the default cache directory). */
  static readonly store = new StoreManager(
    () => platform().storeBackend(),
    (address) => {
      const spec = sourceSpec(address);
      return spec.kind === 'url' ? spec.url : String(address);
    },
  );

  /** What the header says of the model, and how it is laid out in the budget. */
  readonly info!: ModelInfo;
  /** Resolves when the whole file is in the store (or at once where nothing is stored). */
  readonly downloaded: Promise<void>;
  /** OpenAI's chat.completions.create on this engine. */
  readonly chat = { completions: new ChatCompletions(this) };
  /** OpenAI's completions.create on this engine. */
  readonly completions = new Completions(this);
  private readonly sessions: SessionTable;
  private renderer: PromptRenderer | null = null;
  private readonly rpc: RpcClient<WorkerEvent>;
  /** The engine's own, and those that it asked for. */
  private readonly workers: WorkerPort[] = [];
  /** The last that the worker sent; there is one once load() has resolved. */
  private snapshot!: Snapshot;
  private readonly generations = new Map<number, Generation>();
  private nextGeneration = 1;
  private disposing: Promise<void> | null = null;
  private onDownloaded!: { resolve: () => void; reject: (error: unknown) => void };

  private constructor(private readonly options: InspectOptions) {
    this.sessions = new SessionTable(this, new Parking(() => platform().stash()));
    this.downloaded = new Promise((resolve, reject) => (this.onDownloaded = { resolve, reject }));
    this.downloaded.catch(() => {});
    this.rpc = new RpcClient(
      this.startWorker(),
      (event) => this.onEvent(event),
      (error) => {
        for (const worker of this.workers) worker.terminate();
        this.onGone(error);
      },
    );
  }

  /**
   * Opens a model. Resolves when the engine accepts work: header read, memory allocated. The
   * weights go on arriving, and generate() starts on those that are there.
   */
  static async load(source: ModelSource, options: EngineOptions = {}): Promise<Engine> {
    const [engine, loaded] = await Engine.open<Loaded>('load', source, options);
    engine.snapshot ??= loaded.snapshot;
    (engine as { info: ModelInfo }).info = loaded.info;
    return engine;
  }

  /**
   * Reads only the header (a few range requests) and answers what the model is, what would be
   * resident under the budget, and how fast it would run.
   */
  static async inspect(source: ModelSource, options: InspectOptions = {}): Promise<ModelInfo> {
    const [engine, info] = await Engine.open<ModelInfo>('inspect', source, options);
    await engine.dispose();
    return info;
  }

  /**
   * Has the worker open a model. What a failed one holds of the store is given back first; after an
   * abort only the next one waits for that.
   */
  private static async open<T>(method: string, source: ModelSource, options: InspectOptions): Promise<[Engine, T]> {
    const signal = signalOf(options);
    const { onProgress } = options;
    if (typeof (onProgress ?? Date) !== 'function') invalid('onProgress must be a function.');
    const engine = new Engine(options);
    try {
      const spec = await loadSpec(source, options);
      return [engine, await abortable(options, () => leaving.then(() => engine.rpc.call<T>(method, [spec])))];
    } catch (error) {
      const over = engine.dispose();
      if (signal?.aborted) leaving = Promise.all([leaving, over]);
      else await over;
      throw error;
    }
  }

  /** Continues a text or a sequence of tokens. Generations of one engine run one after another. */
  generate(prompt: string | ArrayLike<number>, options: GenerateOptions = {}): Generation {
    return begun(options, () =>
      this.sessions.busy ? this.sessions.generate(null, () => prompt, options) : this.start(prompt, options),
    );
  }

  /** A timeline of its own, with a memory for what was said; any number share the engine. */
  session(options: SessionOptions = {}): Session {
    return new Session(this.sessions, options);
  }

  /** @internal */
  get prompts(): PromptRenderer {
    return (this.renderer ??= new PromptRenderer(this.info, (message) => {
      if (!this.options.onProgress) console.warn(message);
      this.options.onProgress?.({ phase: 'warning', code: 'NO_TEMPLATE', message });
    }, () => this.rpc.call('controlTexts', [])));
  }

  /** @internal */
  start(prompt: string | ArrayLike<number>, options: GenerateOptions): Generation {
    const { signal } = options;
    const id = this.nextGeneration++;
    const cancel = (): void => void this.rpc.call('cancel', [id]).catch(() => {});
    const generation = new Generation({ cancel }, signal);
    this.generations.set(id, generation);
    const run = async (): Promise<void> => {
      try {
        throwIfAborted(signal);
        generation.finish(await this.rpc.call<GenerationResult>('generate', [id, generateSpec(prompt, options)]));
      } catch (error) {
        generation.fail(error);
      }
      this.generations.delete(id);
    };
    void run();
    return generation;
  }

  /** Token ids of a text. */
  async tokenize(
    text: string,
    options: TokenizeOptions = {},
  ): Promise<Int32Array> {
    signalOf(options);
    if (!isText(text)) invalid('Only text can be tokenized: pass a string.');
    return this.rpc.call('tokenize', [text, tokenizeSpec(options)]);
  }

  /** The text of token ids; control tokens are left out unless `special`. */
  async detokenize(tokens: ArrayLike<number>, options: { special?: boolean } = {}): Promise<string> {
    signalOf(options);
    return this.rpc.call('detokenize', [tokenIds(tokens), options.special ?? false]);
  }

  /** Number of tokens of a text, BOS included. */
  async countTokens(text: string): Promise<number> {
    return (await this.tokenize(text)).length;
  }

  /**
   * The raw logits after each token of a sequence that begins the context, one row of the
   * vocabulary's length a token. Every token is a pass of its own.
   */
  logits(tokens: ArrayLike<number>, options?: CallOptions): Promise<Float32Array> {
    return abortable(options, async () => this.rpc.call('logits', [tokenIds(tokens)]));
  }

  /** Counters and rates as of the last moment the worker reported (ten times a second). */
  stats(): EngineStats {
    return { ...this.snapshot.stats };
  }

  /** Bytes by purpose, against the budget. */
  memory(): MemoryReport {
    return { ...this.snapshot.memory };
  }

  /** The state of every unit of weights, in file order of the model's computation. */
  layers(): LayerState[] {
    return Array.from(this.snapshot.units, (byte, unit) => ({
      unit,
      state: kUnitStates[byte & 15] ?? 'absent',
      computing: byte >= 16,
    }));
  }

  /**
   * Changes the budget, down or up; conversations go on where they are. The engine moves to a memory
   * whose maximum is the new budget and reads its weights again from where they are stored. Waits
   * for what is being generated. 0: as load() chooses. When it throws BUDGET_TOO_SMALL everything
   * is as before; an abort rejects at once, and a move that has begun ends by itself.
   */
  setMemoryBudget(bytes: number, options?: CallOptions): Promise<void> {
    return abortable(options, async () => {
      type Moved = Pick<Loaded, 'info' | 'snapshot'>;
      const { info, snapshot } = await this.rpc.call<Moved>('setMemoryBudget', [count('memoryBudget', bytes)]);
      this.snapshot = snapshot;
      (this as { info: ModelInfo }).info = info;
    });
  }

  /** A copy of the KV cache and the tokens in it. */
  saveState(options?: CallOptions): Promise<SavedState> {
    return abortable(options, () => this.rpc.call('saveState'));
  }

  /** Puts a saved KV cache back; a prompt that begins with its tokens then starts there. */
  restoreState(saved: SavedState, options?: CallOptions): Promise<void> {
    return abortable(options, async () => {
      checkSaved(saved);
      return this.rpc.call('restoreState', [saved.tokens, saved.state]);
    });
  }

  /** Ends the engine and gives all its memory back. Idempotent. */
  dispose(): Promise<void> {
    this.disposing ??= this.shutDown();
    return this.disposing;
  }

  /** For `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  private async shutDown(): Promise<void> {
    const gone = new SluiceError('DISPOSED', 'The engine was disposed of.');
    this.onGone(gone);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const limit = new Promise((resolve) => (timer = setTimeout(resolve, kDisposeMs)));
    await Promise.race([this.rpc.call('dispose').catch(() => {}), limit]);
    clearTimeout(timer);
    this.rpc.gone(gone);
  }

  private startWorker(): WorkerPort {
    const worker = platform().startWorker(this.options.workerUrl);
    this.workers.push(worker);
    return worker;
  }

  private onEvent(message: WorkerEvent): void {
    switch (message.event) {
      case 'start': {
        const { role, port } = message;
        const { onerror } = this.workers[0]!; // without any of them the engine is gone
        try {
          const worker = this.startWorker();
          worker.onerror = onerror;
          worker.postMessage({ role, port }, [port]);
        } catch (error) {
          onerror!(error);
        }
        break;
      }
      case 'end':
        this.workers[message.worker]!.terminate();
        break;
      case 'snapshot':
        this.snapshot = message.snapshot;
        break;
      case 'piece':
        this.generations.get(message.generation)?.receive(message.pieces);
        break;
      case 'downloaded':
        if (message.error) this.onDownloaded.reject(deserializeError(message.error));
        else this.onDownloaded.resolve();
        break;
      case 'progress':
        this.options.onProgress?.(message.progress);
        break;
    }
  }

  private onGone(error: unknown): void {
    this.onDownloaded.reject(error);
    for (const generation of this.generations.values()) generation.fail(error);
  }
}

function sourceSpec(source: ModelSource): SourceSpec {
  try {
    return specOf(source);
  } catch (cause) {
    if (cause instanceof SluiceError) throw cause;
    throw new SluiceError('INVALID_ARGUMENT', `'${source}' is not an address that can be read.`, { cause });
  }
}

function specOf(source: ModelSource): SourceSpec {
  if (typeof source === 'string' && source.startsWith('hf:')) return { kind: 'url', url: huggingFaceUrl(source) };
  if (typeof source === 'string') return platform().resolveSource(source);
  if (source instanceof URL) {
    return source.protocol === 'file:'
      ? platform().resolveSource(decodeURIComponent(source.pathname))
      : { kind: 'url', url: source.href };
  }
  const blobs = Array.isArray(source) ? source : [source];
  if (blobs.length === 0 || !blobs.every((blob) => blob instanceof Blob)) {
    invalid('A model is an address, a Blob, or a list of Blobs.');
  }
  return { kind: 'blob', blobs, names: blobs.map((blob) => (blob as File).name ?? 'model') };
}

async function loadSpec(source: ModelSource, options: InspectOptions): Promise<LoadSpec> {
  throwIfAborted(options.signal);
  const { wasmUrl, kernels = '' } = options;
  const own = wasmUrl || options.wasmBinary ? undefined : platform().wasmBinary?.(kernels);
  return {
    source: sourceSpec(source),
    io: { cache: cacheMode(options.cache ?? 'default'), cacheDir: options.cacheDir, tuning: options.tuning },
    wasm: { url: wasmUrl?.toString(), binary: options.wasmBinary ?? (await own) },
    memoryBudget: count('memoryBudget', options.memoryBudget),
    contextLength: Math.min(count('contextLength', options.contextLength), 2 ** 31 - 1),
    threads: Math.min(count('threads', nestedInFirefox ? 1 : options.threads), kMostThreads),
    kernels,
    ioWorker: !nestedInFirefox && (options.ioWorker ?? true),
  };
}

/**
 * A worker in Firefox 153, where starting a further one blocks for good now and then: the engine's own
 * is risk enough.
 */
const nestedInFirefox = typeof document === 'undefined' && /Firefox/.test(`${globalThis.navigator?.userAgent}`);

function cacheMode(mode: CacheMode): CacheMode {
  return /^(default|only|reload|none)$/.test(mode) ? mode : invalid('cache must be default, only, reload or none.');
}

/** A whole number that is not negative; 0 when it is left out. */
function count(name: string, value: number | undefined): number {
  if (value === undefined) return 0;
  if (Number.isFinite(value) && value >= 0) return Math.floor(value);
  return invalid(`${name} must be a number that is not negative.`);
}

function tokenIds(tokens: ArrayLike<number>): Int32Array {
  const list = typeof tokens === 'object' && tokens?.length >= 0 ? Array.from(tokens) : [NaN];
  if (!list.every(Number.isInteger)) invalid('A list of token ids is needed here, or a text as a prompt; messages go to chat.completions.');
  return Int32Array.from(list);
}

const isText = (value: unknown): value is string => typeof value === 'string';

function tokenizeSpec({ addBos = true, parseSpecial = true, marked = false, continues = false }: TokenizeOptions): TokenizeSpec {
  return { addBos, parseSpecial, marked, continues };
}

function generateSpec(prompt: string | ArrayLike<number>, options: GenerateOptions): GenerateSpec {
  const { stop, logprobs, signal: _, ...sampling } = options;
  const maxTokens = (options.maxTokens ?? Infinity) === Infinity ? Infinity : count('maxTokens', options.maxTokens);
  const stops = [stop ?? []].flat();
  if (!stops.every(isText)) invalid('stop must be text or a list of texts.');
  return {
    ...sampling,
    prompt: isText(prompt) ? prompt : tokenIds(prompt),
    maxTokens,
    stop: stops.filter((stop) => stop !== ''),
    logprobs: logprobs === true ? 0 : logprobs === false ? undefined : logprobs && count('logprobs', logprobs),
    seed: options.seed ?? Math.floor(Math.random() * 2 ** 32),
    ...tokenizeSpec(options),
    special: options.special ?? false,
    reusePrefix: options.reusePrefix ?? true,
    ignoreEos: options.ignoreEos ?? false,
  };
}
