// Handlers for all calls to the engine's worker. It opens one model once, and calls are queued. A
// budget change moves to another worker (api/engine.ts): this one then closes its files and hands
// over its sequences. It is terminated, or reopens the files if the other worker failed to load.

import { collectGarbage } from '../io/force-gc.js';
import type { Io } from '../io/io.js';
import type { EngineCalls, HandoverState, Loaded } from '../protocol/calls.js';
import { abortError, SluiceError, type ErrorCode, type PlainError } from '../protocol/errors.js';
import type {
  AdapterSpec,
  Embedded,
  EmbedSpec,
  GenerateSpec,
  LayoutSpec,
  LoadSpec,
  Port,
  Snapshot,
} from '../protocol/messages.js';
import { serveRpc, Transferred } from '../protocol/rpc.js';
import type { GenerationResult, ImageCost, SavedState } from '../protocol/types.js';
import type { EmbedInfo } from './binding.js';
import { embed } from './embedding.js';
import { WorkQueue, type Choice } from './queue.js';
import { stageAdapters, Loading, type HostPlatform, type Opened } from './loading.js';
import { errorOf } from './header-loader.js';
import { Reporter } from './reporter.js';
import { GenerationLoop, type CancelFlag } from './generation-loop.js';
import { SessionSwap } from './session-swap.js';
import { Sequences } from './sequences.js';
import { identifier } from './fingerprint.js';
import type { PicturePrompts } from './pictures/types.js';
import { flagsOf, tokenize } from './tokenize.js';

const kNever: CancelFlag = { cancelled: false };

export class RpcHandlers {
  readonly #reporter: Reporter;
  #io: Io | null = null;
  #engine!: Opened;
  #running!: GenerationLoop;
  #sequences!: Sequences;
  #identify!: () => Promise<void>;
  readonly #line = new WorkQueue(() => this.#engine.info.plan.parallel);
  readonly #cancelFlags = new Map<number, CancelFlag>();
  /** The files are closed because another engine was going to read them. */
  #released = false;
  /** Structured output has no memory yet: the first constraint has the budget planned again. */
  #unreserved = false;
  #pictured: PicturePrompts | undefined;
  readonly #platform: HostPlatform;
  readonly #again: () => void;

