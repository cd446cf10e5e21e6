// The public Engine: one loaded model in its own worker. It keeps the last snapshot that the worker
// sent, so that stats(), memory() and weightUnits() return immediately. Everything else is a call
// to the worker.

import { ChatCompletions, Completions } from '../chat/completions.js';
import type { ChatMessage, PromptOptions, Prompts, RenderedChat } from '../chat/engine.js';
import type { ChatCompletionParams } from '../chat/openai.js';
import { chatModule } from '../chat/prompt.js';
import { persistOnce, StoreManager } from '../io/store-manager.js';
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
import type {
  EmbedSpec,
  EmbedTexts,
  GenerateSpec,
  LoadSpec,
  Snapshot,
  WorkerEvent,
} from '../protocol/messages.js';
import { unmarked } from '../protocol/literal-spans.js';
import { snapshot } from '../protocol/snapshot.js';
import { Turns } from '../protocol/turns.js';
import type {
  EngineStats,
  MemoryReport,
  ModelInfo,
  GeneratedToken,
  ImageCost,
  SavedState,
  UnitState,
} from '../protocol/types.js';
import type { EmbedOptions, RerankOptions, RerankResult } from './embedding.js';
import { embedCalls, Embeddings } from './embeddings.js';
import type { EmbedCalls } from './embed.js';
import { begun, Generation } from './generation.js';
import { imageSpecs } from './images.js';
import { WorkerClient } from './worker-client.js';
import {
  adapterSpecs,
  checkLoad,
  byteCount,
  count,
  generateSpec,
  loadSpec,
  sourceSpec,
  tokenIds,
  tokenizeSpec,
} from './options.js';
import { platform } from './platform.js';
import { checkSaved, kPromptOptions, Session, type SessionOptions } from './session.js';
import { startWorker } from './start.js';

/** State of one weight unit: a part of the model that is loaded and evicted as a whole. */
export interface WeightUnit {
  /** Number of the unit, in the order of computation. */
  unit: number;
  /** Whether it is in memory. */
  state: UnitState;
  /** The forward pass is computing with it. */
  computing: boolean;
}

const kUnitStates: UnitState[] = ['absent', 'loading', 'resident', 'pinned', 'pinned-pending'];

/** Resolves when engines whose loading was aborted have closed their files. */
let leaving: Promise<unknown> = Promise.resolve();

const disposed = (): SluiceError => new SluiceError('DISPOSED', 'The engine was disposed of.');

/** A loaded model, in its own worker. Create it with Engine.load; end it with dispose(). */
export class Engine {
  /** Models cached in the browser's storage (Node: in the cache directory). */
  static readonly modelCache = new StoreManager(
    (cacheDir) => platform().storeBackend?.(cacheDir),
    (address) => {
      const spec = /^hf:/i.test(`${address}`) ? null : sourceSpec(address);
      return spec?.kind === 'url' ? spec.url : `${address}`;
    },
  );

