// Reads byte ranges over HTTP. Each request has a single range, so that no CORS preflight is
// needed. A request that is cut off or stalls is resumed after the last byte, with backoff and
// jitter. Each response is checked against earlier ones, so that two versions of a file never mix.
// Requests always go to the original URL, so signed redirects may expire.

import { publicUrl } from '../protocol/address.js';
import { isAbort, SluiceError, throwIfAborted } from '../protocol/errors.js';
import { collectGarbage } from './force-gc.js';
import { Bare, describe, Retry } from './retry.js';
import { kHeadBytes, kMaxFileBytes } from './store-index.js';
import { following, pause, StallGuard } from './timeouts.js';
import {
  changed,
  differs,
  encoded,
  mayEqual,
  validatorsOf,
  type Validators,
} from './validators.js';

export interface FetcherOptions {
  fetch?: typeof globalThis.fetch | undefined;
  /** Attempts without a new byte before giving up. Default 7. */
  attempts?: number;
  /** First backoff, 300 by default; doubles up to retryMaxMs, 10,000 by default. */
  retryMs?: number;
  retryMaxMs?: number;
  /** A request without new bytes for this time is cancelled and retried. Default 15,000. */
  stallMs?: number;
  /** Called before a request is repeated, with the number of failures and the pause. */
  onRetry?: (failures: number, ms: number, message: string) => void;
  /** The module for failures and for hosts whose ETags differ. */
  hosts?: (() => Promise<typeof import('./hosts.js')>) | undefined;
}

/** Receives bytes in order; `offset` is the position of bytes[0] in the file. */
export type Sink = (bytes: Uint8Array, offset: number) => void;

/** 'unknown': before the first response. 'whole': the server ignores ranges. */
export type RangeMode = 'unknown' | 'ranges' | 'whole';

const kOther = new Retry('The server sent another range.');
/** Attempts to reach a host that has never answered: about three seconds. */
const kFirstAttempts = 5;
const kGarbageBytes = 4 << 20;

export class Fetcher {
  /** The URL as messages show it. */
  readonly name: string;
  /** Size and validators of the file, as far as the server has sent them. */
  known: Validators = {};
  mode: RangeMode = 'unknown';
  /** Checksum of the file's first kHeadBytes, once they are known. */
  head: number | undefined;
  /** Body bytes received, including discarded ones. */
  bytesReceived = 0;
  requests = 0;
  #timedBytes = 0; // all but the first chunk of each body, and the time they took
  #timedMs = 0;
  readonly #fetch: typeof globalThis.fetch;
  readonly #attempts: number;
  readonly #retryMs: number;
  readonly #retryMaxMs: number;
  readonly #stallMs: number;
  readonly #onRetry: FetcherOptions['onRetry'];
  readonly #hosts: FetcherOptions['hosts'];
  /** Other ETags of this file. */
  readonly #aliases: unknown[] = [];
  #magic = ''; // first bytes of the file
  #bare = Bare.No;
  #ignoredRanges = 0;
  #garbage = 0;

  constructor(
    readonly url: string,
    options: FetcherOptions = {},
  ) {
    this.name = publicUrl(url);
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#attempts = options.attempts ?? 7;
    this.#retryMs = options.retryMs ?? 300;
    this.#retryMaxMs = options.retryMaxMs ?? 10_000;
    this.#stallMs = options.stallMs ?? 15_000;
    this.#onRetry = options.onRetry;
    this.#hosts = options.hosts;
  }

  /** Bytes per second while receiving bodies; 0: unknown. */
  get rate(): number {
    return this.#timedMs && (this.#timedBytes * 1000) / this.#timedMs;
  }

  /**
   * Delivers [start, end) to `sink`, in order and each byte once. If the server ignores ranges,
   * delivers up to the end of the file, and mode becomes 'whole'. Resolves with the position
   * reached. Errors: HTTP_STATUS, NETWORK, SOURCE_CHANGED, AbortError.
   */
  async stream(start: number, end: number, sink: Sink, signal?: AbortSignal): Promise<number> {
    let position = start;
    let fruitless = 0;
    for (;;) {
      const size = this.known.size ?? Infinity;
      const goal = this.mode === 'whole' ? size : Math.min(end, size);
      if (position >= goal) return position;
      throwIfAborted(signal);
      const before = position;
      try {
        const finished = await this.#attempt(position, goal, signal, (bytes, at) => {
          position = at + bytes.length;
          sink(bytes, at);
        });
        if (finished) return position;
        if (position === before) throw new Retry('The server closed the connection early.');
      } catch (error) {
        throwIfAborted(signal);
        if (!(error instanceof Retry)) throw error;
        fruitless = position > before ? 1 : fruitless + 1;
        let limit = this.#attempts;
        if (error.unreachable && this.mode === 'unknown') {
          limit = Math.min(limit, kFirstAttempts);
          this.#bare =
            this.#bare === Bare.No
              ? Bare.Next
              : this.#bare === Bare.Worked
                ? Bare.Only
                : Bare.Failed;
          if (this.#bare !== Bare.Failed) continue;
        }
        if (fruitless >= limit) throw this.#giveUp(error);
        const ms = Math.max(error.afterMs, this.#backoff(fruitless));
        this.#onRetry?.(fruitless, ms, this.#text(error));
        await pause(ms, signal);
      }
    }
  }

