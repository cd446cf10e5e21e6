// Work on a loaded engine, in its worker: steps passes and answers, waits for weights, and lets
// them arrive in between. Everything runs between two calls of step(), which last no longer than
// about a layer, so that the event loop is never blocked and a cancel is heard at once.

import { QueueView } from '../io/fill-server.js';
import { kDraftFiles } from '../io/io.js';
import { SluiceError } from '../protocol/errors.js';
import type { GenerateSpec } from '../protocol/messages.js';
import { yieldToEvents } from '../protocol/rpc.js';
import type { GenerationResult, GeneratedToken } from '../protocol/types.js';
import { Step, type Answer } from './binding.js';
import type { Opened } from './loading.js';
import { errorOf } from './header-loader.js';
import type { Reporter } from './reporter.js';

const kLayerOps = 10;
const kSliceMs = 12;
const kReportMs = 100;
const kBlockMs = 10;

/** What a caller can change its mind about. */
export interface CancelFlag {
  cancelled: boolean;
}

/** What is heard of an answer, and whether it is still wanted. */
interface GenerationCallbacks {
  cancelFlag: CancelFlag;
  /** The prompt was accepted: the sequence is what it says. */
  begun(): void;
  pieces(pieces: GeneratedToken[]): void;
}

/** An answer under way, in its slot. */
interface ActiveGeneration extends GenerationCallbacks {
  slot: number;
  text: string;
  resolve(result: GenerationResult): void;
  reject(error: unknown): void;
}

/** The weights of an engine on their way, as far as this thread has looked. */
interface Arriving {
  queue: QueueView;
  /** Completed reads that a blocked step has seen; -1: none. */
  seen: number;
}

export class GenerationLoop {
  /** A read that failed; it waits for begin(). */
  ioError: unknown = null;
  closed = false;
  /** Of the model, and of the one that guesses for it. */
  #arriving: Arriving[] = [];
  #lastYield = 0;
  #opsPerStep = kLayerOps;
  #idling = false;
  /** Pieces of work under way, and the answers among them. */
  #working = 0;
  readonly #answers = new Set<ActiveGeneration>();
  #driving = false;
  #reported = 0;
  readonly #engine: Opened;
  readonly #reporter: Reporter;

  constructor(engine: Opened, reporter: Reporter) {
    this.#engine = engine;
    this.#reporter = reporter;
  }

  /** Lets the engine's read requests be served. */
  async attach(): Promise<void> {
    const { memory, binding, io, info } = this.#engine;
    this.#arriving = [];
    for (const engine of info.plan.draft ? [binding, binding.draft()] : [binding]) {
      const first = this.#arriving.length * kDraftFiles;
      this.#arriving.push({ queue: new QueueView(memory, engine.fillQueue()), seen: -1 });
      await io.attach(memory, engine.fillQueue(), first);
    }
  }

  /**
   * Does a piece of work. What failed to load before is worth another try, and steps begin short,
   * since an operation on a prompt may take a hundred times as long as the last one on a token did.
   */
  async withLock<T>(work: () => Promise<T>): Promise<T> {
    this.#working++;
    try {
      await yieldToEvents(); // a cancel that came while waiting in line is heard first
      if (this.closed) throw new SluiceError('DISPOSED', 'The engine was disposed of.');
      this.#opsPerStep = kLayerOps;
      if (this.ioError !== null) {
        this.ioError = null;
        this.#engine.io.retry();
      }
      return await work();
    } finally {
      this.#working--;
      if (!this.closed) this.#reporter.publish(this.#engine, true);
      void this.idle();
    }
  }