  /** Metadata of the model and its memory plan. */
  readonly info!: ModelInfo;
  /**
   * Resolves when the complete file is in the model cache (immediately if nothing is cached).
   * Rejects if it cannot be cached, for example with QUOTA.
   *
   * @example
   * ```ts
   * const engine = await Engine.load(model);
   * await engine.downloaded; // from now on it loads offline, with cache: 'only'
   * ```
   */
  get downloaded(): Promise<void> {
    platform().keepAlive?.(this.#downloaded);
    return this.#downloaded;
  }
  /** OpenAI-compatible chat completions: engine.chat.completions.create(). */
  readonly chat = { completions: new ChatCompletions(this) };
  /** OpenAI-compatible text completions: engine.completions.create(). */
  readonly completions = new Completions(this);
  /** OpenAI-compatible embeddings: engine.embeddings.create(). */
  readonly embeddings = new Embeddings(this);
  #renderer: Promise<Prompts> | null = null;
  /** The worker that has the model, and the one that is about to replace it. */
  #link: WorkerClient;
  #next: WorkerClient | null = null;
  #spec!: LoadSpec;
  /** Ends the requests that this thread makes for the worker. */
  #close: (() => void) | undefined;
  /** Keeps the module alive, so that V8 does not compile the same bytes again for other engines. */
  #module!: WebAssembly.Module;
  /** Calls, and changes of budget and adapters, in order. */
  readonly #turns = new Turns();
  /** Last snapshot of the worker. Set once load() has resolved. */
  #snapshot!: Snapshot;
  readonly #generations = new Map<
    number,
    { generation: Generation; heard: (pieces: GeneratedToken[]) => void }
  >();
  readonly #embedded = new Map<number, (done: number) => void>();
  #nextGeneration = 1;
  #disposing: Promise<void> | null = null;
  #stored = false;
  readonly #downloaded: Promise<void>;
  #onDownloaded!: { resolve: () => void; reject: (error: unknown) => void };
  readonly #options: InspectOptions;

  private constructor(options: InspectOptions) {
    this.#options = options;
    this.#downloaded = new Promise((resolve, reject) => (this.#onDownloaded = { resolve, reject }));
    this.#downloaded.catch(() => {});
    this.#link = this.#connect();
  }

  /**
   * Loads a model. Resolves when the engine accepts requests: the header is read and all memory is
   * allocated. Weights continue to load in the background, and generate() waits only for those that
   * it needs next. Errors: BUDGET_TOO_SMALL, and those of the options, the file, the network and
   * the package's files.
   *
   * @example
   * ```ts
   * import { Engine } from 'sluice-llm';
   *
   * const engine = await Engine.load(
   *   'hf:HuggingFaceTB/SmolLM2-360M-Instruct-GGUF/smollm2-360m-instruct-q8_0.gguf',
   *   { memoryBudget: 600 * 2 ** 20, contextLength: 2048 },
   * );
   * ```
   */
  static async load(source: ModelSource, options: EngineOptions = {}): Promise<Engine> {
    source = snapshot(source);
    options = snapshot(options);
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
   * Reads only the header (a few range requests) and returns the model's metadata, its memory plan
   * and a speed estimate. Throws the errors of load() that the header shows.
   *
   * @example
   * ```ts
   * const { plan, speed } = await Engine.inspect(model, { memoryBudget: 256 * 2 ** 20 });
   * console.log(`${plan.pinned} bytes stay in memory, ${plan.bytesPerPass} stream per token`);
   * console.log(`about ${speed?.tokensPerSecond} tokens per second`);
   * ```
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
   * Starts a worker that opens a model. On failure its files are closed before this rejects; on
   * abort it rejects immediately, and the next load waits until they are closed.
   */
  static async #open<T>(
    ask: (rpc: WorkerClient['rpc'], spec: LoadSpec) => Promise<T>,
    source: ModelSource,
    options: InspectOptions,
    full?: boolean,
  ): Promise<[Engine, T]> {
    source = snapshot(source);
    options = snapshot(options);
    checkLoad(options);
    const { signal } = options;
    const deleted = Engine.modelCache.turns.call(async () => {}); // what was called before
    const [spec, close] = await loadSpec(source, options);
    spec.wasm.full ||= full;
    const engine = new Engine(options);
    engine.#spec = spec;
    engine.#close = close;
    try {
      return [
        engine,
        await abortable({ signal }, async () => {
          await leaving;
          await deleted;
          return ask(engine.#link.rpc, spec);
        }),
      ];
    } catch (error) {
      const over = engine.dispose();
      if (signal?.aborted) leaving = Promise.all([leaving, over]);
      else await over;
      // The full engine: few files need it.
      const another = !(spec.wasm.full || spec.wasm.url || spec.wasm.binary);
      if (another && (error as SluiceError).code === 'NOT_IN_BUILD')
        return Engine.#open(ask, source, options, true);
      throw error;
    }
  }

  /**
   * Generates text after a prompt: a string, or token ids. Calls run one after another on the
   * engine's own sequence, and the KV cache is reused if prompts share a prefix. Use session() for
   * conversations.
   *
   * @example
   * ```ts
   * const options = { maxTokens: 64, temperature: 0.7 };
   * for await (const { text } of engine.generate('Once upon a time', options)) console.log(text);
   * ```
   */
  generate(prompt: string | ArrayLike<number>, options: GenerateOptions = {}): Generation {
    const taken = this.#turns.waits ? snapshot(prompt) : prompt;
    return begun(options, (own) => this.start(() => taken, own));
  }

  /**
   * @internal Generation of a chat: on the sequence that shares the longest prefix with the prompt,
   * in parallel with others if the engine has `parallel` above 1. Called in a turn. `extra` replaces
   * what the options say.
   */
  answer(
    prompt: string | ArrayLike<number>,
    options: GenerateOptions,
    extra?: Partial<GenerateSpec>,
  ): Generation {
    return begun(options, (own) =>
      this.start(
        () => prompt,
        own,
        -1,
        undefined,
        (run) => this.#turns.add(run()),
        extra,
      ),
    );
  }

  /**
   * Embeddings of strings (or of lists of token ids), one Float32Array per input. Inputs are packed
   * into as few forward passes as possible.
   *
   * @example
   * ```ts
   * const [query, note] = await engine.embed(['a hot meal', 'Soup is served at noon.']);
   * const similarity = query.reduce((sum, value, i) => sum + value * note[i], 0);
   * ```
   */
  async embed(
    texts: readonly (string | ArrayLike<number>)[],
    options: EmbedOptions = {},
  ): Promise<Float32Array[]> {
    const own = snapshot({ texts, options });
    const work = (calls: EmbedCalls) => calls.embed(own.texts, own.options);
    return (await this.embedding(options, work)).vectors;
  }

  /**
   * Scores documents by their relevance to the query and returns them with the best first. Needs a
   * reranker model.
   *
   * @example
   * ```ts
   * const documents = ['Paris is in France.', 'Pandas eat bamboo.'];
   * const [best] = await engine.rerank('What do pandas eat?', documents, { topN: 1 });
   * console.log(documents[best.index], best.score);
   * ```
   */
  rerank(
    query: string,
    documents: readonly string[],
    options: RerankOptions = {},
  ): Promise<RerankResult[]> {
    const own = snapshot({ documents, options });
    return this.embedding(options, (calls) => calls.rerank(query, own.documents, own.options));
  }

  /** @internal Loads the code of embeddings and runs `work` with it, in a turn. */
  embedding<T>({ signal }: CallOptions, work: (calls: EmbedCalls) => Promise<T>): Promise<T> {
    return this.#stoppable(
      signal,
      async (id) => {
        const run = (texts: EmbedTexts, spec: EmbedSpec, onProgress: (done: number) => void) => {
          throwIfAborted(signal);
          this.#embedded.set(id, onProgress);
          return this.ask('embed', id, texts, spec);
        };
        return work(await embedCalls(this.info, run));
      },
      (id) => this.#embedded.delete(id),
    );
  }

  /** A call with a number, which the worker stops when the signal aborts. */
  #stoppable<T>(
    signal: AbortSignal | undefined,
    work: (id: number) => Promise<T>,
    over: (id: number) => void = () => {},
  ): Promise<T> {
    const id = this.#nextGeneration++;
    const cancel = (): void => void this.ask('cancel', id).catch(() => {});
    return abortable({ signal }, async () => {
      signal?.addEventListener('abort', cancel);
      try {
        return await this.turn(async () => {
          throwIfAborted(signal);
          return work(id);
        });
      } finally {
        signal?.removeEventListener('abort', cancel);
        over(id);
      }
    });
  }

