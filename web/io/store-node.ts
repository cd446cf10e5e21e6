// Store files in Node: one directory per model under the cache directory. Lock files make one
// engine the writer: each engine that wants to write creates a lock file with its process id in the
// name, then checks for lock files of other live processes. If two do this at the same time, both
// may back off, but both never write, whatever stale files exist.

import { randomUUID } from 'node:crypto';
import * as fs from 'node:fs';
import * as path from 'node:path';

import { SluiceError } from '../protocol/errors.js';
import type { EntryFiles, StoreBackend, SyncFile } from './files.js';

/** A file with the interface of FileSystemSyncAccessHandle. */
export class NodeFile implements SyncFile {
  #fd: number;
  #open = true;

  constructor(file: string, flags = 'r+', mode?: number) {
    if (flags !== 'r') fs.closeSync(fs.openSync(file, 'a', mode));
    this.#fd = fs.openSync(file, flags);
  }
  read(into: Uint8Array, { at }: { at: number }): number {
    let done = 0;
    while (done < into.length) {
      const n = fs.readSync(this.#fd, into, done, into.length - done, at + done);
      if (n === 0) break;
      done += n;
    }
    return done;
  }
  write(from: Uint8Array, { at }: { at: number }): number {
    let done = 0;
    while (done < from.length) {
      done += fs.writeSync(this.#fd, from, done, from.length - done, at + done);
    }
    return done;
  }
  truncate(size: number): void {
    fs.ftruncateSync(this.#fd, size);
  }
  getSize(): number {
    return fs.fstatSync(this.#fd).size;
  }
  flush(): void {
    // The operating system keeps data of a killed process; checksums detect losses by power cuts.
  }
  close(): void {
    if (this.#open) fs.closeSync(this.#fd);
    this.#open = false;
  }
}

const kStaleMs = 15_000;
const kBeatMs = 3_000;
const kLookMs = 500;

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Whether the process of a lock file is alive and has refreshed it recently. */
function isHeld(file: string): boolean {
  const age = Date.now() - (fs.statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0);
  return age < kStaleMs && alive(Number(/lock-(\d+)-/.exec(file)?.[1] ?? process.pid));
}

/**
 * Creates a lock file and refreshes it. Returns its release function; null if another holds one.
 */
export function takeLock(directory: string): (() => void) | null {
  const own = `lock-${process.pid}-${randomUUID()}`;
  const file = path.join(directory, own);
  fs.writeFileSync(file, '');
  for (const name of fs.readdirSync(directory)) {
    if (!name.startsWith('lock') || name === own) continue;
    const other = path.join(directory, name);
    const held = isHeld(other);
    fs.rmSync(held ? file : other, { force: true });
    if (held) return null;
  }
  const beat = setInterval(() => fs.utimes(file, new Date(), new Date(), () => {}), kBeatMs);
  beat.unref();
  return () => {
    clearInterval(beat);
    fs.rmSync(file, { force: true });
  };
}

class NodeBackend implements StoreBackend {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  async open(key: string, until?: AbortSignal): Promise<EntryFiles | null> {
    const directory = path.join(this.#root, key);
    fs.mkdirSync(directory, { recursive: true });
    let unlock = takeLock(directory);
    while (until && !unlock) {
      await new Promise((resolve) => setTimeout(resolve, kLookMs).unref());
      if (until.aborted) return null;
      unlock = takeLock(directory);
    }
    const shared = path.join(directory, 'data');
    const data = new NodeFile(shared);
    const index = new NodeFile(path.join(directory, 'index'));
    const release = (): void => {
      data.close();
      index.close();
      unlock?.();
    };
    return { data, index, shared, writable: unlock !== null, release };
  }

  async keys(): Promise<string[]> {
    return fs.existsSync(this.#root) ? fs.readdirSync(this.#root) : [];
  }

  async readIndex(key: string): Promise<Uint8Array | null> {
    const file = path.join(this.#root, key, 'index');
    return fs.existsSync(file) ? new Uint8Array(fs.readFileSync(file)) : null;
  }

  async remove(key: string): Promise<void> {
    const unlock = takeLock(path.join(this.#root, key));
    if (!unlock)
      throw new SluiceError('CACHE_LOCKED', 'This model is in use; dispose of its engine first.');
    fs.rmSync(path.join(this.#root, key), { recursive: true, force: true });
    unlock();
  }
}

/** A store in this directory, which is created on first write. */
export function nodeBackend(directory: string): StoreBackend {
  return new NodeBackend(directory);
}
