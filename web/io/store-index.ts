// Format of the model cache: names of entries, and their index files, which have a header and eight
// bytes per chunk (mark, checksum). docs/model-cache.md is the specification. The native program
// implements it in src/io/cache_format_native.cpp; tests/data/model-cache.json has values that both
// must produce.

import type { SyncFile } from './files.js';
import type { Validators } from './validators.js';
import { xxh32 } from './xxh32.js';

export interface EntryMeta extends Validators {
  /** storedUrl() of the file. */
  url: string;
  size: number;
  chunkSize: number;
  /** Milliseconds since 1970. */
  created: number;
  used: number;
}

/** 4 TiB. No model is larger, and this limits the index. */
export const kMaxFileBytes = 2 ** 42;
/** First bytes of a file that identify it if the server sends no validators. */
export const kHeadBytes = 65536;
const kHeaderBytes = 8192;
const kRecordBytes = 8;
const kChecked = 20; // the checksum is over the bytes from here on
const kText = 44;
const kMagic = [0x41434c53, 0x01454843]; // "SLCACHE", version 1
const kPresent = 0x4b4e4843; // "CHNK"
const kMaxChunks = 2 ** 24;

const encoder = new TextEncoder();

/** FNV-1a. It only names entries; the URL in the header is compared. */
function hashName(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of encoder.encode(text))
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return hash.toString(16).padStart(16, '0');
}

/** Names of all entries of a file, which differ by version, begin with this. */
export const entryPrefix = (url: string): string => `1-${hashName(url)}-`;

/** Name of the entry of one version. `head`: the first kHeadBytes of the file. */
export function entryName({ url, size, etag, lastModified }: EntryMeta, head: Uint8Array): string {
  const first = (): string => xxh32(head.slice(0, kHeadBytes)).toString(16).padStart(8, '0');
  return entryPrefix(url) + hashName(`${size}\n${etag || lastModified || `head:${first()}`}`);
}

const checksum = (index: Uint8Array, length: number): number =>
  xxh32(index.slice(kChecked, kText + length));

/** Header of an index file. */
export function encodeMeta(meta: EntryMeta): Uint8Array {
  const text = encoder.encode(`${meta.url}\n${meta.etag ?? ''}\n${meta.lastModified ?? ''}`);
  if (text.length > kHeaderBytes - kText) throw new RangeError('URL too long for the store');
  const out = new Uint8Array(kHeaderBytes);
  out.set(text, kText);
  const view = new DataView(out.buffer);
  view.setUint32(0, kMagic[0]!, true);
  view.setUint32(4, kMagic[1]!, true);
  out.set(encodeTime(meta.used), 8);
  view.setUint32(20, meta.chunkSize, true);
  view.setBigUint64(24, BigInt(meta.size), true);
  out.set(encodeTime(meta.created), 32);
  view.setUint32(40, text.length, true);
  view.setUint32(16, checksum(out, text.length), true);
  return out;
}

const encodeTime = (time: number): Uint8Array =>
  new Uint8Array(BigUint64Array.of(BigInt(Math.round(time))).buffer);

function decodeMeta(index: Uint8Array): EntryMeta | null {
  if (index.length < kHeaderBytes) return null;
  const view = new DataView(index.buffer, index.byteOffset);
  const word = (at: number): number => view.getUint32(at, true);
  const long = (at: number): number => Number(view.getBigUint64(at, true));
  const length = word(40);
  if (word(0) !== kMagic[0] || word(4) !== kMagic[1] || length > kHeaderBytes - kText) return null;
  if (checksum(index, length) !== word(16)) return null;
  const [chunkSize, size] = [word(20), long(24)];
  const text = new TextDecoder().decode(index.slice(kText, kText + length));
  const [url = '', etag, lastModified] = text.split('\n');
  const power = chunkSize >= 4096 && chunkSize <= 1 << 22 && !(chunkSize & (chunkSize - 1));
  if (!power || !(size <= kMaxFileBytes && size / chunkSize <= kMaxChunks)) return null;
  return {
    url,
    etag: etag || undefined,
    lastModified: lastModified || undefined,
    size,
    chunkSize,
    created: long(32),
    used: long(8),
  };
}

export type EntryDescription = EntryMeta & { bytesCached: number };

/** Metadata and number of stored bytes of an index file; null if it is invalid. */
export function describeIndex(index: Uint8Array): EntryDescription | null {
  const meta = decodeMeta(index);
  if (!meta) return null;
  const count = Math.ceil(meta.size / meta.chunkSize);
  let bytesCached = 0;
  for (let i = 0; i < count; i++) {
    if (!isPresent(index, i)) continue;
    bytesCached += Math.min(meta.chunkSize, meta.size - i * meta.chunkSize);
  }
  return { ...meta, bytesCached };
}

const recordAt = (chunk: number): number => kHeaderBytes + chunk * kRecordBytes;

/** Whether the chunk is present, according to the contents of an index file. */
export const isPresent = (index: Uint8Array, chunk: number): boolean =>
  // the mark's first two letters, for speed
  index[recordAt(chunk)] === 0x43 && index[recordAt(chunk) + 1] === 0x48;

/** Records that an entry is used now. */
export const writeUsed = (index: SyncFile, now: number): void =>
  void index.write(encodeTime(now), { at: 8 });

/** Records that all chunks are missing. */
export const clearRecords = (index: SyncFile): void => index.truncate(kHeaderBytes);

/** Records that a chunk is stored with these bytes; null: that it is missing. False: disk full. */
export function writeRecord(index: SyncFile, chunk: number, bytes: Uint8Array | null): boolean {
  const record = bytes ? Uint32Array.of(kPresent, xxh32(bytes)) : new Uint32Array(2);
  return index.write(new Uint8Array(record.buffer), { at: recordAt(chunk) }) === kRecordBytes;
}

/** Whether these bytes match the checksum of the chunk. */
export function isRecorded(index: SyncFile, chunk: number, bytes: Uint8Array): boolean {
  const record = new Uint32Array(2);
  index.read(new Uint8Array(record.buffer), { at: recordAt(chunk) });
  return record[0] === kPresent && record[1] === xxh32(bytes);
}
