// The public Engine: one loaded model in a worker of its own. It keeps the last snapshot that the
// worker sent, so that stats(), memory() and layers() answer at once; everything else is a call.

import { ChatCompletions, Completions } from '../chat/completions.js';
import { LazyPrompts } from '../chat/prompt.js';
import { StoreManager } from '../io/store-manager.js';
import type { EngineCalls } from '../protocol/calls.js';
import {
  abortable,
  deserializeError,
  invalid,
  onlyKnown,
  SluiceError,
  throwIfAborted,
  type CallOptions,
} from '../protocol/errors.js';
import type {
  EngineOptions,
  GenerateOptions,
  InspectOptions,
  ModelSource,
  TokenizeOptions,
} from '../protocol/options.js';
import type { Embedded, EmbedSpec, LoadSpec, Snapshot, WorkerEvent } from '../protocol/messages.js';
import type {
  EngineStats,
  MemoryReport,
  ModelInfo,
  GeneratedToken,
  SavedState,
  UnitState,
} from '../protocol/types.js';
import {
  Embeddings,
  embedTexts,
  rankDocuments,
  type EmbedOptions,
  type RerankResult,
  type RerankOptions,
} from './embedding.js';
import { begun, Generation } from './generation.js';
import { WorkerClient } from './worker-client.js';
import {
  adapterSpecs,
  checkLoad,
  count,
  generateSpec,
  loadSpec,
  sourceSpec,
  tokenIds,
  tokenizeSpec,
} from './options.js';
import { platform } from './platform.js';
import { checkSaved, Session, type SessionOptions } from './session.js';
import { startWorker } from './start.js';

/** One unit of the model's weights, for pictures. */
export interface WeightUnit {
  /** Its number. */
  unit: number;
  /** Where it is. */
  state: UnitState;
  /** The pass is in it now. */
  computing: boolean;
}

const kUnitStates: UnitState[] = ['absent', 'loading', 'resident', 'pinned', 'pinned-pending'];

/** Engines whose loading was aborted give the store back first. */
let leaving: Promise<unknown> = Promise.resolve();

const disposed = (): SluiceError => new SluiceError('DISPOSED', 'The engine was disposed of.');

/** A loaded model. */
export class Engine {
  /** The models in the browser's file store (Node: in the default cache directory). */
  static readonly modelCache = new StoreManager(
    () => platform().storeBackend(),
    (address) => {
      const spec = sourceSpec(address);
      return spec.kind === 'url' ? spec.url : String(address);
    },
  );

  /** What the header says of the model, and how it is laid out in the budget. */
  readonly info!: ModelInfo;
  /**
   * Resolves when the whole file is in the store (at once where nothing is stored); rejects, with
   * QUOTA say, when it will not be.
   */
  readonly downloaded: Promise<void>;
  /** OpenAI's chat.completions.create on this engine. */
  readonly chat = { completions: new ChatCompletions(this) };
  /** OpenAI's completions.create on this engine. */
  readonly completions = new Completions(this);
  /** OpenAI's embeddings.create on this engine. */
  readonly embeddings = new Embeddings(this);
  #renderer: LazyPrompts | null = null;
  /** The worker that has the model, and one that is to follow it. */
  #link: WorkerClient;
  #next: WorkerClient | null = null;
  #spec!: LoadSpec;
  /** While it lives, V8 compiles the same bytes for other engines no second time. */
  #module!: WebAssembly.Module;
  /** Ends with the changes of the budget that have been asked for; null: none is under way. */
  #moving: Promise<unknown> | null = null;
  /** The last that the worker sent; there is one once load() has resolved. */
  #snapshot!: Snapshot;
  readonly #generations = new Map<
    number,
    { generation: Generation; heard: (pieces: GeneratedToken[]) => void }
  >();
  readonly #embedded = new Map<number, (done: number) => void>();
  #nextGeneration = 1;
  #disposing: Promise<void> | null = null;
  #stored = false;
  #onDownloaded!: { resolve: () => void; reject: (error: unknown) => void };
  readonly #options: InspectOptions;

