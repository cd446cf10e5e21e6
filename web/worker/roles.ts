// What a worker becomes: the engine, its I/O worker or one of its threads. All of them run the same
// script, started by whoever owns the engine, because a worker that starts workers blocks for good
// now and then (Firefox), or keeps its memory when it ends before them (Chromium). It greets, which
// tells its owner that the script is the right one; the first message then tells the part, and
// brings the I/O worker and the threads a port to the engine.

import { runIoWorker } from '../io/io-worker.js';
import type { Port, Role } from '../protocol/messages.js';
import { serveThread } from './glue.js';
import { RpcHandlers } from './rpc-handlers.js';
import type { HostPlatform } from './loading.js';

export function takeRole(owner: Port, platform: HostPlatform): void {
  owner.postMessage({ event: 'hello' });
  owner.onmessage = (event) => {
    const { role, port } = event.data as { role?: Role; port: Port };
    if (role === 'thread') return serveThread(port, (file) => platform.openShared(file));
    if (role === 'io') return runIoWorker(port, platform);
    new RpcHandlers(owner, platform);
    owner.onmessage!(event);
  };
}
