// Store files in Node: one directory per version of a file, which the native program reads and
// writes too (src/io/cache_native.h). Directories appear and disappear by renaming, and all writers
// of one write the same bytes, so no byte depends on a lock. Lock files keep two processes from
// downloading the same bytes, and an entry in use from being deleted. docs/model-cache.md is the
// specification.

import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';

import { SluiceError } from '../protocol/errors.js';
import { cacheDirectory, cacheSize } from './cache-directory.js';
import type { EntryFiles, EntryMeta, SharedEntry, StoreBackend, SyncFile } from './files.js';
import {
  describeIndex,
  entryName,
  entryPrefix,
  kBlockBytes,
  writeUsed,
  type EntryDescription,
} from './store-index.js';

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

const kUseStaleMs = 30_000;
const kBlockStaleMs = 10_000;
const kBeatMs = 5_000;
const kRefreshMs = 1_000;
const kLeftoverMs = 3600_000;
const host = os
  .hostname()
  .replace(/[^A-Za-z0-9.-]/g, '')
  .slice(0, 63);
let count = 0;

const uniqueNumber = (): string => `${process.pid}-${count++}`;

const blockOf = (at: number): number => Math.floor(at / kBlockBytes);

const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code;

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

/** False if the file exists already. Its text is lost on a full disk; the lock then only ages. */
function createLock(file: string): boolean {
  let fd: number;
  try {
    fd = fs.openSync(file, 'wx');
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
  try {
    fs.writeSync(fd, `${process.pid} ${host}\n`);
  } catch {
    // a full disk
  } finally {
    fs.closeSync(fd);
  }
  return true;
}

/** Whether a live process holds this lock. */
function isHeld(file: string, staleMs: number): boolean {
  const age = Date.now() - (fs.statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0);
  if (age >= staleMs) return false;
  const [, pid, on] = /^(\d+) (.+)\n/.exec(readText(file)) ?? [];
  return on !== host || alive(Number(pid));
}

function readText(file: string): string {
  try {
    return fs.readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}

function namesIn(directory: string): string[] {
  try {
    return fs.readdirSync(directory);
  } catch {
    return [];
  }
}

const touch = (file: string): void => fs.utimes(file, new Date(), new Date(), () => {});

const isInUse = (entry: string): boolean =>
  namesIn(entry).some(
    (name) => name.startsWith('use-') && isHeld(path.join(entry, name), kUseStaleMs),
  );

/** Deletes an entry: it vanishes at once, and readers that have it open keep its bytes. */
function discard(entry: string): void {
  const gone = path.join(path.dirname(entry), `tmp-${uniqueNumber()}`);
  try {
    fs.renameSync(entry, gone);
  } catch {
    return;
  }
  fs.rmSync(gone, { recursive: true, force: true });
}

/** Makes an entry under another name first, so that it never exists without its header. */
function makeEntry(entry: string, index: Uint8Array): void {
  const made = path.join(path.dirname(entry), `tmp-${uniqueNumber()}`);
  try {
    fs.mkdirSync(made, { recursive: true });
    fs.writeFileSync(path.join(made, 'index'), index, { flag: 'wx' });
    fs.renameSync(made, entry);
  } catch (error) {
    fs.rmSync(made, { recursive: true, force: true });
    if (!fs.existsSync(entry)) throw error; // otherwise another process was faster
  }
}

function readIndex(entry: string): Uint8Array | null {
  try {
    return new Uint8Array(fs.readFileSync(path.join(entry, 'index')));
  } catch {
    return null;
  }
}

const isEntry = (name: string): boolean => /^1-[0-9a-f]{16}-[0-9a-f]{16}$/.test(name);

type Described = EntryDescription & { entry: string };

/** The undamaged entries whose names begin with `prefix`, with their paths. */
function entriesIn(root: string, prefix = ''): Described[] {
  return namesIn(root)
    .filter((name) => isEntry(name) && name.startsWith(prefix))
    .flatMap((name) => {
      const entry = path.join(root, name);
      const index = readIndex(entry);
      const meta = index && describeIndex(index);
      return meta ? [{ ...meta, entry }] : [];
    });
}

/** Paths of the entries of a file, the best to open first: complete, then recently used. */
function versionsOf(root: string, url: string): string[] {
  const rank = ({ used, bytesCached, size }: Described): number =>
    used + (bytesCached === size ? 1e15 : 0);
  return entriesIn(root, entryPrefix(url))
    .filter((found) => found.url === url)
    .sort((a, b) => rank(b) - rank(a))
    .map(({ entry }) => entry);
}

/** Deletes what killed processes left, and damaged entries. */
function clean(root: string): void {
  for (const name of namesIn(root)) {
    const entry = path.join(root, name);
    if (name.startsWith('tmp-')) {
      const { mtimeMs = Infinity } = fs.statSync(entry, { throwIfNoEntry: false }) ?? {};
      if (Date.now() - mtimeMs >= kLeftoverMs) fs.rmSync(entry, { recursive: true, force: true });
    } else if (isEntry(name) && !isInUse(entry)) {
      const index = readIndex(entry);
      if (index && !describeIndex(index)) discard(entry);
    }
  }
}

const nothing: SyncFile = {
  read: () => 0,
  write: () => 0,
  truncate: () => {},
  getSize: () => 0,
  flush: () => {},
  close: () => {},
};

/** The files of one version, or none until begin(). */
class NodeEntry implements EntryFiles, SharedEntry {
  data = nothing;
  index = nothing;
  writable = true;
  shared: string | undefined;
  readonly several = this;
  #entry = '';
  #use: string | undefined;
  #beat: ReturnType<typeof setInterval> | undefined;
  #refreshed = 0;
  readonly #blocks = new Map<number, number>(); // reserved, and how many streams download them
  readonly #elsewhere = new Set<number>(); // blocks that other processes download
  readonly #root: string;
  readonly #url: string;
  readonly #maxBytes: number;

  constructor(root: string, url: string, maxBytes: number) {
    this.#root = root;
    this.#url = url;
    this.#maxBytes = maxBytes;
    for (const entry of versionsOf(root, url)) if (this.#open(entry)) break;
  }

  begin(index: Uint8Array, meta: EntryMeta, head: Uint8Array): boolean {
    const entry = path.join(this.#root, entryName(meta, head));
    if (entry === this.#entry) return false;
    for (let attempt = 0; attempt < 4; attempt++) {
      if (this.#open(entry, meta)) return true;
      if (attempt > 0)
        discard(entry); // damaged, or another file's
      else makeRoom(this.#root, meta.size, this.#maxBytes);
      makeEntry(entry, index);
    }
    throw new Error(`cannot open ${entry}`);
  }

  removeOthers(): void {
    for (const entry of versionsOf(this.#root, this.#url))
      if (entry !== this.#entry && !isInUse(entry)) discard(entry);
  }

  reserve(first: number, end: number): number {
    for (let block = blockOf(first); block * kBlockBytes < end; block++) {
      const streams = this.#blocks.get(block) ?? 0;
      if (streams === 0 && (this.#elsewhere.has(block) || !this.#lock(block))) {
        this.#elsewhere.add(block);
        return Math.max(first, block * kBlockBytes);
      }
      this.#blocks.set(block, streams + 1);
    }
    return end;
  }

  unreserve(first: number, end: number): void {
    for (let block = blockOf(first); block * kBlockBytes < end; block++) {
      const streams = this.#blocks.get(block) ?? 0;
      if (streams > 1) this.#blocks.set(block, streams - 1);
      else this.#unlock(block);
    }
  }

  isElsewhere(at: number): boolean {
    return this.#elsewhere.has(blockOf(at));
  }

  lookAgain(): void {
    this.#elsewhere.clear();
  }

  #lock(block: number): boolean {
    const file = this.#lockOf(block);
    try {
      if (createLock(file)) return true;
      if (isHeld(file, kBlockStaleMs)) return false;
      fs.rmSync(file, { force: true });
      return createLock(file);
    } catch {
      return true; // where lock files cannot be created, blocks are downloaded without them
    }
  }

  #unlock(block: number): void {
    if (this.#blocks.delete(block)) fs.rmSync(this.#lockOf(block), { force: true });
  }

  refresh(): void {
    if (Date.now() - this.#refreshed < kRefreshMs) return;
    this.#refreshed = Date.now();
    for (const block of this.#blocks.keys()) touch(this.#lockOf(block));
  }

  release(): void {
    for (const block of [...this.#blocks.keys()]) this.#unlock(block);
    this.#elsewhere.clear();
    this.data.close();
    this.index.close();
    clearInterval(this.#beat);
    if (this.#use) fs.rmSync(this.#use, { force: true });
  }

  #lockOf(block: number): string {
    return path.join(this.#entry, `get-${block}`);
  }

  /** Opens an entry in place of the present one. False if it is missing, damaged or another file's. */
  #open(entry: string, wanted?: EntryMeta): boolean {
    const use = takeUse(entry);
    const files: NodeFile[] = [];
    try {
      // A cache that cannot be written still serves what it has.
      for (const name of ['index', 'data']) files.push(openFile(path.join(entry, name)));
      const index = new Uint8Array(8192);
      files[0]!.read(index, { at: 0 });
      const meta = describeIndex(index);
      if (meta?.url === this.#url && (!wanted || meta.size === wanted.size)) {
        this.release();
        [this.index, this.data] = files as [NodeFile, NodeFile];
        this.#entry = entry;
        this.#use = use;
        this.shared = path.join(entry, 'data');
        if (use) this.#beat = setInterval(() => touch(use), kBeatMs).unref();
        try {
          writeUsed(this.index, Date.now());
        } catch {
          // read-only
        }
        return true;
      }
    } catch {
      // missing
    }
    for (const file of files) file.close();
    if (use) fs.rmSync(use, { force: true });
    return false;
  }
}

function openFile(file: string): NodeFile {
  try {
    if (path.basename(file) === 'index') fs.accessSync(file); // it is never created here
    return new NodeFile(file);
  } catch (error) {
    if (!['EACCES', 'EROFS', 'EPERM'].includes(codeOf(error)!)) throw error;
    return new NodeFile(file, 'r');
  }
}

/** Says that this process uses the entry. Undefined if that is impossible. */
function takeUse(entry: string): string | undefined {
  try {
    for (;;) {
      const file = path.join(entry, `use-${uniqueNumber()}`);
      if (createLock(file)) return file;
    }
  } catch {
    return undefined;
  }
}

/** Deletes the least recently used entries that are not in use until `size` bytes fit. */
function makeRoom(root: string, size: number, maxBytes: number): void {
  clean(root);
  if (size > maxBytes) throw new Error('the file is larger than the cache may be');
  const all = entriesIn(root);
  let total = all.reduce((sum, { bytesCached }) => sum + bytesCached, size);
  for (const { entry, bytesCached } of all.sort((a, b) => a.used - b.used)) {
    if (total <= maxBytes) break;
    if (isInUse(entry)) continue;
    discard(entry);
    total -= bytesCached;
  }
}

class NodeBackend implements StoreBackend {
  readonly #root: string;
  readonly #maxBytes: number;

  constructor(root: string, maxBytes: number) {
    this.#root = root;
    this.#maxBytes = maxBytes;
  }

  async open(url: string): Promise<EntryFiles> {
    fs.mkdirSync(this.#root, { recursive: true });
    return new NodeEntry(this.#root, url, this.#maxBytes);
  }

  async keys(): Promise<string[]> {
    return namesIn(this.#root).filter(isEntry);
  }

  pathOf(key: string): string {
    return path.join(this.#root, key);
  }

  async readIndex(key: string): Promise<Uint8Array | null> {
    return readIndex(path.join(this.#root, key));
  }

  async remove(key: string): Promise<void> {
    const entry = path.join(this.#root, key);
    if (isInUse(entry))
      throw new SluiceError('CACHE_LOCKED', 'This model is in use; dispose of its engine first.');
    discard(entry);
  }
}

/** A store in this directory, which is created on first use. It may hold `maxBytes`. */
export function nodeBackend(directory: string, maxBytes = Infinity): StoreBackend {
  return new NodeBackend(directory, maxBytes);
}

/** The store in `cacheDir` or the default directory; null: none. It may hold `limit()` bytes. */
export function nodeStore(
  cacheDir?: string,
  limit: () => number = () => Infinity,
): StoreBackend | null {
  const directory = cacheDirectory(cacheDir);
  return directory ? nodeBackend(directory, limit()) : null;
}

/** Bytes of SLUICE_CACHE_SIZE. Errors: cacheSize()'s. */
export const cacheLimit = (): number => cacheSize(process.env['SLUICE_CACHE_SIZE']);
