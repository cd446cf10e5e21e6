// Format of the model cache: names of entries, and their index files, which have a header and eight
// bytes per chunk (mark, checksum). docs/model-cache.md is the specification. The native program
// implements it in src/io/cache_format_native.cpp; tests/data/model-cache.json has values that both
// must produce.

import type { EntryMeta, SyncFile } from './files.js';
import { xxh32 } from './xxh32.js';

/** 4 TiB. No model is larger, and this limits the index. */
export const kMaxFileBytes = 2 ** 42;
/** First bytes of a file that identify it if the server sends no validators. */
export const kHeadBytes = 65536;
/** Of a file; one process at a time downloads a block. Chunks divide it. */
export const kBlockBytes = 2 ** 22;
const kMaxChunks = 2 ** 24;
const kHeaderBytes = 8192;
const kRecordBytes = 8;
const kText = 24;
const kMagic = 'SLCACHE\x01'; // the format's version
const kPresent = 0x4b4e4843; // "CHNK"

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

const checksum = (text: Uint8Array): number => xxh32(text.slice());

/** Header of an index file. */
export function encodeMeta(meta: EntryMeta): Uint8Array {
  const { size, chunkSize, created, url, etag = '', lastModified = '' } = meta;
  const text = encoder.encode(
    [size, chunkSize, Math.round(created), url, etag, lastModified].join('\n'),
  );
  if (text.length > kHeaderBytes - kText) throw new RangeError('URL too long for the store');
  const out = new Uint8Array(kHeaderBytes);
  out.set(encoder.encode(kMagic));
  new Float64Array(out.buffer, 8, 1)[0] = meta.used;
  new Uint32Array(out.buffer, 16, 2).set([checksum(text), text.length]);
  out.set(text, kText);
  return out;
}

function decodeMeta(index: Uint8Array): EntryMeta | null {
  if (index.length < kHeaderBytes) return null;
  const head = index.slice(0, kHeaderBytes);
  const [sum, length] = new Uint32Array(head.buffer, 16, 2) as unknown as [number, number];
  const text = head.subarray(kText, kText + length);
  const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
  if (decode(head.subarray(0, 8)) !== kMagic || checksum(text) !== sum) return null;
  const [size, chunkSize, created, url = '', etag, lastModified] = decode(text).split('\n');
  const meta = {
    url,
    etag: etag || undefined,
    lastModified: lastModified || undefined,
    size: Number(size),
    chunkSize: Number(chunkSize),
    created: Number(created),
    used: new Float64Array(head.buffer, 8, 1)[0]!,
  };
  const sane = meta.size <= kMaxFileBytes && meta.size / meta.chunkSize <= kMaxChunks;
  return sane && meta.chunkSize >= 4096 && kBlockBytes % meta.chunkSize === 0 ? meta : null;
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
  index[recordAt(chunk)] === (kPresent & 255);

/** Records that an entry is used now. */
export const writeUsed = (index: SyncFile, now: number): void =>
  void index.write(new Uint8Array(Float64Array.of(now).buffer), { at: 8 });

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
