// Role of a worker: the engine, its I/O worker or one of its threads. All run the same script and
// are started by the engine's owner, because a worker that starts workers sometimes blocks forever
// (Firefox), or keeps its memory if it ends before them (Chromium). A worker first sends 'hello',
// so that its owner knows that the script is the right one. The first message to it names the role,
// and gives the I/O worker and the threads a port to the engine. An engine's worker that has kept the
// pipelines of a GPU loads another model after the first.

import { runIoWorker } from '../io/io-worker.js';
import type { Port, Role } from '../protocol/messages.js';
import { serveThread } from './runtime.js';
import { RpcHandlers } from './rpc-handlers.js';
import type { HostPlatform } from './loading.js';

export function takeRole(owner: Port, platform: HostPlatform): void {
  owner.postMessage({ event: 'hello' });
  const begin = (): void => {
    owner.onmessage = (event) => {
      const { role, port } = event.data as { role?: Role; port: Port };
      if (role === 'thread') return serveThread(port, (file) => platform.openShared(file));
      if (role === 'io') return runIoWorker(port, platform);
      new RpcHandlers(owner, platform, begin);
      owner.onmessage!(event);
    };
  };
  begin();
}