  private constructor(options: InspectOptions) {
    this.#options = options;
    this.downloaded = new Promise((resolve, reject) => (this.#onDownloaded = { resolve, reject }));
    this.downloaded.catch(() => {});
    this.#link = this.#connect();
  }

  /**
   * Opens a model. Resolves when the engine accepts work: header read, memory allocated. The
   * weights go on arriving, and generate() starts on those that are there.
   */
  static async load(source: ModelSource, options: EngineOptions = {}): Promise<Engine> {
    const { gpuMinBatch: gpuMinBatch = 1, gpuLayers } =
      (options?.device === 'auto' && (await Engine.inspect(source, options)).device) || {};
    const [engine, loaded] = await Engine.#open(
      (rpc, spec) =>
        rpc.call(
          'load',
          Object.assign(spec, { gpuMinBatch, gpuLayers: gpuLayers ?? spec.gpuLayers }),
          false,
        ),
      source,
      options,
    );
    engine.#snapshot ??= loaded.snapshot;
    engine.#module = loaded.module;
    (engine as { info: ModelInfo }).info = loaded.info;
    return engine;
  }

  /**
   * Reads only the header (a few range requests) and answers what the model is, what would be
   * resident under the budget, and how fast it would run.
   */
  static async inspect(source: ModelSource, options: InspectOptions = {}): Promise<ModelInfo> {
    const [engine, info] = await Engine.#open(
      (rpc, spec) => rpc.call('inspect', spec),
      source,
      options,
    );
    await engine.dispose();
    return info;
  }

