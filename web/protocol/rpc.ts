// Remote calls over a message port: client and server. When the worker dies, all pending calls
// reject and further calls reject too, so nothing hangs on a crashed worker.

import type { Call, Calls, Reply } from './calls.js';
import { deserializeError, serializeError, SluiceError } from './errors.js';
import type { Port, WorkerPort } from './messages.js';

interface Pending {
  resolve: (value: never) => void;
  reject: (error: unknown) => void;
}

/** The caller's end. `onEvent` receives every message without an id, that is, all but replies. */
export class RpcClient<Served extends Calls, Event extends { event: string; id?: never }> {
  #next = 1;
  readonly #pending = new Map<number, Pending>();
  #dead: unknown = null;
  readonly #port: WorkerPort;
  readonly #onEvent: (event: Event) => void;
  readonly #onGone: (error: unknown) => void;

  constructor(
    port: WorkerPort,
    onEvent: (event: Event) => void,
    onGone: (error: unknown) => void = () => {},
  ) {
    this.#port = port;
    this.#onEvent = onEvent;
    this.#onGone = onGone;
    port.onmessage = ({ data }) => this.#receive(data as Reply | Event);
    port.onerror = (event) => {
      if (event instanceof SluiceError) return this.gone(event);
      event?.preventDefault?.();
      const reason = event?.message || event?.error?.message || 'it did not start or crashed';
      this.gone(new SluiceError('WORKER_LOST', `The engine's worker ended: ${reason}`));
    };
    port.onmessageerror = () => {
      this.gone(new SluiceError('WORKER_LOST', 'A message of the worker cannot be read.'));
    };
  }

  get failure(): unknown {
    return this.#dead;
  }

  call<Name extends keyof Served & string>(
    method: Name,
    ...args: Parameters<Served[Name]>
  ): Promise<ReturnType<Served[Name]>> {
    if (this.#dead) return Promise.reject(this.#dead);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      try {
        this.#port.postMessage({ id, method, args } satisfies Call);
      } catch (cause) {
        throw new SluiceError(
          'INVALID_ARGUMENT',
          `An option cannot be sent to the worker: ${(cause as Error).message}`,
          { cause },
        );
      }
      this.#pending.set(id, { resolve, reject });
    });
  }

  /** Rejects all pending and future calls with `error`, and terminates the worker, or keeps it. */
  gone(error: unknown, kept = false): void {
    if (this.#dead) return;
    this.#dead = error;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
    this.#port.onmessage = this.#port.onerror = this.#port.onmessageerror = null;
    this.#port[kept && this.#port.keep ? 'keep' : 'terminate']!();
    this.#onGone(error);
  }

  #receive(data: Reply | Event): void {
    if (typeof (data as Reply).id !== 'number') {
      this.#onEvent(data as Event);
      return;
    }
    const reply = data as Reply;
    const waiting = this.#pending.get(reply.id);
    if (!waiting) return;
    this.#pending.delete(reply.id);
    if ('error' in reply) waiting.reject(deserializeError(reply.error));
    else waiting.resolve(reply.result as never);
  }
}

/** A result whose buffers are transferred instead of copied. */
export class Transferred<T> {
  constructor(
    readonly value: T,
    readonly transfer: Transferable[],
  ) {}
}

/** Handlers for all of these calls, synchronous or asynchronous. */
export type Answers<Served extends Calls> = {
  [Name in keyof Served]: (
    ...args: Parameters<Served[Name]>
  ) => Answer<ReturnType<Served[Name]>> | Promise<Answer<ReturnType<Served[Name]>>>;
};
type Answer<T> = T | Transferred<T>;

/** The worker's end: runs the methods of `target` and posts their results. */
export function serveRpc<Served extends Calls>(port: Port, target: Answers<Served>): void {
  port.onmessage = async ({ data }) => {
    const { id, method, args } = data as Call;
    try {
      const run = target[method] as ((...args: unknown[]) => unknown) | undefined;
      if (!run) throw new SluiceError('INTERNAL', `No such method: ${method}.`);
      const result = await run(...args);
      if (result instanceof Transferred)
        port.postMessage({ id, result: result.value }, result.transfer);
      else port.postMessage({ id, result } satisfies Reply);
    } catch (error) {
      port.postMessage({ id, error: serializeError(error) } satisfies Reply);
    }
  };
}

const resumes: (() => void)[] = [];
let wake: (() => void) | null = null;

/**
 * Yields to the event loop once. Uses scheduler.postTask where it exists, because a task stays in
 * this thread while a posted message goes through another. Otherwise uses a MessageChannel, because
 * timers are clamped to 4 ms. In Node it uses setImmediate, because a port there delivers up to a
 * thousand messages before other events get their turn.
 */
export function yieldToEvents(): Promise<void> {
  wake ??= makeWake();
  return new Promise((resolve) => {
    resumes.push(resolve);
    wake!();
  });
}

function makeWake(): () => void {
  const resume = (): void => resumes.shift()?.();
  const { setImmediate, scheduler } = globalThis as {
    setImmediate?: (run: () => void) => void;
    scheduler?: { postTask?(run: () => void): Promise<void> };
  };
  if (setImmediate) return () => setImmediate(resume);
  if (scheduler?.postTask) return () => void scheduler.postTask!(resume);
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = resume;
  return () => port2.postMessage(0);
}
