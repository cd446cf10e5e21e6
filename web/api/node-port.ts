// Wraps a worker of node:worker_threads in the subset of the browser's Worker that is used here. The
// worker keeps the process alive only while a call waits for its reply, so a program whose engine is
// idle ends by itself.

import type { Worker } from 'node:worker_threads';

import type { WorkerPort } from '../protocol/messages.js';

export function wrapWorker(worker: Worker): WorkerPort {
  let ended = false;
  const calls = new Set<unknown>();
  const settle = (id: unknown): void => void (calls.delete(id) && !calls.size && worker.unref());
  const port: WorkerPort = {
    onmessage: null,
    onerror: null,
    onmessageerror: null,
    postMessage: (message, transfer) => {
      worker.postMessage(message, transfer as never);
      const { id } = message as { id?: number };
      if (id === undefined) return; // the role of an I/O worker or a thread
      calls.add(id);
      worker.ref();
    },
    terminate: () => {
      ended = true;
      void worker.terminate();
    },
  };
  worker.on('message', (data) => {
    settle(data.id);
    port.onmessage?.({ data });
  });
  worker.on('error', (error) => port.onerror?.(error));
  worker.on('messageerror', (error) => port.onmessageerror?.(error));
  worker.on('exit', (code) => {
    if (!ended) port.onerror?.(new Error(`it ended with code ${code}`));
  });
  worker.unref(); // after on(), which undoes it
  return port;
}
