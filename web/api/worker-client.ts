// One engine's workers as their owner holds them: the engine's own and those that it asks for (I/O,
// threads), all of them started here. They end together, and with them their memory.

import type { EngineCalls } from '../protocol/calls.js';
import type { Role, WorkerEvent, WorkerPort } from '../protocol/messages.js';
import { RpcClient } from '../protocol/rpc.js';

const kCloseMs = 2000;

export class WorkerClient {
  readonly rpc: RpcClient<EngineCalls, WorkerEvent>;
  readonly #workers: WorkerPort[] = [];
  readonly #startWorker: () => WorkerPort;

  constructor(
    startWorker: () => WorkerPort,
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
        for (const worker of this.#workers) worker.terminate();
        onGone(error);
      },
    );
  }

  /**
   * Has everything closed, and ends the workers. A browser lets a thread that waits go on for
   * seconds when its worker is ended, and all of the engine's memory with it; closed before, it is
   * over at once. `handedOver`: another engine goes on with the sequences.
   */
  async end(reason: unknown, handedOver = false): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const limit = new Promise((resolve) => (timer = setTimeout(resolve, kCloseMs)));
    await Promise.race([this.rpc.call('dispose', handedOver).catch(() => {}), limit]);
    clearTimeout(timer);
    this.rpc.gone(reason);
  }

  #start(): WorkerPort {
    const worker = this.#startWorker();
    this.#workers.push(worker);
    return worker;
  }

  #add(role: Role, port: MessagePort): void {
    const { onerror } = this.#workers[0]!; // without any of them the engine is gone
    try {
      const worker = this.#start();
      worker.onerror = onerror;
      worker.postMessage({ role, port }, [port]);
    } catch (error) {
      onerror!(error as Error);
    }
  }
}