  /** `again`: has the worker wait for another role. */
  constructor(port: Port, platform: HostPlatform, again: () => void) {
    this.#platform = platform;
    this.#again = again;
    this.#reporter = new Reporter(port);
    serveRpc<EngineCalls>(port, {
      load: (spec, held) => this.#load(spec, held),
      begin: (left, download) => this.#begin(left, download),
      inspect: (spec) => this.#loading(spec).inspect((io) => (this.#io = io)),
      generate: (id, spec) => this.#generate(id, spec),
      layout: (prompt, spec) => this.#layout(prompt, spec),
      cancel: (id) => {
        const cancelFlag = this.#cancelFlags.get(id);
        if (cancelFlag) cancelFlag.cancelled = true;
      },
      tokenize: (text, spec) => tokenize(this.#engine.binding, text, spec),
      embed: (id, texts, spec) => this.#embed(id, texts, spec),
      controlTokens: () => this.#engine.binding.controlTokens(),
      tokenBytes: (tokens) => Array.from(tokens, (token) => this.#engine.binding.tokenBytes(token)),
      detokenize: (tokens, special) => this.#engine.binding.detokenize(tokens, special),
      logits: (id, tokens) =>
        this.#stoppable(id, (cancelFlag) => this.#work(() => this.#logits(tokens, cancelFlag))),
      saveState: (sequence) => this.#work(() => this.#saveState(sequence)),
      restoreState: (sequence, state) =>
        this.#work(async () => {
          await this.#identify();
          await this.#sequences.restore(sequence, state);
        }),
      fork: (from, to) =>
        this.#work(async () => {
          await this.#sequences.use(from);
          await this.#sequences.fork(to);
        }),
      imageCost: (width, height) => this.#work(() => this.#imageCost(width, height)),
      forget: (sequence) => this.#work(() => this.#sequences.forget(sequence)),
      setAdapters: (lora) => this.#work(() => this.#setAdapters(lora)),
      release: () => this.#work(() => this.#release()),
      resume: () => this.#work(async () => {}),
      dispose: (handedOver) => this.#dispose(handedOver),
    });
  }

  // --- from load to disposal -----------------------------------------------------------------

  #loading(spec: LoadSpec): Loading {
    return new Loading(spec, this.#platform, this.#reporter, (error) => {
      this.#running.ioError = error; // reads only start once #running exists
    });
  }

  /** `held`: reads only the header until begin(). */
  async #load(spec: LoadSpec, held: boolean): Promise<Loaded> {
    const started = performance.now();
    this.#engine = await this.#loading(spec).load((io) => (this.#io = io));
    this.#unreserved = spec.engine.structuredOutput === undefined;
    const { binding, info, compiled: module } = this.#engine;
    const { stats } = this.#reporter;
    stats.threads = binding.threads();
    stats.kernels = binding.kernelName();
    this.#running = new GenerationLoop(this.#engine, this.#reporter);
    this.#identify = identifier(binding, this.#engine.memory, this.#engine.io);
    if (!held) {
      await this.#begin(null, true);
      stats.loadMs = performance.now() - started;
      this.#reporter.progress({ phase: 'ready', bytesTotal: this.#engine.io.stats.bytesTotal });
    }
    return { info, module, snapshot: this.#reporter.snapshot(this.#engine) };
  }

  /** Starts loading weights, and takes over the state of a previous engine. */
  async #begin(left: HandoverState | null, download: boolean): Promise<Snapshot> {
    const engine = this.#engine;
    const reporter = this.#reporter;
    const { threads, kernels } = reporter.stats;
    if (left) reporter.stats = { ...left.stats, threads, kernels };
    this.#sequences = new Sequences(
      engine.binding,
      engine.memory,
      new SessionSwap(() => this.#platform.swapFiles()),
      left?.sequences,
      engine.info.plan.parallel,
      () => {
        const { kvOnGpu, gpu } = engine;
        return kvOnGpu ? (gpu && !gpu.executor.lost ? gpu.executor.kvState! : null) : undefined;
      },
    );
    await this.#running.attach();
    if (download) engine.io.startDownload();
    // A file that is not cached may be out of reach when a state is saved.
    if (!engine.io.stats.bytesLocal) void this.#identify().catch(() => {});
    void this.#running.idle();
    return reporter.snapshot(engine);
  }

  /**
   * Closes the files for an engine with another budget. That engine finds out whether the budget is
   * large enough: its context, KV cache type and adapters are those of now, not those of the load.
   */
  async #release(): Promise<HandoverState> {
    const sequences = await this.#sequences.leave();
    const { bytesFetched, bytesFromCache: bytesFromCache } = this.#reporter.counters(this.#engine);
    this.#released = true;
    this.#engine.gpu?.close(); // frees its memory for the other engine
    await this.#io!.close(); // not the threads' files: those are shared and may stay in use
    return {
      stats: { ...this.#reporter.stats, bytesFetched, bytesFromCache: bytesFromCache },
      sequences: sequences,
    };
  }

  /** Reopens the files that release() closed. If it fails, the next call tries again. */
  async #reopen(): Promise<void> {
    const { io } = this.#engine;
    await io.reopen();
    this.#released = false;
    this.#engine.gpu = await this.#engine.gpu?.reopen();
    await this.#running.attach();
    io.startDownload();
  }

  /**
   * Closes everything. The owner then terminates all of the engine's workers. True: this one has kept
   * a GPU's pipelines, and can load another model.
   */
  async #dispose(handedOver: boolean): Promise<boolean> {
    if (this.#running) this.#running.closed = true;
    await this.#line.do(null, async () => {});
    const kept = this.#engine?.gpu?.close();
    if (!handedOver) await this.#sequences?.forgetAll();
    await this.#io?.close();
    this.#engine?.binding.delete(); // threads handle no messages until they have ended
    await this.#engine?.wasm.shareFiles([]);
    if (!kept) return false;
    this.#again();
    setTimeout(collectGarbage); // the engine's memory, which nothing refers to by then
    return true;
  }

  // --- work ----------------------------------------------------------------------------------

  /** Queues work: exclusive, or on a sequence in parallel with others. */
  #work<T>(
    work: (sequence: number, begun: () => void) => Promise<T>,
    choice: Choice | null = null,
  ): Promise<T> {
    return this.#line.do(choice, (sequence, begun) =>
      this.#running.withLock(async () => {
        if (this.#released) await this.#reopen();
        return work(sequence, begun);
      }),
    );
  }

  /** Runs `work`, whose flag cancel(id) sets. */
  async #stoppable<T>(id: number, work: (cancelFlag: CancelFlag) => Promise<T>): Promise<T> {
    const cancelFlag = { cancelled: false };
    this.#cancelFlags.set(id, cancelFlag);
    try {
      return await work(cancelFlag);
    } finally {
      this.#cancelFlags.delete(id);
    }
  }

  #generate(id: number, spec: GenerateSpec): Promise<GenerationResult & { read?: Int32Array }> {
    return this.#stoppable(id, async (cancelFlag) => {
      const { prompt, sequence } = spec;
      if (prompt.length === 0) throw new SluiceError('PROMPT_EMPTY', 'The prompt is empty.');
      const pictures = spec.images && (await this.#pictures());
      let tokens =
        typeof prompt !== 'string'
          ? prompt
          : pictures
            ? new Int32Array()
            : tokenize(this.#engine.binding, prompt, spec);
      // Queued directly before the generation, so that no other comes between.
      const reserved =
        spec.constraint && this.#unreserved ? this.#work(() => this.#reserve()) : undefined;
      reserved?.catch(() => {}); // the generation throws it
      const read =
        pictures &&
        this.#work(async () => {
          try {
            tokens = await pictures.layout(prompt, spec, cancelFlag);
          } catch (error) {
            await pictures.end();
            throw error;
          }
        });
      read?.catch(() => {});
      const choice: Choice = (taken) =>
        sequence < 0 ? this.#sequences.best(tokens, taken, spec.cacheKey) : sequence;
      return await this.#work(async (sequence, begun) => {
        await reserved;
        await read;
        const slot = await this.#sequences.use(
          sequence,
          this.#line.taken,
          spec.sequence < 0 ? tokens : undefined,
        );
        // With pictures, others start after the prompt, which is computed alone.
        let reading = pictures;
        try {
          await reading?.encode(spec.cachePrompt, cancelFlag);
          const result = await this.#running.answer(slot, tokens, spec, {
            cancelFlag,
            begun: () => {
              this.#sequences.settle();
              if (!pictures) begun();
            },
            ...(pictures && {
              prompted: async () => {
                await pictures.release();
                reading = undefined;
                begun();
              },
            }),
            pieces: (pieces) => this.#reporter.post({ event: 'piece', generation: id, pieces }),
          });
          return pictures ? { ...result, read: tokens } : result;
        } finally {
          await reading?.end();
        }
      }, choice);
    });
  }

  /** What reads pictures, loaded on first use. */
  async #pictures(): Promise<PicturePrompts> {
    const { wasm, binding } = this.#engine;
    const { pictures } = wasm;
    if (!pictures)
      throw new SluiceError(
        'NOT_SUPPORTED',
        'The model takes text alone: load it with its projector to pass pictures.',
      );
    return (this.#pictured ??= (await this.#platform.pictures()).picturePrompts({
      engine: { ...this.#engine, pictures },
      running: this.#running,
      gpu: () => this.#engine.gpu,
      encoded: (device) => (this.#reporter.stats.visionDevice = device),
      failure: () => errorOf(binding),
      error: (code, message) => new SluiceError(code as ErrorCode, message),
      abort: () => abortError() as Error,
      flagsOf,
    }));
  }

  #embed(
    id: number,
    texts: readonly (string | Int32Array)[],
    spec: EmbedSpec,
  ): Promise<Transferred<Embedded>> {
    return this.#stoppable(id, (cancelFlag) =>
      this.#work(async () => {
        await this.#sequences.borrow();
        return embed(this.#engine.binding, this.#running, cancelFlag, texts, spec, (done) =>
          this.#reporter.post({ event: 'embedded', call: id, done }),
        );
      }),
    );
  }

  /**
   * Appends tokens to the selected sequence, or runs bidirectional attention over them for the
   * logits of token `row`. If that fails or is cancelled, the sequence is emptied.
   */
  async #read(tokens: Int32Array, row?: number, cancelFlag = kNever): Promise<void> {
    const { binding } = this.#engine;
    try {
      const begun = row === undefined ? binding.append(tokens) : binding.appendWhole(tokens, row);
      if (!begun) throw errorOf(binding);
      if (!(await this.#running.pass(cancelFlag))) throw abortError();
      await this.#running.keepStates();
    } catch (error) {
      binding.clear(); // also drops the pass, which would block the next one
      throw error;
    }
  }

  /**
   * Logits of each token of a sequence at the start of the context: [tokens × vocabulary]. Encoder
   * input is passed as ~token and has no rows.
   */
  async #logits(tokens: Int32Array, cancelFlag: CancelFlag): Promise<Transferred<Float32Array>> {
    await this.#sequences.borrow();
    const { causal } = JSON.parse(this.#engine.binding.embedInfo()) as EmbedInfo;
    const source = Math.max(
      0,
      tokens.findIndex((token) => token >= 0),
    ); // the encoder input is read together with the first decoder token
    let out = new Float32Array(0);
    for (let i = source; i < tokens.length; i++) {
      await (causal
        ? this.#read(tokens.subarray(i > source ? i : 0, i + 1), undefined, cancelFlag)
        : this.#read(tokens, i, cancelFlag));
      const row = this.#engine.binding.logits();
      if (i === source) out = new Float32Array((tokens.length - source) * row.length);
      out.set(row, (i - source) * row.length);
    }
    return new Transferred(out, [out.buffer]);
  }

  async #layout(prompt: string, spec: LayoutSpec): Promise<Int32Array> {
    const pictures = await this.#pictures();
    return this.#work(async () => {
      try {
        return await pictures.layout(prompt, spec, kNever);
      } finally {
        await pictures.end();
      }
    });
  }

  async #imageCost(width: number, height: number): Promise<ImageCost> {
    await this.#pictures(); // or the error that there are none
    const cost = JSON.parse(this.#engine.wasm.pictures!.cost(width, height)) as ImageCost & {
      error?: PlainError;
    };
    if (cost.error) throw errorOf(this.#engine.binding);
    return cost;
  }

  async #reserve(): Promise<void> {
    if (!this.#unreserved) return;
    await this.#running.quiet();
    const { binding } = this.#engine;
    if (!binding.reserveStructuredOutput()) throw errorOf(binding);
    this.#unreserved = false;
  }

  async #setAdapters(lora: AdapterSpec[]): Promise<void> {
    const { binding } = this.#engine;
    await this.#running.quiet();
    await stageAdapters(binding, lora);
    const set = binding.setAdapters();
    binding.forgetAdapters();
    if (!set) throw errorOf(binding);
    await this.#sequences.expire();
  }

  async #saveState(sequence: number): Promise<Transferred<SavedState>> {
    const sequences = this.#sequences;
    await this.#identify();
    await sequences.use(sequence);
    sequences.checkLost();
    if (sequences.missingTokens) {
      await this.#read(sequences.missingTokens);
      sequences.settle();
    }
    const state = await sequences.save();
    const tokens = this.#engine.binding.tokens().slice();
    return new Transferred({ tokens, state }, [tokens.buffer, state.buffer]);
  }
}
