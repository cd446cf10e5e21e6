// The public Engine: one loaded model in its own worker (engine-worker.ts). stats(), memory() and
// weightUnits() return immediately what the worker last sent. Everything else is a call to the
// worker.

import { ChatCompletions, Completions } from '../chat/completions.js';
import type {
  ChatMessage,
  ContentPart,
  PromptOptions,
  Prompts,
  RenderedChat,
} from '../chat/engine.js';
import type { ChatCompletionParams } from '../chat/openai.js';
import { chatModule } from '../chat/prompt.js';
import type { EngineCalls } from '../protocol/calls.js';
import {
  abortable,
  invalid,
  onlyKnown,
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
import type { EmbedSpec, EmbedTexts, GenerateSpec } from '../protocol/messages.js';
import { unmarked } from '../protocol/literal-spans.js';
import { snapshot } from '../protocol/snapshot.js';
import type {
  EngineStats,
  MemoryReport,
  ModelInfo,
  ImageCost,
  SavedState,
} from '../protocol/types.js';
import type { GenerationPlace } from './active-calls.js';
import type { EmbedOptions, RerankOptions, RerankResult } from './embedding.js';
import { embedCalls, Embeddings } from './embeddings.js';
import type { EmbedCalls } from './embed.js';
import type { EngineWorker } from './engine-worker.js';
import { begun, type Generation } from './generation.js';
import { imageSpecs, isParts, markedPrompt } from './images.js';
import { openWorker } from './load.js';
import { modelCache } from './store.js';
import { adapterSpecs, byteCount, count, tokenIds, tokenizeSpec } from './options.js';
import { platform } from './platform.js';
import { checkSaved, kPromptOptions, Session, type SessionOptions } from './session.js';
import { weightUnits, type WeightUnit } from './weight-units.js';

/** A loaded model, in its own worker. Create it with Engine.load; end it with dispose(). */
export class Engine {
  /** Models cached in the browser's storage (Node: in the cache directory). */
  static readonly modelCache = modelCache;

  /** Metadata of the model and its memory plan. */
  readonly info: ModelInfo;
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
    const { downloaded } = this.#worker;
    platform().keepAlive?.(downloaded);
    return downloaded;
  }
  /** OpenAI-compatible chat completions: engine.chat.completions.create(). */
  readonly chat = { completions: new ChatCompletions(this) };
  /** OpenAI-compatible text completions: engine.completions.create(). */
  readonly completions = new Completions(this);
  /** OpenAI-compatible embeddings: engine.embeddings.create(). */
  readonly embeddings = new Embeddings(this);
  #renderer: Promise<Prompts> | null = null;
  readonly #worker: EngineWorker;

  private constructor(worker: EngineWorker, info: ModelInfo) {
    this.#worker = worker;
    this.info = info;
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
    const [worker, loaded] = await openWorker(
      (worker, spec) => {
        Object.assign(spec, { gpuMinBatch, gpuLayers: gpuLayers ?? spec.gpuLayers });
        return worker.ask('load', spec, false);
      },
      source,
      options,
    );
    worker.snapshot ??= loaded.snapshot;
    worker.module = loaded.module;
    return new Engine(worker, loaded.info);
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
    const [worker, info] = await openWorker(
      (worker, spec) => worker.ask('inspect', spec),
      source,
      options,
    );
    await worker.dispose();
    return info;
  }

  /**
   * Generates text after a prompt: a string, token ids, or parts of text and pictures. Calls run one
   * after another on the engine's own sequence, and the KV cache is reused if prompts share a
   * prefix. Use session() for conversations.
   *
   * @example
   * ```ts
   * const options = { maxTokens: 64, temperature: 0.7 };
   * for await (const { text } of engine.generate('Once upon a time', options)) console.log(text);
   * ```
   */
  generate(
    prompt: string | ArrayLike<number> | readonly ContentPart[],
    options: GenerateOptions = {},
  ): Generation {
    if (isParts(prompt))
      return begun(options, (own) => {
        const { text, images } = markedPrompt(snapshot(prompt), own.images);
        Object.assign(own, { literalSpans: true, ...(images.length > 0 && { images }) });
        return this.start(() => text, own);
      });
    const taken = this.waits ? snapshot(prompt) : prompt;
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
    const queue = (run: () => Promise<void>) => this.#worker.turns.add(run());
    return begun(options, (own) => this.start(() => prompt, own, { sequence: -1, queue, extra }));
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
    return this.#worker.calls.embed(signal, async (id, on) => {
      const run = (texts: EmbedTexts, spec: EmbedSpec, onProgress: (done: number) => void) => {
        throwIfAborted(signal);
        on(onProgress);
        return this.ask('embed', id, texts, spec);
      };
      return work(await embedCalls(this.info, run));
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
          ? this.ask('layout', text, {
              ...tokenizeSpec(how),
              images: await imageSpecs(images, signal),
            })
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
          this.#worker.options.onProgress,
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
    return this.#worker.spec.engine.structuredOutput !== false;
  }

  /** @internal Queues a generation on a sequence. It starts when `prompt` has resolved. */
  start(
    prompt: () => string | ArrayLike<number> | Promise<Int32Array | string>,
    options: GenerateOptions,
    place?: GenerationPlace,
  ): Generation {
    return this.#worker.calls.generate(prompt, options, this.info.vocabSize, place);
  }

  /** @internal Whether a turn that begins now has to wait. */
  get waits(): boolean {
    return this.#worker.turns.waits;
  }

  /** @internal Runs `work` after earlier changes and before later ones. It calls ask(). */
  turn<T>(work: () => Promise<T>): Promise<T> {
    return this.#worker.turns.call(work);
  }

  /** @internal A call to the worker that has the model, in a turn. */
  ask<Name extends keyof EngineCalls>(
    method: Name,
    ...args: Parameters<EngineCalls[Name]>
  ): Promise<ReturnType<EngineCalls[Name]>> {
    return this.#worker.ask(method, ...args);
  }

  /** @internal A call to the worker in a turn of its own. */
  async call<Name extends keyof EngineCalls>(
    method: Name,
    ...args: Parameters<EngineCalls[Name]>
  ): Promise<ReturnType<EngineCalls[Name]>> {
    const taken = this.waits ? snapshot(args) : args;
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
      return this.#worker.calls.stoppable(call.signal, (id) => this.ask('logits', id, given));
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
    return { ...this.#worker.snapshot.stats };
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
    return { ...this.#worker.snapshot.memory };
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
    return weightUnits(this.#worker.snapshot.units);
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
      const moved = (info: ModelInfo) => void ((this as { info: ModelInfo }).info = info);
      const move = () => this.#worker.move(memoryBudget, signal, this.info, moved);
      return this.#worker.turns.change(() => modelCache.turns.call(move), signal);
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
      const worker = this.#worker;
      const files = adapterSpecs(snapshot(lora), worker.options); // read beside other changes
      files.catch(() => {});
      const { signal } = options ?? {};
      return worker.turns.change(async () => {
        const { lora: before } = worker.spec;
        const specs = await abortable({ signal }, () => files);
        await this.ask('setAdapters', specs);
        if (signal?.aborted) await this.ask('setAdapters', before);
        else worker.spec = { ...worker.spec, lora: specs };
      }, signal);
    });
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
    return this.#worker.dispose();
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
}