  /**
   * A new session: a conversation or text with its own KV cache. An engine can have any number of
   * sessions.
   *
   * @example
   * ```ts
   * const session = engine.session({ system: 'Answer in one sentence.' });
   * console.log(await session.send('Why is the sky blue?').text());
   * ```
   */
  session(options: SessionOptions = {}): Session {
    return new Session(this, options);
  }

  /**
   * The prompt that the model's chat template makes of messages: what chats and sessions send to the
   * model. Useful to look at it, to count its tokens, or to generate from it.
   *
   * @example
   * ```ts
   * const messages = [{ role: 'user', content: 'Why is the sky blue?' }] as const;
   * const { text, tokens, stop } = await engine.renderPrompt(messages);
   * console.log(text, tokens.length);
   * const answer = await engine.generate(tokens, { stop }).text();
   * ```
   */
  renderPrompt(
    messages: ChatCompletionParams['messages'],
    options: PromptOptions & CallOptions = {},
  ): Promise<RenderedChat> {
    onlyKnown('renderPrompt()', options, `${kPromptOptions} addGenerationPrompt signal`);
    const { signal, ...own } = snapshot(options);
    const given = snapshot(messages) as readonly ChatMessage[];
    return abortable({ signal }, () =>
      this.turn(async () => {
        const prompts = await this.prompts();
        const { text, stop, images, ...how } = await prompts.render(given, own);
        const tokens = await (images
          ? this.ask('layout', text, { ...tokenizeSpec(how), images: await imageSpecs(images) })
          : this.ask('tokenize', text, tokenizeSpec(how)));
        return { text: unmarked(text), tokens, stop };
      }),
    );
  }

