// What a worker becomes: the engine, its I/O worker or one of its threads. All of them run the same
// script, started by whoever owns the engine, because a worker that starts workers blocks for good now
// and then (Firefox), or keeps its memory when it ends before them (Chromium). The first message tells
// the part; the I/O worker and the threads get a port to the engine with it.

import { serveThread } from './glue.js';
import { Host } from './host.js';
import { runIoWorker } from './io-worker.js';
import type { HostPlatform } from './loading.js';
import type { Port } from './protocol.js';

export function takeRole(owner: Port, platform: HostPlatform): void {
  owner.onmessage = (event) => {
    const { role, port } = event.data;
    if (role === 'thread') return serveThread(port, (file) => platform.openShared(file));
    if (role === 'io') return runIoWorker(port, platform);
    new Host(owner, platform);
    owner.onmessage!(event);
  };
}
