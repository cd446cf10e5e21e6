// Serves the engine's read requests. Watches the fill queue in the wasm memory (layout in
// src/residency/fill_queue.h), reads each range directly into its destination, and marks it done.
// Runs in the I/O worker, or without cross-origin isolation in the engine's worker. A failed
// request stays pending until retry().

import { yieldToEvents } from '../protocol/rpc.js';
import { kExperts, type ModelFile } from './model-file.js';

const kHeadBytes = 16;
const kRequestBytes = 32;
const kRow = 0xffffffff; // unit number of embedding rows
const kBurstMs = 8;
const kTimedBytes = 1 << 17;

/** Words of the queue's header. */
const enum Head {
  Pushed = 0,
  Completed = 1,
  Capacity = 2,
  Rate = 3,
}

/** Words of a request. Offset and Dst have two words each. */
const enum Request {
  Offset = 0,
  Dst = 2,
  Length = 4,
  File = 5,
  Unit = 6,
  State = 7,
}

const enum State {
  Pending = 1,
  Done = 2,
  /** Done; from now on the engine's threads may read these bytes from the file themselves. */
  Local = 3,
  Taken = 4,
}

type WaitAsync = (
  words: Int32Array,
  index: number,
  value: number,
  ms: number,
) => { async: boolean; value: Promise<string> | string };

const { waitAsync } = Atomics as unknown as { waitAsync?: WaitAsync };

/** The fill queue, accessible from any thread that has the memory. */
export class QueueView {
  /** Without Atomics.waitAsync, the engine's worker wakes the I/O worker with messages. */
  static readonly needsMessages = waitAsync === undefined;
  readonly words: Int32Array;

  constructor(
    memory: WebAssembly.Memory,
    readonly address: number,
  ) {
    this.words = new Int32Array(memory.buffer);
  }

