// Owns all workers of one engine: the engine's own, and the I/O worker and threads that it
// requests. They are started here and end together, which frees their memory.

import type { EngineCalls } from '../protocol/calls.js';
import type { Role, WorkerEvent, WorkerPort } from '../protocol/messages.js';
import { RpcClient } from '../protocol/rpc.js';

const kCloseMs = 2000;

export class WorkerClient {
  readonly rpc: RpcClient<EngineCalls, WorkerEvent>;
  readonly #workers: WorkerPort[] = [];
  readonly #startWorker: (first: boolean) => WorkerPort;

  constructor(
    startWorker: (first: boolean) => WorkerPort,
    onEvent: (event: WorkerEvent) => void,
    onGone: (error: unknown) => void,
  ) {
    this.#startWorker = startWorker;
    this.rpc = new RpcClient(
      this.#start(),
      (event) => {
        if (event.event === 'start') this.#add(event.role, event.port);
        else onEvent(event);
      },
      (error) => {
        for (const worker of this.#workers.slice(1)) worker.terminate();
        onGone(error);
      },
    );
  }

  /**
   * Closes the engine, then terminates the workers. When a worker is terminated while its thread
   * waits, browsers keep the thread and the engine's memory for seconds; closing first avoids that.
   * `handedOver`: another engine continues the sequences.
   */
  async end(reason: unknown, handedOver = false): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const limit = new Promise<void>((resolve) => (timer = setTimeout(resolve, kCloseMs)));
    const closed = this.rpc.call('dispose', handedOver).catch(() => {});
    const kept = await Promise.race([closed, limit]);
    clearTimeout(timer);
    this.rpc.gone(reason, kept === true);
  }

  #start(): WorkerPort {
    const worker = this.#startWorker(!this.#workers.length);
    this.#workers.push(worker);
    return worker;
  }

  #add(role: Role, port: MessagePort): void {
    const { onerror } = this.#workers[0]!; // the engine fails if any of its workers does
    try {
      const worker = this.#start();
      worker.onerror = onerror;
      worker.postMessage({ role, port }, [port]);
    } catch (error) {
      onerror!(error as Error);
    }
  }
}
