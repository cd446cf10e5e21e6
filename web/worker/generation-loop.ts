// Drives a loaded engine in its worker: steps forward passes and generations, and waits for
// weights. A step() takes about as long as a layer at most, and events are handled between steps.
// So the event loop is never blocked, and a cancel takes effect immediately.

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

/** Set by the caller to cancel work. */
export interface CancelFlag {
  cancelled: boolean;
}

/** Callbacks of a generation, and its cancel flag. */
interface GenerationCallbacks {
  cancelFlag: CancelFlag;
  /** The prompt was accepted; the sequence now is the prompt. */
  begun(): void;
  /** The prompt is computed. No generation is stepped until this settles. */
  prompted?(): Promise<void>;
  pieces(pieces: GeneratedToken[]): void;
}

/** A running generation in its slot. */
interface ActiveGeneration extends GenerationCallbacks {
  slot: number;
  text: string;
  spec: GenerateSpec;
  resolve(result: GenerationResult): void;
  reject(error: unknown): void;
}

/** Pending weight reads of one engine. */
interface Arriving {
  queue: QueueView;
  /** Number of completed reads when a step was last blocked; -1: none. */
  seen: number;
}

export class GenerationLoop {
  /** Error of a failed read; cleared when the next work starts. */
  ioError: unknown = null;
  closed = false;
  /** Reads of the model, and of its draft model. */
  #arriving: Arriving[] = [];
  #lastYield = 0;
  #opsPerStep = kLayerOps;
  #idling = false;
  /** Number of work items in progress, and the generations among them. */
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

  /** Connects the engine's fill queues to the I/O, which then serves its read requests. */
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
   * Runs `work`. Reads that failed before are retried. Steps start short, because an operation on a
   * prompt can take a hundred times as long as the same operation on one token.
   */
  async withLock<T>(work: () => Promise<T>): Promise<T> {
    this.#working++;
    try {
      await yieldToEvents(); // handles a cancel that arrived while this was queued
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

  /** Runs a generation on the sequence in `slot`, in parallel with those of other slots. */
  answer(
    slot: number,
    tokens: Int32Array,
    spec: GenerateSpec,
    callbacks: GenerationCallbacks,
  ): Promise<GenerationResult> {
    const { binding } = this.#engine;
    binding.select(slot);
    if (!binding.begin(tokens, spec)) throw errorOf(binding);
    callbacks.begun();
    this.#reported = 0;
    return new Promise<GenerationResult>((resolve, reject) => {
      this.#answers.add({ ...callbacks, slot, text: '', spec, resolve, reject });
      if (!this.#driving) void this.#drive();
    }).finally(() => this.keepStates(slot));
  }

  /** Steps all generations until none are left. An error that is not one slot's ends all. */
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
        else await this.#settlePrompts();
      } catch (error) {
        for (const answering of all) this.#end(answering, error);
      }
    }
    this.#driving = false;
  }

