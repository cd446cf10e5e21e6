// Worker script for Node: the same parts as worker.ts, on worker_threads, with plain files instead
// of the browser's storage.

import * as fs from 'node:fs';
import * as os from 'node:os';
import { fileURLToPath } from 'node:url';
import { parentPort } from 'node:worker_threads';

import { LocalFile } from './io/model-file.js';
import { nodeSwapFiles } from './io/swap-node.js';
import { cacheLimit, NodeFile, nodeStore } from './io/store-node.js';
import { SluiceError } from './protocol/errors.js';
import type { Port } from './protocol/messages.js';
import { nodeGpu } from './worker/gpu-node.js';
import type { HostPlatform } from './worker/loading.js';
import { takeRole } from './worker/roles.js';
import { compileWasm } from './worker/engine-wasm.js';

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
  return new LocalFile(new NodeFile(file, 'r'), file, file);
}

async function bytesOf(file: URL): Promise<ArrayBuffer> {
  const bytes = await fs.promises.readFile(fileURLToPath(file));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
}

const platform: HostPlatform = {
  isolated: true,
  budgetCap: Math.min(3.5 * 2 ** 30, Math.floor(os.totalmem() / 2)),
  hardwareThreads: Math.min(16, os.availableParallelism()),
  store: async ({ cacheDir }) => nodeStore(cacheDir, cacheLimit),
  openPath,
  swapFiles: () => nodeSwapFiles(),
  gpu: nodeGpu,
  hosts: () => import('./io/hosts.js'),
  qsf: () => import('./io/qsf.js'),
  pictures: () => import('./worker/pictures/node.js'),
  safetensors: async () => {
    const { load } = await import('./io/safetensors.js');
    return load(() => bytesOf(new URL('./safetensors.wasm', import.meta.url)));
  },
  openShared: async (file) => new NodeFile(file as string, 'r'),
  compile: (source, kernels) =>
    compileWasm(source, kernels, async (variant, url) => {
      const from = new URL(url ?? `./engine.${variant}.wasm`, import.meta.url);
      return from.protocol === 'file:' ? bytesOf(from) : fetch(from);
    }),
};

// The runtime reads navigator.hardwareConcurrency, which Node has only since version 21.
(globalThis as { navigator?: unknown }).navigator ??= {
  hardwareConcurrency: os.availableParallelism(),
};

if (parentPort) takeRole(ownPort(), platform);
