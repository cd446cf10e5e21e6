// Reads QSF files. Compressed layers have virtual addresses from 2^48 on, 2^32 each; all other
// bytes are at their place in the file (src/qsf/qsf.h). The first read of a layer verifies its
// checksum. A damaged layer is downloaded again once, then it is an error. LZ4 layers are decoded
// from their start: a read behind the previous one continues. Experts of a mixture may have records
// of their own (expert-records.ts), which are read in one piece and verified alone. With
// cross-origin isolation the I/O worker does all this, ahead of the computation. This is a module of
// its own, which is loaded when a QSF file is opened.

import { crc32 } from './crc32.js';
import { decompress } from 'fzstd';
import { abortError, SluiceError } from '../protocol/errors.js';
import { ExpertRecords, type ExpertRecord, type RecordPart } from './expert-records.js';
import type { SharedFile } from './files.js';
import { Lz4Stream } from './lz4.js';
import { kExperts, type FileProgress, type ModelFile } from './model-file.js';

interface Run extends ExpertRecord {
  address: number;
  bytes: number;
  compression: number;
  /** Decompressed size of each Zstandard frame but the last. */
  frame: number;
  /** Offsets of the frames in the stored bytes, and their end. Set once the run is verified. */
  starts?: number[];
}

/** An LZ4 layer that is being decoded. */
interface Block {
  run: Run;
  /** Bytes decoded, and stored bytes given to the stream. */
  at: number;
  taken: number;
}

const kUnpacked = 2 ** 48;
const kLayerRoom = 2 ** 32;
const kHeader = 128;
const kEntry = 32;
const kSection = 24;
const kRead = 1 << 19;
/** Larger records are verified piece by piece, like layers. */
const kMaxRecord = 32 << 20;
const kSmallFrame = 1 << 20;
const kZstd = 3;
/** Memory of fzstd, and the maximum by which an incompressible frame exceeds its content. */
const kTables = 1 << 18;

const corrupt = (what: string): SluiceError =>
  new SluiceError('CORRUPT', `${what}; download the file again.`);

async function view(file: ModelFile, offset: number, length: number): Promise<DataView> {
  const bytes = new Uint8Array(length);
  await file.read(offset, bytes);
  return new DataView(bytes.buffer);
}

const long = (from: DataView, at: number): number =>
  from.getUint32(at, true) + from.getUint32(at + 4, true) * 2 ** 32;

/**
 * The file's runs, sorted by address. The engine validates the header; here it is only read safely.
 */
async function runsOf(file: ModelFile, header: DataView): Promise<Run[]> {
  const layers = Math.min(header.getUint32(16, true), 4096);
  const index = await view(file, long(header, 56), layers * kEntry);
  const runs: Run[] = [];
  for (let i = 0; i < layers; i++) {
    const at = i * kEntry;
    const compression = index.getUint8(at + 17);
    const offset = long(index, at);
    runs.push({
      offset,
      stored: index.getUint32(at + 8, true),
      bytes: index.getUint32(at + 12, true),
      compression,
      address: compression ? kUnpacked + i * kLayerRoom : offset,
      crc: index.getUint32(at + 20, true),
      frame: compression === kZstd ? index.getUint32(at + 28, true) : 0,
    });
  }
  const metadata = header.getUint32(108, true);
  // Without metadata, for which the engine's error names the file, there is no list of sections.
  const end = metadata ? long(header, 100) + metadata : 16;
  const trailer = metadata ? await view(file, end - 16, 16) : null;
  const sections = Math.min(trailer?.getUint32(4, true) ?? 0, 16);
  const list = await view(file, end - 16 - sections * kSection, sections * kSection);
  for (let at = 0; at < list.byteLength; at += kSection) {
    const [offset, bytes] = [long(list, at), long(list, at + 8)];
    runs.push({
      offset,
      stored: bytes,
      address: offset,
      bytes,
      crc: list.getUint32(at + 16, true),
      compression: 0,
      frame: 0,
    });
  }
  for (const run of runs) {
    const large = frameOf(run) > kSmallFrame && frameOf(run) > 255 * run.stored;
    if (run.compression && (large || listBytes(run) > run.stored))
      throw new SluiceError('BAD_HEADER', `A layer of ${file.name} has an invalid size.`);
  }
  return runs.sort((a, b) => a.address - b.address);
}

/** The table of experts, which is in the metadata section. Null before version 2. */
async function expertsOf(file: ModelFile, header: DataView): Promise<ExpertRecords | null> {
  if (header.getUint32(4, true) < 2) return null;
  const [metadata, offset] = [long(header, 100), long(header, 112)];
  const bytes = header.getUint32(120, true);
  const inside = offset >= metadata && offset + bytes <= metadata + header.getUint32(108, true);
  const size = ExpertRecords.checkedSize(bytes, inside, file.name);
  return new ExpertRecords(await view(file, offset, size), file.name);
}

export async function openQsf(file: ModelFile): Promise<ModelFile> {
  const header = await view(file, 0, kHeader);
  return new QsfFile(file, await runsOf(file, header), await expertsOf(file, header));
}

