// The stash in Node: files in a directory of this process under the system's temporary one.

import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';

import type { Stash } from './stash.js';

export function nodeStash(folder = path.join(os.tmpdir(), `sluice-sessions-${process.pid}`)): Stash {
  fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
  process.once('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
  const at = (name: string): string => path.join(folder, name);
  return {
    write: (name, bytes) => fs.promises.writeFile(at(name), bytes, { mode: 0o600 }),
    read: async (name) => new Uint8Array(await fs.promises.readFile(at(name))),
    remove: (name) => fs.promises.rm(at(name)),
    names: () => fs.promises.readdir(folder),
  };
}