  /** The file with these validators is the one that the server describes by others. */
  alias(known: Validators): void {
    this.#aliases.push(this.known.etag);
    this.known = known;
  }

  /** Replaces size and validators by those of the cached file: the last response was invalid. */
  reset(known: Validators): void {
    this.known = { ...known };
    this.mode = 'unknown';
  }

  /** Determines the file size if range responses do not: see sizeOf(). */
  async probeSize(signal?: AbortSignal): Promise<void> {
    const { sizeOf } = await this.#hosts!();
    this.#learn({ size: await sizeOf((until) => this.#ask('0-', until), this.#stallMs, signal) });
  }

  /** Reads the first bytes of the file. Returns their number. Time limit `limitMs`; 0: none. */
  async peek(into: Uint8Array, limitMs: number, signal?: AbortSignal): Promise<number> {
    let got = 0;
    await following(signal, async (control) => {
      const timer = limitMs > 0 ? setTimeout(() => control.abort(), limitMs) : undefined;
      const sink: Sink = (bytes, offset) => {
        into.set(bytes.subarray(0, into.length - offset), offset);
        got = Math.min(into.length, offset + bytes.length);
        if (got === into.length) throw new SluiceError('IO', ''); // enough
      };
      try {
        await this.stream(0, into.length, sink, control.signal);
      } catch (error) {
        throwIfAborted(signal);
        if (got === into.length) return;
        if (isAbort(error)) throw new SluiceError('NETWORK', `${this.name} does not answer.`);
        throw error;
      } finally {
        clearTimeout(timer);
      }
    });
    return got;
  }

