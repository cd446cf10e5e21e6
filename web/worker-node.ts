// The worker script of Node: the same three parts as worker.ts, over worker_threads, with plain
// files where the browser has its file store.

import * as fs from 'node:fs';
import * as os from 'node:os';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

import { SluiceError } from './errors.js';
import { initialMemory, serveThread, type ThreadPort } from './glue.js';
import { Host, type HostPlatform } from './host.js';
import { runIoWorker } from './io-worker.js';
import { LocalFile } from './model-file.js';
import { wrapWorker } from './node-port.js';
import type { Port, Role } from './protocol.js';
import { NodeFile, nodeBackend } from './store-node.js';
import { compileWasm, instantiateWasm } from './wasm.js';

function spawn(role: Role): ReturnType<typeof wrapWorker> {
  return wrapWorker(new Worker(new URL(import.meta.url), { workerData: { role } }));
}

function ownPort(): Port {
  const port: Port = {
    onmessage: null,
    postMessage: (message, transfer) => parentPort!.postMessage(message, transfer as never),
  };
  parentPort!.on('message', (data) => port.onmessage?.({ data }));
  return port;
}

function openPath(file: string): LocalFile {
  if (!fs.existsSync(file)) throw new SluiceError('NOT_FOUND', `${file} does not exist.`);
  if (!fs.statSync(file).isFile()) throw new SluiceError('IO', `${file} is not a file.`);
  return new LocalFile(new NodeFile(file, 'r'), file);
}

const platform: HostPlatform = {
  isolated: true,
  budgetCap: Math.min(3.5 * 2 ** 30, Math.floor(os.totalmem() / 2)),
  initialMemory,
  hardwareThreads: Math.min(16, os.availableParallelism()),
  store: async ({ cacheDir }) => (cacheDir ? nodeBackend(cacheDir) : null),
  openPath,
  spawnIo: () => spawn('sluice-io'),
  compile: (source, kernels) =>
    compileWasm(source, kernels, async (variant, url) => {
      const from = new URL(url ?? `./engine.${variant}.wasm`, import.meta.url);
      if (from.protocol !== 'file:') return fetch(from);
      const bytes = await fs.promises.readFile(fileURLToPath(from));
      return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
    }),
  instantiate: (wasm, budget, threads) =>
    instantiateWasm(wasm, budget, threads, () => spawn('sluice-thread') as ThreadPort),
};

// The glue asks the browser's way how many cores there are; Node has had this since version 21.
(globalThis as { navigator?: unknown }).navigator ??= { hardwareConcurrency: os.availableParallelism() };

if (!isMainThread) {
  const { role } = workerData as { role: Role };
  if (role === 'sluice-thread') serveThread(ownPort() as ThreadPort);
  else if (role === 'sluice-io') runIoWorker(ownPort(), platform);
  else new Host(ownPort(), platform);
}