  get pushed(): number {
    return Atomics.load(this.words, this.#index(Head.Pushed)) >>> 0;
  }
  get completed(): number {
    return Atomics.load(this.words, this.#index(Head.Completed)) >>> 0;
  }
  get capacity(): number {
    return this.words[this.#index(Head.Capacity)]!;
  }

  notifyPushed(): void {
    Atomics.notify(this.words, this.#index(Head.Pushed));
  }

  /** Index of the first word of a request. */
  at(request: number): number {
    return (this.address + kHeadBytes + (request % this.capacity) * kRequestBytes) >> 2;
  }

  /** Claims a request. False if the engine's threads serve it. */
  take(request: number): boolean {
    return (
      Atomics.compareExchange(
        this.words,
        this.at(request) + Request.State,
        State.Pending,
        State.Taken,
      ) === State.Pending
    );
  }
  complete(request: number, local = false): void {
    Atomics.store(this.words, this.at(request) + Request.State, local ? State.Local : State.Done);
    Atomics.add(this.words, this.#index(Head.Completed), 1);
    Atomics.notify(this.words, this.#index(Head.Completed));
  }

  /** Stores the rate of local reads. If storage is slow, the engine's threads do not read. */
  noteRate(bytes: number, ms: number): void {
    this.words[this.#index(Head.Rate)] = bytes / (1000 * ms || 1);
  }

  /** Blocks this thread until the completed counter differs from `seen`, at most `ms`. */
  blockCompleted(seen: number, ms: number): void {
    Atomics.wait(this.words, this.#index(Head.Completed), seen | 0, ms);
  }
  /** The same, without blocking. */
  waitCompleted(seen: number, ms: number): Promise<unknown> {
    return this.#wait(Head.Completed, seen, ms);
  }
  /** Resolves when the pushed counter differs from `seen`, or after `ms`. */
  waitPushed(seen: number, ms: number): Promise<unknown> {
    return this.#wait(Head.Pushed, seen, ms);
  }

  #index(word: Head): number {
    return (this.address >> 2) + word;
  }

  #wait(word: Head, seen: number, ms: number): Promise<unknown> {
    if (!waitAsync) return new Promise((resolve) => setTimeout(resolve, Math.min(ms, 8)));
    const wait = waitAsync(this.words, this.#index(word), seen | 0, ms);
    return wait.async ? (wait.value as Promise<string>) : yieldToEvents();
  }
}

export interface FillEvents {
  /** The open file with this index. */
  file(index: number): ModelFile;
  /** A request was completed. `network`: its bytes were downloaded. */
  onFilled(unit: number, bytes: number, network: boolean): void;
  onError(error: unknown): void;
}

export class FillServer {
  readonly queue: QueueView;
  /** Requests taken from the queue so far. */
  taken = 0;
  #seen = 0;
  readonly #early = new Set<number>();
  readonly #failed = new Set<number>();
  readonly #places: Uint8Array[] = [];
  #stopped = false;
  #serving = false;
  readonly #memory: WebAssembly.Memory;
  readonly #events: FillEvents;

  constructor(memory: WebAssembly.Memory, address: number, events: FillEvents) {
    this.#memory = memory;
    this.#events = events;
    this.queue = new QueueView(memory, address);
    const { words, pushed, capacity } = this.queue;
    this.taken = this.#seen = Math.max(0, pushed - capacity);
    // Requests that an earlier server had claimed start again.
    for (let n = this.taken; n < pushed; n++)
      Atomics.compareExchange(words, this.queue.at(n) + Request.State, State.Taken, State.Pending);
  }

  /**
   * Takes all new requests. Local bytes are read immediately; other reads are started. With
   * `bounded`, yields to the event loop in between.
   */
  async serve(bounded: boolean): Promise<void> {
    if (this.#serving) return;
    this.#serving = true;
    let start = performance.now();
    while (!this.#stopped && this.taken !== this.queue.pushed) {
      this.#startRows();
      const n = this.taken;
      this.taken = (n + 1) >>> 0;
      if (!this.#early.delete(n) && this.queue.take(n)) this.#start(n);
      if (!bounded || performance.now() - start < kBurstMs) continue;
      await yieldToEvents();
      start = performance.now();
    }
    this.#serving = false;
  }

  /** Retries the failed requests. */
  retry(): void {
    const again = [...this.#failed];
    this.#failed.clear();
    for (const n of again) this.#start(n);
  }

  /** Stops the server. No request is completed after this. */
  stop(): void {
    this.#stopped = true;
  }

  /** Starts embedding rows before other requests, because a forward pass needs them first. */
  #startRows(): void {
    for (; this.#seen !== this.queue.pushed; this.#seen = (this.#seen + 1) >>> 0) {
      if (this.queue.words[this.queue.at(this.#seen) + Request.Unit]! >>> 0 !== kRow) continue;
      if (!this.queue.take(this.#seen)) continue;
      this.#early.add(this.#seen);
      this.#start(this.#seen);
    }
  }

  #start(n: number): void {
    const { words } = this.queue;
    const at = this.queue.at(n);
    const word = (i: number): number => words[at + i]! >>> 0;
    const offset = word(Request.Offset) + word(Request.Offset + 1) * 2 ** 32;
    const length = word(Request.Length);
    const unit = word(Request.Unit);
    const done = (network: boolean, local: boolean): void => {
      if (this.#stopped) return;
      this.queue.complete(n, local);
      this.#events.onFilled(unit, length, network);
    };
    try {
      const bytes = this.#place(word(Request.Dst), length);
      const from = this.#events.file(word(Request.File));
      const start = performance.now();
      const reading = from.read(offset, bytes);
      if (reading === true) {
        if (length >= kTimedBytes) this.queue.noteRate(length, performance.now() - start);
        done(false, from.whole === true && offset < kExperts);
      } else
        reading.then(
          () => done(true, false),
          (error: unknown) => this.#fail(n, error),
        );
    } catch (error) {
      this.#fail(n, error);
    }
  }

  /** A view of the destination. Views are cached, because browsers collect used ones late. */
  #place(address: number, length: number): Uint8Array {
    const i = Math.imul(address + length, 0x9e3779b1) >>> 26;
    const kept = this.#places[i];
    if (kept?.byteOffset === address && kept.length === length) return kept;
    return (this.#places[i] = new Uint8Array(this.#memory.buffer, address, length));
  }

  #fail(n: number, error: unknown): void {
    if (this.#stopped) return;
    this.#failed.add(n);
    this.#events.onError(error);
  }
}