  /**
   * One answer, from the prompt to its last token, on the sequence that is in `slot`; those of
   * other slots go on beside it.
   */
  answer(
    slot: number,
    tokens: Int32Array,
    spec: GenerateSpec,
    heard: GenerationCallbacks,
  ): Promise<GenerationResult> {
    const { binding } = this.#engine;
    binding.select(slot);
    if (!binding.begin(tokens, spec)) throw errorOf(binding);
    heard.begun();
    this.#reported = 0;
    return new Promise((resolve, reject) => {
      this.#answers.add({ ...heard, slot, text: '', resolve, reject });
      if (!this.#driving) void this.#drive();
    });
  }

  /**
   * Steps the answers, for as long as there are any. What fails for none of them alone fails for
   * all.
   */
  async #drive(): Promise<void> {
    const all = this.#answers;
    this.#driving = true;
    while (all.size) {
      try {
        const wanted = await this.#turn(
          () => [...all].every(({ cancelFlag }) => cancelFlag.cancelled),
          () => {
            this.#report();
            all.forEach(this.#hear);
          },
        );
        if (!wanted) all.forEach((answering) => this.#end(answering));
      } catch (error) {
        for (const answering of all) this.#end(answering, error);
      }
    }
    this.#driving = false;
  }

  /** Delivers what there is of an answer, and ends it where it has ended. */
  readonly #hear = (answering: ActiveGeneration): void => {
    const { binding } = this.#engine;
    binding.select(answering.slot);
    this.#deliver(answering);
    const outcome = binding.outcome();
    if (outcome === Step.Failed) this.#end(answering, errorOf(binding));
    else if (outcome === Step.Done || answering.cancelFlag.cancelled) this.#end(answering);
  };