  /**
   * Has the worker open a model. What a failed one holds of the store is given back first; after an
   * abort only the next one waits for that.
   */
  static async #open<T>(
    ask: (rpc: WorkerClient['rpc'], spec: LoadSpec) => Promise<T>,
    source: ModelSource,
    options: InspectOptions,
  ): Promise<[Engine, T]> {
    checkLoad(options);
    const { signal } = options;
    const spec = await loadSpec(source, options);
    const engine = new Engine(options);
    engine.#spec = spec;
    try {
      return [
        engine,
        await abortable({ signal }, () => leaving.then(() => ask(engine.#link.rpc, spec))),
      ];
    } catch (error) {
      const over = engine.dispose();
      if (signal?.aborted) leaving = Promise.all([leaving, over]);
      else await over;
      throw error;
    }
  }

  /**
   * Continues a text or a sequence of tokens, on the engine's own sequence: one such generation
   * after another.
   */
  generate(prompt: string | ArrayLike<number>, options: GenerateOptions = {}): Generation {
    return begun(options, () => this.start(() => prompt, options));
  }

  /**
   * @internal Of a chat: on whichever sequence knows most of it, beside others where the engine is
   * `parallel`.
   */
  answer(prompt: string | ArrayLike<number>, options: GenerateOptions): Generation {
    return begun(options, () => this.start(() => prompt, options, -1));
  }

  /**
   * The vectors of texts (or of lists of token ids), which are packed into as few passes as hold
   * them.
   */
  async embed(
    texts: readonly (string | ArrayLike<number>)[],
    options: EmbedOptions = {},
  ): Promise<Float32Array[]> {
    if (!Array.isArray(texts)) invalid('embed() takes a list of texts.');
    return (await embedTexts(this, texts, options)).vectors;
  }

  /**
   * Ranks documents by how well they answer the query, the best first; of models that were trained
   * for it.
   */
  rerank(
    query: string,
    documents: readonly string[],
    options: RerankOptions = {},
  ): Promise<RerankResult[]> {
    return rankDocuments(this, query, documents, options);
  }

  /** @internal */
  embedTexts(
    texts: (string | Int32Array)[],
    spec: EmbedSpec,
    signal: AbortSignal | undefined,
    told: (done: number) => void,
  ): Promise<Embedded> {
    const id = this.#nextGeneration++;
    const cancel = (): void => void this.call('cancel', id).catch(() => {});
    return abortable({ signal }, async () => {
      this.#embedded.set(id, told);
      signal?.addEventListener('abort', cancel);
      try {
        return await this.call('embed', id, texts, spec);
      } finally {
        signal?.removeEventListener('abort', cancel);
        this.#embedded.delete(id);
      }
    });
  }

  /** A sequence of its own, with a memory for what was said; any number share the engine. */
  session(options: SessionOptions = {}): Session {
    return new Session(this, options);
  }

  /** @internal */
  get prompts(): LazyPrompts {
    return (this.#renderer ??= new LazyPrompts(
      this.info,
      (message) => {
        if (!this.#options.onProgress) console.warn(message);
        this.#options.onProgress?.({ phase: 'warning', code: 'NO_CHAT_TEMPLATE', message });
      },
      () => this.call('controlTexts'),
    ));
  }

  /** @internal */
  get structuredOutput(): boolean {
    return this.#spec.structuredOutput;
  }

  /**
   * @internal Begins an answer on a sequence, in line behind the others, when there is a prompt.
   */
  start(
    prompt: () => string | ArrayLike<number> | Promise<Int32Array>,
    options: GenerateOptions,
    sequence = 0,
    heard: (pieces: GeneratedToken[]) => void = () => {},
  ): Generation {
    const { signal } = options;
    const id = this.#nextGeneration++;
    let sent = false;
    let cancelled = false;
    const cancel = (): void => {
      cancelled = true;
      if (sent) this.#link.rpc.call('cancel', id).catch(() => {});
    };
    const generation = new Generation({ cancel }, signal);
    this.#generations.set(id, { generation, heard });
    const run = async (): Promise<void> => {
      try {
        throwIfAborted(signal);
        // Without a pause where none is needed: what is called first comes first.
        const input = prompt();
        const spec = generateSpec(
          input instanceof Promise ? await input : input,
          options,
          this.info.vocabSize,
          sequence,
        );
        if (this.#moving) await this.#moved();
        throwIfAborted(signal);
        const ending = this.#link.rpc.call('generate', id, spec);
        sent = true;
        if (cancelled) cancel();
        generation.finish(await ending);
      } catch (error) {
        generation.fail(error);
      }
      this.#generations.delete(id);
    };
    void run();
    return generation;
  }

  /** @internal A call to the worker that has the model, behind a change of the budget. */
  async call<Name extends keyof EngineCalls>(
    method: Name,
    ...args: Parameters<EngineCalls[Name]>
  ): Promise<ReturnType<EngineCalls[Name]>> {
    if (this.#moving) await this.#moved();
    return this.#link.rpc.call(method, ...args);
  }

  /** Token ids of a text. */
  async tokenize(text: string, options: TokenizeOptions = {}): Promise<Int32Array> {
    onlyKnown('tokenize()', options, 'addSpecial parseSpecial literalSpans continuation');
    if (typeof text !== 'string') invalid('Only text can be tokenized: pass a string.');
    return this.call('tokenize', text, tokenizeSpec(options));
  }

  /** The text of token ids; control tokens are left out unless `special`. */
  async detokenize(
    tokens: ArrayLike<number>,
    options: { skipSpecialTokens?: boolean } = {},
  ): Promise<string> {
    onlyKnown('detokenize()', options, 'skipSpecialTokens');
    return this.call(
      'detokenize',
      tokenIds(tokens, this.info.vocabSize),
      !(options.skipSpecialTokens ?? true),
    );
  }

  /** Number of tokens of a text, BOS included. */
  async countTokens(text: string): Promise<number> {
    return (await this.tokenize(text)).length;
  }

  /**
   * The raw logits after each token of a sequence that begins the context, one row of the
   * vocabulary's length a token. Every token is a pass of its own. Where the model has an encoder
   * and a decoder: those after each of the `decoderTokens`, which answer the others.
   */
  logits(
    tokens: ArrayLike<number>,
    options?: CallOptions & { decoderTokens?: ArrayLike<number> },
  ): Promise<Float32Array> {
    const { decoderTokens, ...call } = { ...options };
    return abortable(options && call, async () => {
      const ids = (list: ArrayLike<number>): Int32Array => tokenIds(list, this.info.vocabSize);
      return this.call(
        'logits',
        decoderTokens
          ? Int32Array.from([...ids(tokens).map((token) => ~token), ...ids(decoderTokens)])
          : ids(tokens),
      );
    });
  }

  /** Counters and rates as of the last moment the worker reported (ten times a second). */
  stats(): EngineStats {
    return { ...this.#snapshot.stats };
  }

  /** Bytes by purpose, against the budget. */
  memory(): MemoryReport {
    return { ...this.#snapshot.memory };
  }

  /** The state of every unit of weights, in file order of the model's computation. */
  weightUnits(): WeightUnit[] {
    return Array.from(this.#snapshot.units, (byte, unit) => ({
      unit,
      state: kUnitStates[byte & 15] ?? 'absent',
      computing: byte >= 16,
    }));
  }

  /**
   * Changes the budget, down or up; conversations go on where they are. The engine moves to a
   * worker whose memory has the new budget for its maximum, and reads its weights again from where
   * they are stored; the old one ends with its memory. Waits for what is being generated. 0: as
   * load() chooses. When it throws everything is as before; an abort rejects at once, and a move
   * that has begun ends by itself.
   */
  setMemoryBudget(bytes: number, options?: CallOptions): Promise<void> {
    return abortable(options, () => {
      const memoryBudget = count('memoryBudget', bytes);
      const move = Promise.resolve(this.#moving).then(() => this.#move(memoryBudget));
      const over: Promise<unknown> = (this.#moving = move
        .catch(() => {})
        .then(() => {
          if (this.#moving === over) this.#moving = null;
        }));
      return move;
    });
  }

  /**
   * Other LoRA adapters than those before, in their place; none: the model alone. The model stays
   * loaded, and what was computed with the others is computed again. When it throws everything is
   * as before.
   */
  setAdapters(lora: NonNullable<EngineOptions['lora']>, options?: CallOptions): Promise<void> {
    return abortable(options, async () => {
      const specs = await adapterSpecs(lora);
      await this.call('setAdapters', specs);
      this.#spec = { ...this.#spec, lora: specs };
    });
  }

  async #move(memoryBudget: number): Promise<void> {
    const link = this.#link;
    const spec = this.#spec;
    const { cache } = spec.io;
    const left = await link.rpc.call('release', memoryBudget);
    const { bytesCached: bytesCached, bytesTotal } = this.#snapshot.stats;
    if (this.#disposing) throw disposed();
    try {
      const next = (this.#next = this.#connect());
      const moved: LoadSpec = {
        ...spec,
        memoryBudget,
        gpuKernels: this.#snapshot.stats.gpuKernels, // what is measured may be another way now
        contextLength: this.info.plan.contextLength,
        kvType: this.info.plan.kvType,
        kvCapacity: (spec.kvPolicy ?? 'full') !== 'full' ? this.info.plan.kvCapacity : 0,
        wasm: { ...spec.wasm, module: this.#module },
        // What is stored is not asked for again, and what has been fetched anew is new.
        io: {
          ...spec.io,
          cache: bytesCached === bytesTotal ? 'only' : cache === 'reload' ? 'default' : cache,
        },
      };
      const { info } = await next.rpc.call('load', moved, true);
      if (info.bytes !== this.info.bytes || info.name !== this.info.name)
        throw new SluiceError('SOURCE_CHANGED', 'The model is another one by now; load it anew.');
      (this as { info: ModelInfo }).info = info;
      this.#link = next;
    } catch (error) {
      await this.#next?.end(error);
      await link.rpc.call('resume').catch(() => {}); // where it fails, the next call tries again
      throw error;
    } finally {
      this.#next = null;
    }
    // Before the other one reads its weights: the two budgets are never filled at the same time.
    await link.end(new SluiceError('WORKER_LOST', 'The engine has moved to another worker.'), true);
    this.#snapshot = await this.#link.rpc.call('begin', left, !this.#stored);
  }

  /** Resolves when no change of the budget is under way. */
  async #moved(): Promise<void> {
    while (this.#moving) await this.#moving;
  }

  /** A copy of the KV cache and the tokens in it. */
  saveState(options?: CallOptions): Promise<SavedState> {
    return abortable(options, () => this.call('saveState', 0));
  }

  /** Puts a saved KV cache back; a prompt that begins with its tokens then starts there. */
  restoreState(saved: SavedState, options?: CallOptions): Promise<void> {
    return abortable(options, async () => {
      checkSaved(saved);
      return this.call('restoreState', 0, saved.state);
    });
  }

  /** Ends the engine and gives all its memory back. Idempotent. */
  dispose(): Promise<void> {
    this.#disposing ??= this.#shutDown();
    return this.#disposing;
  }

  /** For `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  async #shutDown(): Promise<void> {
    const gone = disposed();
    this.#onGone(gone);
    await Promise.all([this.#next?.end(gone), this.#link.end(gone)]);
  }

  #connect(): WorkerClient {
    const link: WorkerClient = new WorkerClient(
      () => startWorker(this.#options.workerUrl, this.#options.tuning?.greetMs),
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
        this.#snapshot = message.snapshot;
        break;
      case 'embedded':
        this.#embedded.get(message.call)?.(message.done);
        break;
      case 'piece': {
        const { generation, heard } = this.#generations.get(message.generation) ?? {};
        heard?.(message.pieces);
        generation?.receive(message.pieces);
        break;
      }
      case 'downloaded':
        this.#stored = !message.error;
        if (message.error) this.#onDownloaded.reject(deserializeError(message.error));
        else this.#onDownloaded.resolve();
        break;
      case 'progress':
        this.#options.onProgress?.(message.progress);
        break;
    }
  }

  #onGone(error: unknown): void {
    this.#onDownloaded.reject(error);
    for (const { generation } of this.#generations.values()) generation.fail(error);
  }
}
