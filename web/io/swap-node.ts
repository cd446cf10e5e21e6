// Swap files of sessions in Node, in a temporary directory of this process. It is deleted when the
// process exits.

import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';

import type { SwapFiles } from './files.js';
import { NodeFile } from './store-node.js';

export const swapFolder = path.join(os.tmpdir(), `sluice-sessions-${process.pid}`);

export async function nodeSwapFiles(folder = swapFolder): Promise<SwapFiles> {
  fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
  const at = (name: string): string => path.join(folder, name);
  return {
    open: async (name) => new NodeFile(at(name), 'r+', 0o600),
    remove: (name) => fs.promises.rm(at(name)),
    names: () => fs.promises.readdir(folder),
  };
}