  async #settlePrompts(): Promise<void> {
    const { binding } = this.#engine;
    for (const answering of this.#answers) {
      const { slot, prompted } = answering;
      if (!prompted) continue;
      binding.select(slot);
      if (binding.answer().inPrompt) continue;
      delete answering.prompted;
      await prompted();
    }
  }

  /** Delivers new tokens of a generation, and finishes it if it has ended or was cancelled. */
  readonly #hear = (answering: ActiveGeneration): void => {
    const { binding } = this.#engine;
    binding.select(answering.slot);
    this.#deliver(answering);
    const outcome = binding.outcome();
    if (outcome === Step.Failed) this.#end(answering, this.#failure());
    else if (outcome === Step.Done || answering.cancelFlag.cancelled) this.#end(answering);
  };

  #deliver(answering: ActiveGeneration): void {
    const pieces = this.#engine.binding.takePieces();
    if (pieces.length === 0) return;
    const counts = answering.spec.reportCounts && this.#result('');
    for (const piece of pieces) {
      answering.text += piece.text;
      if (counts) piece.counts = counts;
    }
    answering.pieces(pieces);
  }

  #end(answering: ActiveGeneration, error?: unknown): void {
    const { binding } = this.#engine;
    this.#answers.delete(answering);
    binding.select(answering.slot);
    binding.cancel(); // no effect if it has already ended
    this.#deliver(answering);
    if (error === undefined) answering.resolve(this.#result(answering.text));
    else answering.reject(error);
  }

  /** Completes the forward pass that append() started. Returns false if it was cancelled. */
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
      if (step === Step.Failed) throw this.#failure();
    }
    return true;
  }

  /** Gives memory the recurrent states that only a GPU has, for what reads or moves the sequence. */
  keepStates(slot?: number): Promise<void> | undefined {
    const { gpu, binding } = this.#engine;
    return gpu?.executor.states?.keep(binding, slot);
  }

  /** Error of a forward pass. After a loss of the GPU, memory may be too small for its KV cache. */
  #failure(): SluiceError {
    const { binding, gpu, kvOnGpu } = this.#engine;
    const error = errorOf(binding);
    if (!kvOnGpu || error.code !== 'BUDGET_TOO_SMALL' || (gpu && !gpu.executor.lost)) return error;
    return new SluiceError('DEVICE_LOST', `The GPU is lost, and ${error.message}`);
  }

  /** Loads weights while no other work is in progress. */
  async idle(): Promise<void> {
    if (this.#idling) return;
    this.#idling = true;
    const { binding, io } = this.#engine;
    while (!this.closed && !this.#working && this.ioError === null) {
      // Counted before poll(), so that no completion after it is missed.
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

  /** Waits for the model's pending reads. */
  async quiet(): Promise<void> {
    for (const { queue } of this.#arriving) {
      for (let seen = 0; (seen = queue.completed) !== queue.pushed;) {
        if (this.ioError !== null) throw this.ioError;
        this.#engine.io.poke();
        await queue.waitCompleted(seen, kReportMs);
        await yieldToEvents();
      }
    }
  }

  /**
   * One iteration: yields to events if it is time, steps, passes the result to `onStep`, and waits
   * if weights are missing. Returns false if the work was cancelled.
   */
  async #turn(unwanted: () => boolean, onStep: (step: Step) => void): Promise<boolean> {
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
    onStep(step);
    if (step === Step.Blocked) {
      if (!(await gpu?.executor.serve(() => unwanted() || this.closed))) await this.#waitForBytes();
    } else if (step === Step.Progress) this.#adapt(performance.now() - before);
    return true;
  }

  /** Adapts the step size so that step() takes between a quarter and all of kSliceMs. */
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
    if (waiting.seen !== seen) return; // a read completed since the last step
    if (this.ioError !== null) throw this.ioError;
    if (io.concurrent) queue.blockCompleted(seen, kBlockMs);
    else await queue.waitCompleted(seen, 5 * kBlockMs);
  }

  /** Emits the progress of all running generations together. */
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

  /** Copies the selected generation's progress to the statistics. */
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
    const { contextLength, kvCapacity } = this.#engine.info.plan;
    const used = promptTokens + completionTokens;
    const limit = Math.floor(contextLength * 0.9);
    // A session that only grows passes the limit once. A cache that evicts has no end.
    if (cachedTokens < limit && used >= limit && kvCapacity >= contextLength)
      this.#reporter.progress({
        phase: 'warning',
        code: 'CONTEXT_NEARLY_FULL',
        message: `The context is nearly full: ${Math.min(used, contextLength)} of ${contextLength} tokens.`,
      });
    return {
      text,
      finishReason: answer.finish || 'cancelled',
      stopString: answer.stopString || undefined,
      usage: {
        promptTokens,
        cachedTokens,
        completionTokens,
        totalTokens: used,
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