  /** One request. true: the goal or the end of the file was reached; false: it was cut off. */
  #attempt(
    position: number,
    goal: number,
    signal: AbortSignal | undefined,
    sink: Sink,
  ): Promise<boolean> {
    return following(signal, async (control) => {
      const guard = new StallGuard(this.#stallMs, control);
      try {
        const response = await this.#request(position, goal, control.signal, guard);
        if (!response) return true;
        return await this.#body(response, position, goal, guard, sink);
      } catch (error) {
        if (error instanceof Retry || error instanceof SluiceError) throw error;
        const text = describe(error);
        // Node reports redirect loops only in the message.
        if (/redirect count/.test(text)) throw this.#giveUp(new Retry(text));
        if (guard.stalled) throw new Retry('The server stopped sending.');
        throw new Retry(text, 0, 'NETWORK', error, error instanceof TypeError);
      } finally {
        guard.stop();
        control.abort(); // closes the connection if it is still open
      }
    });
  }

  /** The response, or null if `position` is the end of the file. */
  async #request(
    position: number,
    goal: number,
    signal: AbortSignal,
    guard: StallGuard,
  ): Promise<Response | null> {
    guard.arm();
    const bare = this.mode === 'whole' || this.#bare === Bare.Next || this.#bare === Bare.Only;
    const response = await this.#ask(bare ? '' : `${position}-${goal - 1}`, signal);
    if (this.#bare === Bare.Next && response.status === 200 && !encoded(response.headers)) {
      this.#bare = Bare.Worked;
      return this.#request(position, goal, signal, guard);
    }
    if (response.status === 416 && this.known.size === undefined && position > 0) {
      this.known.size = position; // earlier responses ended exactly at the end of the file
      return null;
    }
    if (response.status !== 200 && response.status !== 206) {
      const { statusFailure } = await this.#hosts!();
      const { code, message, afterMs } = statusFailure(response, this.name, this.known, position);
      throw afterMs === undefined
        ? new SluiceError(code, message)
        : new Retry(message, afterMs, 'HTTP_STATUS');
    }
    if (response.status === 206 && encoded(response.headers)) {
      this.mode = 'whole'; // ranges of a compressed stream cannot be used
      throw new Retry('The server compresses its ranges.');
    }
    const seen = validatorsOf(response);
    const { size, etag } = this.known;
    if (differs(this.known, seen) && (await this.#isSame(seen, signal, guard)))
      this.#aliases.push(seen.etag);
    if (this.#aliases.includes(seen.etag)) seen.etag = etag;
    if (
      this.mode === 'ranges' &&
      response.status === 200 &&
      (seen.size !== size || differs(this.known, seen))
    ) {
      throw new Retry('The server sent another file.');
    }
    this.#learn(seen);
    return response;
  }

  #ask(range: string, signal: AbortSignal): Promise<Response> {
    this.requests++;
    const headers = new Headers(range ? { Range: `bytes=${range}` } : {});
    return this.#fetch(this.url, { headers, signal, cache: 'no-store' });
  }

  /** Whether another node of the host sent `seen`, about the same file. */
  async #isSame(seen: Validators, signal: AbortSignal, guard: StallGuard): Promise<boolean> {
    const { head } = this;
    if (this.#aliases.includes(seen.etag) || head === undefined || !mayEqual(this.known, seen))
      return false;
    return (await this.#hosts!()).isSameFile(seen, head, () => {
      guard.arm();
      return this.#ask(`0-${kHeadBytes - 1}`, signal);
    });
  }

  /** Stores size and validators of a response. Throws if they are those of another file. */
  #learn(seen: Validators): void {
    if (seen.size !== undefined && !(seen.size <= kMaxFileBytes)) {
      throw new SluiceError('BAD_HEADER', `${this.name} claims to be ${seen.size} bytes long.`);
    }
    if (differs(this.known, seen)) throw new SluiceError('SOURCE_CHANGED', changed(this.name));
    for (const [key, value] of Object.entries(seen)) {
      if (value !== undefined) (this.known as Record<string, unknown>)[key] ??= value;
    }
  }

  async #body(
    response: Response,
    position: number,
    goal: number,
    guard: StallGuard,
    sink: Sink,
  ): Promise<boolean> {
    let at = position;
    let end = goal;
    if (response.status === 206) {
      const { headers, type } = response;
      const range = /^bytes (\d+)-(\d+)\//.exec(headers.get('content-range') ?? '');
      const length = Number(headers.get('content-length'));
      const first = range ? Number(range[1]) : position;
      const last = range ? Number(range[2]) : goal - 1;
      // Other origins may hide Content-Range. Without it, a part cannot be told from another.
      if (!range && type !== 'cors') {
        if (this.mode === 'unknown') this.mode = 'whole';
        throw kOther;
      }
      if (this.mode === 'whole' || first !== position || length > last + 1 - first) throw kOther;
      this.mode = 'ranges';
      end = Math.min(goal, last + 1);
      this.#ignoredRanges = 0;
    } else {
      // The whole file. If the server has served ranges before, retries twice.
      if (this.mode === 'ranges' && ++this.#ignoredRanges < 3) {
        throw kOther;
      }
      if (this.mode !== 'ranges') {
        this.mode = 'whole';
        end = Infinity;
      }
      at = 0;
    }
    return this.#deliver(response, at, position, end, goal, guard, sink);
  }

  /** Reads the body, which starts at `at`, and delivers [position, end). */
  async #deliver(
    response: Response,
    at: number,
    position: number,
    end: number,
    goal: number,
    guard: StallGuard,
    sink: Sink,
  ): Promise<boolean> {
    const begin = at;
    const hidden = !response.headers.get('content-range');
    const reader = response.body!.getReader();
    for (let last = 0; ;) {
      guard.arm();
      const { done, value } = await guard.race(reader.read());
      if (done) break;
      const now = performance.now();
      if (last) {
        this.#timedBytes += value.length;
        this.#timedMs += now - last;
      }
      last = now;
      this.bytesReceived += value.length;
      this.#discard(value.length);
      if (at === 0) this.#magic ||= magicOf(value);
      else if (at === begin && hidden && this.#magic === magicOf(value)) throw kOther;
      const from = Math.max(0, position - at);
      const to = Math.min(value.length, end - at);
      if (to > from) sink(value.subarray(from, to), at + from);
      at += value.length;
      if (at >= end) return at >= goal || this.mode === 'whole';
    }
    if (this.mode !== 'whole' || at < position) return false;
    // A normal end without a declared length is the end of the file; otherwise it was cut off.
    this.known.size ??= at;
    return at >= this.known.size;
  }

  /** Counts chunks of bodies, which are garbage after copying, and triggers garbage collection. */
  #discard(bytes: number): void {
    this.#garbage += bytes;
    if (this.#garbage < kGarbageBytes) return;
    this.#garbage = 0;
    collectGarbage();
  }

  #text = ({ message }: Retry): string => `Could not read ${this.name}: ${message}`;

  #giveUp(error: Retry): SluiceError {
    const { code, cause } = error;
    const advice = code === 'NETWORK' ? ' Check the connection and the address (and CORS).' : '';
    return new SluiceError(code, this.#text(error) + advice, { cause });
  }

  #backoff(fruitless: number): number {
    const base = Math.min(this.#retryMaxMs, this.#retryMs * 2 ** (fruitless - 1));
    return base * (0.5 + Math.random() * 0.5);
  }
}

const magicOf = (bytes: Uint8Array): string => String.fromCharCode(...bytes.subarray(0, 16));