  #deliver(answering: ActiveGeneration): void {
    const pieces = this.#engine.binding.takePieces();
    if (pieces.length === 0) return;
    for (const piece of pieces) answering.text += piece.text;
    answering.pieces(pieces);
  }

  #end(answering: ActiveGeneration, error?: unknown): void {
    const { binding } = this.#engine;
    this.#answers.delete(answering);
    binding.select(answering.slot);
    binding.cancel(); // what has ended stays as it is
    this.#deliver(answering);
    if (error === undefined) answering.resolve(this.#result(answering.text));
    else answering.reject(error);
  }

  /** The pass that append() has begun. False when it was cancelled. */
  async pass(cancelFlag: CancelFlag): Promise<boolean> {
    let step = Step.Progress as Step;
    while (step !== Step.Done) {
      if (
        !(await this.#turn(
          () => cancelFlag.cancelled,
          (reached) => (step = reached),
        ))
      )
        return false;
      if (step === Step.Failed) throw errorOf(this.#engine.binding);
    }
    return true;
  }

  /** Lets weights arrive, while there is nothing else to do. */
  async idle(): Promise<void> {
    if (this.#idling) return;
    this.#idling = true;
    const { binding, io } = this.#engine;
    while (!this.closed && !this.#working && this.ioError === null) {
      // All that poll() takes over, and perhaps some more.
      const before = this.#arriving.map(({ queue }) => ({ queue, completed: queue.completed }));
      binding.poll();
      io.poke();
      const going = before.filter(({ queue, completed }) => completed !== queue.pushed);
      if (going.length === 0) {
        this.#reporter.publish(this.#engine, true);
        break;
      }
      await Promise.race(
        going.map(({ queue, completed }) => queue.waitCompleted(completed, kReportMs)),
      );
      await yieldToEvents();
      if (!this.closed) this.#reporter.publish(this.#engine, false);
    }
    this.#idling = false;
  }

  /** Waits for the model's reads under way. */
  async quiet(): Promise<void> {
    const { queue } = this.#arriving[0]!;
    for (let seen = 0; (seen = queue.completed) !== queue.pushed;) {
      if (this.ioError !== null) throw this.ioError;
      this.#engine.io.poke();
      await queue.waitCompleted(seen, kReportMs);
      await yieldToEvents();
    }
  }

  /**
   * Lets events in when it is time for them, steps, has `heard` look at what it gave, and waits
   * where weights are missing. False: nobody wants it.
   */
  async #turn(unwanted: () => boolean, heard: (step: Step) => void): Promise<boolean> {
    const { binding, io, gpu } = this.#engine;
    const before = performance.now();
    if (before - this.#lastYield > kSliceMs) {
      this.#reporter.publish(this.#engine, false);
      await yieldToEvents();
      this.#lastYield = performance.now();
    }
    if (this.closed) throw new SluiceError('DISPOSED', 'The engine was disposed of.');
    if (unwanted()) return false;
    const step: Step = binding.step(this.#opsPerStep);
    io.poke();
    heard(step);
    if (step === Step.Blocked) {
      if (!(await gpu?.serve(() => unwanted() || this.closed))) await this.#waitForBytes();
    } else if (step === Step.Progress) this.#adapt(performance.now() - before);
    return true;
  }

  /** Keeps one step() at around half a slice, whatever the model's size. */
  #adapt(ms: number): void {
    if (ms < kSliceMs / 4 && this.#opsPerStep < 4096) this.#opsPerStep *= 2;
    else if (ms > kSliceMs && this.#opsPerStep > 1)
      this.#opsPerStep = Math.ceil(this.#opsPerStep / 2);
  }

  async #waitForBytes(): Promise<void> {
    const { binding, io } = this.#engine;
    const [own, draft] = this.#arriving;
    const waiting = draft && binding.drafting() ? draft : own!;
    const { queue, seen } = waiting;
    waiting.seen = queue.completed;
    if (waiting.seen !== seen) return; // something arrived since the engine looked
    if (this.ioError !== null) throw this.ioError;
    if (io.concurrent) queue.blockCompleted(seen, kBlockMs);
    else await queue.waitCompleted(seen, 5 * kBlockMs);
  }

  /** Progress of the answers under way, of several together. */
  #report(): void {
    const now = performance.now();
    if (now - this.#reported < kReportMs) return;
    this.#reported = now;
    const { binding } = this.#engine;
    let [prompt, tokens, tokensPerSecond] = [0, 0, 0];
    for (const { slot } of this.#answers) {
      binding.select(slot);
      const answer = this.#note();
      if (answer.inPrompt) prompt += answer.promptTokens - answer.cachedTokens;
      tokens += answer.completionTokens;
      tokensPerSecond += answer.tokensPerSecond;
    }
    if (tokens || !prompt)
      return this.#reporter.progress({ phase: 'generate', tokens, tokensPerSecond });
    const units = binding.unitStates();
    const layer = Math.max(
      0,
      units.findIndex((state) => state >= 16),
    );
    this.#reporter.progress({ phase: 'prefill', tokens: prompt, layer, layers: units.length });
  }

  /** The answer's figures, which become the counters'. */
  #note(): Answer {
    const answer = this.#engine.binding.answer();
    Object.assign(this.#reporter.stats, {
      promptTokens: answer.promptTokens,
      cachedTokens: answer.cachedTokens,
      promptMs: answer.promptMs,
      generatedTokens: answer.completionTokens,
      generateMs: answer.generateMs,
      timeToFirstTokenMs: answer.timeToFirstTokenMs,
      tokensPerSecond: answer.tokensPerSecond,
    });
    return answer;
  }

  #result(text: string): GenerationResult {
    const answer = this.#note();
    const { promptTokens, cachedTokens, completionTokens, promptMs, generateMs } = answer;
    return {
      text,
      finishReason: answer.finish || 'cancelled',
      stopString: answer.stopString || undefined,
      usage: {
        promptTokens,
        cachedTokens,
        completionTokens,
        totalTokens: promptTokens + completionTokens,
      },
      timings: {
        promptMs,
        generateMs,
        timeToFirstTokenMs: answer.timeToFirstTokenMs,
        promptTokensPerSecond: answer.promptTokensPerSecond,
        tokensPerSecond: answer.tokensPerSecond,
      },
    };
  }
}