  /** @internal Renders prompts and serves requests. Loaded on first use. */
  prompts(): Promise<Prompts> {
    return (this.#renderer ??= chatModule().then(
      ({ PromptRenderer }) =>
        new PromptRenderer(
          this.info,
          this.#options.onProgress,
          () => this.ask('controlTokens'),
          platform().readFile,
        ),
      (error) => {
        this.#renderer = null;
        throw error;
      },
    ));
  }

  /** @internal */
  get structuredOutput(): boolean {
    return this.#spec.engine.structuredOutput !== false;
  }

  /** @internal Queues a generation on a sequence. It starts when `prompt` has resolved. */
  start(
    prompt: () => string | ArrayLike<number> | Promise<Int32Array | string>,
    options: GenerateOptions,
    sequence = 0,
    heard: (pieces: GeneratedToken[]) => void = () => {},
    queue = (run: () => Promise<void>): Promise<void> => this.turn(run),
    extra?: Partial<GenerateSpec>,
    read?: (tokens: Int32Array) => void,
  ): Generation {
    const { signal } = options;
    const id = this.#nextGeneration++;
    let sent = false;
    let cancelled = false;
    const cancel = (): void => {
      cancelled = true;
      if (sent) this.ask('cancel', id).catch(() => {});
    };
    const generation = new Generation({ cancel }, signal);
    this.#generations.set(id, { generation, heard });
    const run = async (): Promise<void> => {
      try {
        throwIfAborted(signal);
        // Awaits only promises, so that generations start in the order of the calls.
        const input = prompt();
        const spec = generateSpec(
          input instanceof Promise ? await input : input,
          options,
          this.info.vocabSize,
          sequence,
        );
        if (options.images) spec.images = await imageSpecs(options.images);
        throwIfAborted(signal);
        const ending = this.ask('generate', id, { ...spec, ...extra });
        sent = true;
        if (cancelled) cancel();
        const { read: tokens, ...result } = await ending;
        if (tokens) read?.(tokens);
        generation.finish(result);
      } catch (error) {
        generation.fail(error);
      }
      this.#generations.delete(id);
    };
    queue(run).catch((error) => generation.fail(error));
    return generation;
  }

  /** @internal Whether a turn that begins now has to wait. */
  get waits(): boolean {
    return this.#turns.waits;
  }

  /** @internal Runs `work` after earlier changes and before later ones. It calls ask(). */
  turn<T>(work: () => Promise<T>): Promise<T> {
    return this.#turns.call(work);
  }

  /** @internal A call to the worker that has the model, in a turn. */
  ask<Name extends keyof EngineCalls>(
    method: Name,
    ...args: Parameters<EngineCalls[Name]>
  ): Promise<ReturnType<EngineCalls[Name]>> {
    return this.#link.rpc.call(method, ...args);
  }

  /** @internal A call to the worker in a turn of its own. */
  async call<Name extends keyof EngineCalls>(
    method: Name,
    ...args: Parameters<EngineCalls[Name]>
  ): Promise<ReturnType<EngineCalls[Name]>> {
    const taken = this.#turns.waits ? snapshot(args) : args;
    return this.turn(() => this.ask(method, ...taken));
  }

  /**
   * Token ids of a string.
   *
   * @example
   * ```ts
   * const tokens = await engine.tokenize('Once upon a time');
   * const more = await engine.tokenize(' there was', { continuation: true }); // no BOS
   * ```
   */
  async tokenize(text: string, options: TokenizeOptions = {}): Promise<Int32Array> {
    onlyKnown('tokenize()', options, 'addSpecial parseSpecial literalSpans continuation');
    if (typeof text !== 'string') invalid('tokenize() takes a string.');
    return this.call('tokenize', text, tokenizeSpec(options));
  }

  /**
   * Text of token ids. Control tokens are omitted unless `skipSpecialTokens` is false.
   *
   * @example
   * ```ts
   * const tokens = await engine.tokenize('Once upon a time');
   * console.log(await engine.detokenize(tokens));
   * ```
   */
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

  /**
   * Number of tokens of a string, BOS included.
   *
   * @example
   * ```ts
   * const text = 'Once upon a time';
   * const fits = (await engine.countTokens(text)) <= engine.info.plan.contextLength;
   * ```
   */
  async countTokens(text: string): Promise<number> {
    return (await this.tokenize(text)).length;
  }

  /**
   * Raw logits after each token of a sequence at the start of the context, shape
   * [tokens × vocabSize]. Each token is a forward pass of its own. For encoder-decoder models,
   * `tokens` are the encoder's input, and there is one row per element of `decoderTokens`.
   *
   * @example
   * ```ts
   * const tokens = await engine.tokenize('Once upon a');
   * const logits = await engine.logits(tokens);
   * const last = logits.subarray(-engine.info.vocabSize); // scores of the next token
   * ```
   */
  logits(
    tokens: ArrayLike<number>,
    options?: CallOptions & { decoderTokens?: ArrayLike<number> },
  ): Promise<Float32Array> {
    const { decoderTokens, ...call } = { ...options };
    return abortable(options && call, async () => {
      const ids = (list: ArrayLike<number>): Int32Array => tokenIds(list, this.info.vocabSize);
      const given = decoderTokens
        ? Int32Array.from([...ids(tokens).map((token) => ~token), ...ids(decoderTokens)])
        : ids(tokens);
      return this.#stoppable(call.signal, (id) => this.ask('logits', id, given));
    });
  }

  /**
   * What a picture of this size (pixels) will cost, before it is read. Needs a projector. Errors:
   * NOT_SUPPORTED, INVALID_ARGUMENT.
   *
   * @example
   * ```ts
   * const { tokens, bytes } = await engine.imageCost(1280, 960);
   * console.log(`${tokens} tokens, and ${bytes} bytes while it is read`);
   * ```
   */
  imageCost(width: number, height: number): Promise<ImageCost> {
    return this.call('imageCost', count('width', width), count('height', height));
  }

  /**
   * Statistics, as the worker last reported them (ten times per second).
   *
   * @example
   * ```ts
   * const { tokensPerSecond, draftedTokens, acceptedTokens } = engine.stats();
   * console.log(`${tokensPerSecond.toFixed(1)} tokens per second`);
   * console.log(`${acceptedTokens} of ${draftedTokens} draft tokens accepted`);
   * ```
   */
  stats(): EngineStats {
    return { ...this.#snapshot.stats };
  }

  /**
   * Memory in use by purpose, in bytes.
   *
   * @example
   * ```ts
   * const { total, budget, weights, kv } = engine.memory();
   * console.log(`${total} of ${budget} bytes: ${weights} weights, ${kv} KV cache`);
   * ```
   */
  memory(): MemoryReport {
    return { ...this.#snapshot.memory };
  }

  /**
   * State of all weight units, in the order of computation.
   *
   * @example
   * ```ts
   * const units = engine.weightUnits();
   * const present = units.filter(({ state }) => state === 'pinned' || state === 'resident');
   * console.log(`${present.length} of ${units.length} weight units are in memory`);
   * ```
   */
  weightUnits(): WeightUnit[] {
    return Array.from(this.#snapshot.units, (byte, unit) => ({
      unit,
      state: kUnitStates[byte & 15] ?? 'absent',
      computing: byte >= 16,
    }));
  }

  /**
   * Changes the memory budget to `bytes` ('auto': the default of load()). Conversations continue. Waits
   * for running generations, then moves to a new worker whose memory has the new maximum, and reads
   * the weights again from the model cache. If it throws or is aborted, everything is as before.
   *
   * @example
   * ```ts
   * await engine.setMemoryBudget(256 * 2 ** 20); // sessions continue with fewer pinned weights
   * console.log(engine.info.plan.pinned);
   * ```
   */
  setMemoryBudget(bytes: number | string, options?: CallOptions): Promise<void> {
    return abortable(options, () => {
      const memoryBudget = byteCount('memoryBudget', bytes ?? NaN);
      const { signal } = options ?? {};
      // The files are closed for a moment, in which no deletion may begin.
      const move = () => Engine.modelCache.turns.call(() => this.#move(memoryBudget, signal));
      return this.#turns.change(move, signal);
    });
  }

  /**
   * Replaces all LoRA adapters; an empty list removes them. The model stays loaded, and KV caches
   * are recomputed when they are used. Changes apply in the order of the calls, whichever files
   * arrive first. If it throws or is aborted, everything is as before.
   *
   * @example
   * ```ts
   * await engine.setAdapters([{ source: 'adapter.gguf', scale: 0.5 }]);
   * console.log(await engine.generate('Once upon a time', { maxTokens: 64 }).text());
   * await engine.setAdapters([]); // the model without adapters again
   * ```
   */
  setAdapters(lora: NonNullable<EngineOptions['lora']>, options?: CallOptions): Promise<void> {
    return abortable(options, () => {
      const files = adapterSpecs(snapshot(lora), this.#options); // read beside other changes
      files.catch(() => {});
      const { signal } = options ?? {};
      return this.#turns.change(async () => {
        const { lora: before } = this.#spec;
        const specs = await abortable({ signal }, () => files);
        await this.ask('setAdapters', specs);
        if (signal?.aborted) await this.ask('setAdapters', before);
        else this.#spec = { ...this.#spec, lora: specs };
      }, signal);
    });
  }

  async #move(memoryBudget: number, signal: AbortSignal | undefined): Promise<void> {
    const link = this.#link;
    const spec = this.#spec;
    const { cache } = spec.io;
    const left = await link.rpc.call('release');
    const { bytesCached, bytesTotal } = this.#snapshot.stats;
    const { plan } = this.info;
    try {
      if (this.#disposing) throw disposed();
      const next = (this.#next = this.#connect());
      const moved: LoadSpec = {
        ...spec,
        memoryBudget,
        device: spec.device === 'wasm' ? spec.device : 'auto', // a GPU may be lost by now
        gpuKernels: this.#snapshot.stats.gpuKernels, // a new measurement could choose others
        engine: {
          ...spec.engine,
          contextLength: plan.contextLength,
          contextFrom: plan.contextFrom,
          kvType: plan.kvType,
          kvCapacity: (spec.engine.kvPolicy ?? 'full') !== 'full' ? plan.kvCapacity : 0,
        },
        wasm: { ...spec.wasm, module: this.#module },
        // A complete file needs no network, and a file that was just reloaded is up to date.
        io: {
          ...spec.io,
          cache: bytesCached === bytesTotal ? 'only' : cache === 'reload' ? 'default' : cache,
        },
      };
      const { info } = await abortable({ signal }, () => next.rpc.call('load', moved, true));
      if (info.bytes !== this.info.bytes || info.name !== this.info.name)
        throw new SluiceError('SOURCE_CHANGED', 'The model has changed; load it again.');
      (this as { info: ModelInfo }).info = info;
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
    this.#snapshot = await this.#link.rpc.call('begin', left, !this.#stored);
  }

  /**
   * A copy of the KV cache of generate(), with its tokens. The first call reads samples of the
   * model's file, which the state then belongs to.
   *
   * @example
   * ```ts
   * const prompt = 'A long document …';
   * await engine.generate(prompt, { maxTokens: 1 }).result;
   * const saved = await engine.saveState();
   * ```
   */
  saveState(options?: CallOptions): Promise<SavedState> {
    return abortable(options, () => this.call('saveState', 0));
  }

  /**
   * Restores a KV cache that saveState() returned. A prompt that begins with its tokens then starts
   * after them. CORRUPT if the state is damaged or belongs to another model; the message names what
   * differs: metadata, weights, adapters, KV cache types or policy, RoPE factors, skipped layers.
   *
   * @example
   * ```ts
   * const saved = await engine.saveState();
   * await engine.generate('Another prompt', { maxTokens: 8 }).result;
   * await engine.restoreState(saved);
   * ```
   */
  restoreState(saved: SavedState, options?: CallOptions): Promise<void> {
    return abortable(options, async () => {
      checkSaved(saved);
      return this.call('restoreState', 0, saved.state);
    });
  }

  /**
   * Ends the engine and frees its memory. Calls after the first have no effect.
   *
   * @example
   * ```ts
   * const engine = await Engine.load(model);
   * console.log(await engine.generate('Once upon a time', { maxTokens: 64 }).text());
   * await engine.dispose();
   * ```
   */
  dispose(): Promise<void> {
    this.#disposing ??= this.#shutDown();
    return this.#disposing;
  }

  /**
   * Supports `await using`; same as dispose().
   *
   * @example
   * ```ts
   * await using engine = await Engine.load(model); // disposed of at the end of the block
   * console.log(await engine.generate('Once upon a time', { maxTokens: 64 }).text());
   * ```
   */
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
        try {
          heard?.(message.pieces);
          generation?.receive(message.pieces);
        } catch (error) {
          generation?.fail(error);
        }
        break;
      }
      case 'downloaded':
        this.#stored = !message.error;
        if (message.error) this.#onDownloaded.reject(deserializeError(message.error));
        else this.#onDownloaded.resolve();
        break;
      case 'progress':
        if (message.progress.phase === 'cached') persistOnce();
        this.#options.onProgress?.(message.progress);
        break;
    }
  }

  #onGone(error: unknown): void {
    this.#close?.();
    this.#onDownloaded.reject(error);
    this.#turns.end(error);
    for (const { generation } of this.#generations.values()) generation.fail(error);
  }
}
