// Wraps a worker of node:worker_threads in the subset of the browser's Worker that is used here. The
// worker keeps the process alive only while a call waits for its reply, so a program whose engine is
// idle ends by itself. A worker with a GPU ends only when the GPU's pending promises have settled
// (worker/gpu-node.ts), also when the process exits.

import type { Worker } from 'node:worker_threads';

import { GpuWork } from '../protocol/gpu-work.js';
import type { WorkerPort } from '../protocol/messages.js';

const kSettleMs = 20_000; // compiling one kernel takes seconds on a software adapter
const kLookMs = 5;

/** Shared counters of workers that have loaded WebGPU. */
const working = new Set<Int32Array>();

/** Blocks until no promise of the GPU is pending. */
function settle(work: Int32Array): void {
  Atomics.store(work, GpuWork.Ending, 1);
  const until = Date.now() + kSettleMs;
  for (let n; (n = Atomics.load(work, GpuWork.Pending)) > 0 && Date.now() < until;)
    Atomics.wait(work, GpuWork.Pending, n, until - Date.now());
}

export function wrapWorker(worker: Worker): WorkerPort {
  let ended = false;
  let work: Int32Array | undefined;
  const calls = new Set<unknown>();
  const answered = (id: unknown): void => void (calls.delete(id) && !calls.size && worker.unref());
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
      const until = Date.now() + kSettleMs;
      const end = (): void => {
        if (work && Atomics.load(work, GpuWork.Pending) > 0 && Date.now() < until)
          setTimeout(end, kLookMs);
        else void worker.terminate();
      };
      if (work) Atomics.store(work, GpuWork.Ending, 1);
      end();
    },
  };
  worker.on('message', (data) => {
    if (data.event === 'gpuWork') {
      working.add((work = data.work as Int32Array));
      if (working.size === 1) process.once('exit', settleAll);
      return;
    }
    answered(data.id);
    port.onmessage?.({ data });
  });
  worker.on('error', (error) => port.onerror?.(error));
  worker.on('messageerror', (error) => port.onmessageerror?.(error));
  worker.on('exit', (code) => {
    if (work) working.delete(work);
    if (working.size === 0) process.off('exit', settleAll);
    if (!ended) port.onerror?.(new Error(`it ended with code ${code}`));
  });
  worker.unref(); // after on(), which undoes it
  return port;
}

function settleAll(): void {
  for (const work of working) settle(work);
}