class QsfFile implements ModelFile {
  readonly name: string;
  readonly size: number;
  readonly #file: ModelFile;
  readonly #runs: Run[];
  readonly #experts: ExpertRecords | null;
  readonly #checks = new Map<Run, Promise<void>>();
  readonly #checked = new Set<ExpertRecord>();
  /** The record that #stored holds. */
  #record: ExpertRecord | null = null;
  readonly #plain: boolean;
  /** Serializes reads, because they share the buffers below. */
  #turn: Promise<unknown> = Promise.resolve();
  #stored: Uint8Array<ArrayBuffer>;
  #frame: Uint8Array<ArrayBuffer>;
  #held: { run: Run; frame: number } | null = null;
  #block: Block | null = null;
  readonly #stream: Lz4Stream | null;
  #closed = false;

  constructor(file: ModelFile, runs: Run[], experts: ExpertRecords | null) {
    this.#file = file;
    this.#runs = runs;
    this.#experts = experts;
    this.name = file.name;
    this.size = file.size;
    const packed = runs.filter((run) => run.compression === kZstd);
    this.#stream = runs.some(isBlock) ? new Lz4Stream() : null;
    this.#plain = !packed.length && !this.#stream;
    const most = (of: (run: Run) => number, from: Run[]): number =>
      from.reduce((sum, run) => Math.max(sum, of(run)), 0);
    const stored = most(
      (run) => (frames(run) > 1 ? Math.max(run.frame + kTables, listBytes(run)) : run.stored),
      packed,
    );
    this.#stored = new Uint8Array(
      Math.max(
        Math.min(
          kRead,
          most((run) => run.stored, runs),
        ),
        stored,
        experts && experts.largest <= kMaxRecord ? experts.largest : 0,
      ),
    );
    this.#frame = new Uint8Array(most(frameOf, packed));
  }

  get shared(): SharedFile | undefined {
    return this.#file.shared;
  }
  get whole(): boolean {
    return this.#plain && this.#file.whole === true;
  }
  get held(): number {
    const streams = this.#stream ? Lz4Stream.held : 0;
    const tables = this.#frame.length ? kTables : 0;
    return this.#stored.length + this.#frame.length + tables + streams;
  }

  read(offset: number, into: Uint8Array): true | Promise<void> {
    if (offset >= kExperts) return this.#readExperts(offset, into);
    const run = this.#find(offset);
    const inside = run && run.address <= offset ? run : null;
    if (!inside || (!inside.compression && this.#checked.has(inside)))
      return this.#file.read(offset, into);
    return this.#read(inside, offset - inside.address, into);
  }

  progress(): FileProgress {
    return this.#file.progress();
  }
  rates(): Promise<[number, number]> {
    return this.#file.rates();
  }
  download(): Promise<boolean> {
    return this.#file.download();
  }
  close(): void {
    this.#closed = true;
    this.#file.close();
  }

  /** The run that contains the address, or the first one after it. */
  #find(address: number): Run | undefined {
    const runs = this.#runs;
    let [low, high] = [0, runs.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (runs[middle]!.address + runs[middle]!.bytes <= address) low = middle + 1;
      else high = middle;
    }
    return runs[low];
  }

  async #read(run: Run, at: number, into: Uint8Array): Promise<void> {
    if (at + into.length > run.bytes)
      throw new SluiceError('TRUNCATED', `A read exceeds a layer of ${this.name}.`);
    if (!this.#checks.has(run)) {
      const check = this.#inTurn(() => this.#check(run));
      this.#checks.set(run, check);
      check.catch(() => this.#checks.delete(run));
    }
    await this.#checks.get(run);
    if (!run.compression) await this.#file.read(run.address + at, into);
    else if (isBlock(run)) await this.#inTurn(() => this.#readBlock(run, at, into));
    else await this.#inTurn(() => this.#unpack(run, at, into));
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(() => {
      if (this.#closed) throw abortError();
      return work();
    });
    this.#turn = mine.catch(() => {});
    return mine;
  }

  /** Verified records of a complete file are read where they are needed; others through #stored. */
  #readExperts(offset: number, into: Uint8Array): true | Promise<void> {
    const parts = this.#experts?.parts(offset, into.length);
    if (!parts) throw new SluiceError('BAD_HEADER', `${this.name} has no table of experts.`);
    const pending: Promise<void>[] = [];
    let done = 0;
    for (const part of parts) {
      const place = into.subarray(done, (done += part.bytes));
      const { record } = part;
      const direct = this.#checked.has(record) && (this.#file.whole || !this.#fits(record));
      const reading = direct
        ? this.#file.read(record.offset + part.at, place)
        : this.#inTurn(() => this.#readRecord(part, place));
      if (reading !== true) pending.push(reading);
    }
    return pending.length ? Promise.all(pending).then(() => {}) : true;
  }

  #fits(record: ExpertRecord): boolean {
    return record.stored <= this.#stored.length;
  }

  async #readRecord({ record, at, bytes }: RecordPart, into: Uint8Array): Promise<void> {
    if (this.#record !== record) {
      await this.#verify(record, 'An expert');
      this.#checked.add(record);
    }
    if (this.#fits(record)) {
      this.#record = record;
      into.set(this.#stored.subarray(at, at + bytes));
    } else await this.#file.read(record.offset + at, into);
  }

  async #check(run: Run): Promise<void> {
    await this.#verify(run, 'A layer');
    if (run.compression === kZstd) run.starts = await this.#readList(run);
    this.#checked.add(run);
  }

  async #verify(run: ExpertRecord, what: string): Promise<void> {
    let sum = await this.#sum(run);
    if (sum !== run.crc && this.#file.refresh) {
      this.#file.refresh(run.offset, run.stored);
      sum = await this.#sum(run);
    }
    if (sum !== run.crc) throw corrupt(`${what} of ${this.name} is damaged`);
  }

  async #sum(run: ExpertRecord): Promise<number> {
    // What a block has not used of the buffer is read again.
    if (this.#block) this.#block.taken -= this.#stream!.give(new Uint8Array(0));
    this.#record = null;
    let sum = 0;
    for (let at = 0; at < run.stored;) {
      const part = this.#stored.subarray(0, Math.min(this.#stored.length, run.stored - at));
      await this.#file.read(run.offset + at, part);
      sum = crc32(part, sum);
      at += part.length;
    }
    return sum;
  }

  /** Reads Zstandard's seek table, which follows the frames (src/qsf/frames.cpp). */
  async #readList(run: Run): Promise<number[]> {
    const count = frames(run);
    const starts = [0];
    const length = listBytes(run);
    if (count === 1) return [0, run.stored];
    const list = await view(this.#file, run.offset + run.stored - length, length);
    for (let i = 0; i < count; i++) {
      const stored = list.getUint32(8 + 8 * i, true);
      const bytes = list.getUint32(12 + 8 * i, true);
      if (bytes !== Math.min(run.frame, run.bytes - i * run.frame) || stored > this.#stored.length)
        throw corrupt(`A layer of ${this.name} has an invalid seek table`);
      starts.push(starts[i]! + stored);
    }
    if (list.getUint32(length - 9, true) !== count || starts[count] !== run.stored - length)
      throw corrupt(`A layer of ${this.name} has an invalid seek table`);
    return starts;
  }

  async #readBlock(run: Run, at: number, into: Uint8Array): Promise<void> {
    const stream = this.#stream!;
    let block = this.#block;
    if (block?.run !== run || block.at > at) {
      block = { run, at: 0, taken: 0 };
      stream.start();
    }
    this.#block = null; // if anything fails
    const end = at + into.length;
    while (block.at < end || (end === run.bytes && !stream.ends)) {
      const most = block.at < at ? at - block.at : end - block.at;
      const part = stream.next(most);
      if (!part) throw this.#damaged();
      if (block.at >= at) into.set(part, block.at - at);
      block.at += part.length;
      if (part.length) continue;
      const stored = this.#stored.subarray(0, Math.min(kRead, run.stored - block.taken));
      this.#record = null;
      // With input left, the block decodes to more than the layer; without more, to less.
      if (!stored.length || stream.give(stored)) throw this.#damaged();
      await this.#file.read(run.offset + block.taken, stored);
      block.taken += stored.length;
    }
    if (end === run.bytes && block.taken !== run.stored) throw this.#damaged();
    this.#block = block;
  }

  #damaged(): SluiceError {
    return corrupt(`A layer of ${this.name} cannot be decompressed`);
  }

  async #unpack(run: Run, at: number, into: Uint8Array): Promise<void> {
    const size = frameOf(run);
    for (let done = 0; done < into.length;) {
      const frame = Math.floor((at + done) / size);
      const bytes = this.#frame.subarray(0, Math.min(size, run.bytes - frame * size));
      if (this.#held?.run !== run || this.#held.frame !== frame) {
        this.#held = this.#record = null;
        const stored = this.#stored.subarray(0, run.starts![frame + 1]! - run.starts![frame]!);
        await this.#file.read(run.offset + run.starts![frame]!, stored);
        if (!unpackFrame(stored, bytes)) throw this.#damaged();
        this.#held = { run, frame };
      }
      const from = at + done - frame * size;
      const part = bytes.subarray(from, Math.min(bytes.length, from + into.length - done));
      into.set(part, done);
      done += part.length;
    }
  }
}

const frameOf = (run: Run): number => (frames(run) > 1 ? run.frame : run.bytes);
const frames = (run: Run): number =>
  run.frame && run.frame < run.bytes ? Math.ceil(run.bytes / run.frame) : 1;
const listBytes = (run: Run): number => (frames(run) > 1 ? 8 * frames(run) + 17 : 0);

const isBlock = (run: Run): boolean => run.compression !== 0 && run.compression !== kZstd;

function unpackFrame(from: Uint8Array, into: Uint8Array): boolean {
  try {
    return decompress(from, into).length === into.length;
  } catch {
    return false;
  }
}
