// Wraps a worker of node:worker_threads in the subset of the browser's Worker that is used here.

import type { Worker } from 'node:worker_threads';

import type { WorkerPort } from '../protocol/messages.js';

export function wrapWorker(worker: Worker): WorkerPort {
  let ended = false;
  const port: WorkerPort = {
    onmessage: null,
    onerror: null,
    onmessageerror: null,
    postMessage: (message, transfer) => worker.postMessage(message, transfer as never),
    terminate: () => {
      ended = true;
      void worker.terminate();
    },
  };
  worker.on('message', (data) => port.onmessage?.({ data }));
  worker.on('error', (error) => port.onerror?.(error));
  worker.on('messageerror', (error) => port.onmessageerror?.(error));
  worker.on('exit', (code) => {
    if (!ended) port.onerror?.(new Error(`it ended with code ${code}`));
  });
  return port;
}
