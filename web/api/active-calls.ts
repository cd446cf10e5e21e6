// Calls with a number, about which the worker reports until they end: generations and embeddings.
// The worker stops one when its signal aborts.

import type { EngineCalls } from '../protocol/calls.js';
import { abortable, throwIfAborted } from '../protocol/errors.js';
import type { GenerateSpec, WorkerEvent } from '../protocol/messages.js';
import type { GenerateOptions } from '../protocol/options.js';
import type { Turns } from '../protocol/turns.js';
import type { GeneratedToken } from '../protocol/types.js';
import { Generation } from './generation.js';
import { imageSpecs } from './images.js';
import { generateSpec } from './options.js';

/** A worker, called in turns. */
export interface Asked {
  readonly turns: Turns;
  ask<Name extends keyof EngineCalls>(
    method: Name,
    ...args: Parameters<EngineCalls[Name]>
  ): Promise<ReturnType<EngineCalls[Name]>>;
}

/** What a generation runs on, and who else gets its tokens. */
export interface GenerationPlace {
  /** The engine's own sequence, unless given; -1: the one with the longest common prefix. */
  sequence?: number;
  heard?: (pieces: GeneratedToken[]) => void;
  queue?: (run: () => Promise<void>) => Promise<void>;
  /** Replaces what the options say. */
  extra?: Partial<GenerateSpec> | undefined;
  /** Gets the tokens of the prompt. */
  read?: (tokens: Int32Array) => void;
}

export class ActiveCalls {
  readonly #worker: Asked;
  readonly #generations = new Map<
    number,
    { generation: Generation; heard: GenerationPlace['heard'] }
  >();
  readonly #embedded = new Map<number, (done: number) => void>();
  #next = 1;

  constructor(worker: Asked) {
    this.#worker = worker;
  }

  /** Queues a generation. It starts when `prompt` has resolved. */
  generate(
    prompt: () => string | ArrayLike<number> | Promise<Int32Array | string>,
    options: GenerateOptions,
    vocabSize: number,
    { sequence = 0, heard, queue, extra, read }: GenerationPlace = {},
  ): Generation {
    const { signal } = options;
    const worker = this.#worker;
    const id = this.#next++;
    let sent = false;
    let cancelled = false;
    const cancel = (): void => {
      cancelled = true;
      if (sent) worker.ask('cancel', id).catch(() => {});
    };
    const generation = new Generation({ cancel }, signal);
    this.#generations.set(id, { generation, heard });
    const run = async (): Promise<void> => {
      try {
        throwIfAborted(signal);
        // Awaits only promises, so that generations start in the order of the calls.
        const input = prompt();
        const given = input instanceof Promise ? await input : input;
        const spec = generateSpec(given, options, vocabSize, sequence);
        if (options.images) spec.images = await imageSpecs(options.images, signal);
        throwIfAborted(signal);
        const ending = worker.ask('generate', id, { ...spec, ...extra });
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
    (queue ? queue(run) : worker.turns.call(run)).catch((error) => generation.fail(error));
    return generation;
  }

  /** Runs `work` in a turn, with a number by which the worker stops it when the signal aborts. */
  stoppable<T>(
    signal: AbortSignal | undefined,
    work: (id: number) => Promise<T>,
    over: (id: number) => void = () => {},
  ): Promise<T> {
    const id = this.#next++;
    const cancel = (): void => void this.#worker.ask('cancel', id).catch(() => {});
    return abortable({ signal }, async () => {
      signal?.addEventListener('abort', cancel);
      try {
        return await this.#worker.turns.call(async () => {
          throwIfAborted(signal);
          return work(id);
        });
      } finally {
        signal?.removeEventListener('abort', cancel);
        over(id);
      }
    });
  }

  /** The same for embeddings, whose progress `work` gives to `on()`. */
  embed<T>(
    signal: AbortSignal | undefined,
    work: (id: number, on: (onProgress: (done: number) => void) => void) => Promise<T>,
  ): Promise<T> {
    return this.stoppable(
      signal,
      (id) => work(id, (onProgress) => void this.#embedded.set(id, onProgress)),
      (id) => this.#embedded.delete(id),
    );
  }

  receive(message: WorkerEvent): void {
    if (message.event === 'embedded') this.#embedded.get(message.call)?.(message.done);
    if (message.event !== 'piece') return;
    const { generation, heard } = this.#generations.get(message.generation) ?? {};
    try {
      heard?.(message.pieces);
      generation?.receive(message.pieces);
    } catch (error) {
      generation?.fail(error);
    }
  }

  fail(error: unknown): void {
    for (const { generation } of this.#generations.values()) generation.fail(error);
  }
}
