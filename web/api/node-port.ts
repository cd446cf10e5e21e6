// Wraps a worker of node:worker_threads in the subset of the browser's Worker that is used here. The
// worker keeps the process alive only while a call waits for its reply, so a program whose engine is
// idle ends by itself. A worker with a GPU ends only when it is parked, outside of the GPU's calls
// (worker/gpu-node.ts), also when the process exits.

import type { Worker } from 'node:worker_threads';

import { GpuWork } from '../protocol/gpu-work.js';
import type { WorkerPort } from '../protocol/messages.js';

const kSettleMs = 20_000; // compiling one kernel takes seconds on a software adapter
const kParkMs = 2_000; // without a pending promise: the worker may be stuck for good
const kLookMs = 2;

/** Shared counters of workers that have loaded WebGPU. */
const working = new Set<Int32Array>();

/** Asks for the end. Returns whether the worker still needs time. */
function ending(work: Int32Array): () => boolean {
  Atomics.store(work, GpuWork.Ending, 1);
  Atomics.notify(work, GpuWork.Ending);
  const since = Date.now();
  return () => {
    const limit = Atomics.load(work, GpuWork.Pending) > 0 ? kSettleMs : kParkMs;
    return !Atomics.load(work, GpuWork.Parked) && Date.now() - since < limit;
  };
}

/** Blocks until the worker is parked. */
function settle(work: Int32Array): void {
  for (const busy = ending(work); busy();) Atomics.wait(work, GpuWork.Parked, 0, kLookMs);
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
      const busy = work && ending(work);
      const end = (): void => {
        if (work && busy?.()) setTimeout(end, kLookMs);
        else void worker.terminate();
      };
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
    work = undefined;
    if (working.size === 0) process.off('exit', settleAll);
    if (!ended) port.onerror?.(new Error(`it ended with code ${code}`));
  });
  worker.unref(); // after on(), which undoes it
  return port;
}

function settleAll(): void {
  for (const work of working) settle(work);
}
