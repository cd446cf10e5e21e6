// Index file of a store entry: metadata in a header of fixed size, then eight bytes per chunk
// (present flag, checksum).

import type { SyncFile } from './files.js';
import type { Validators } from './validators.js';
import { xxh32 } from './xxh32.js';

export interface EntryMeta extends Validators {
  url: string;
  size: number;
  chunkSize: number;
  /** Milliseconds since 1970. */
  created: number;
  used: number;
}

/** 4 TiB. No model is larger, and this limits the index. */
export const kMaxFileBytes = 2 ** 42;
const kHeadBytes = 8192;
const kRecordBytes = 8;
const kMagic = 0x31434c53; // "SLC1"
const kPresent = 0x21;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function encodeMeta(meta: EntryMeta): Uint8Array {
  const json = encoder.encode(JSON.stringify(meta));
  if (json.length > kHeadBytes - 12) throw new RangeError('URL too long for the store');
  const out = new Uint8Array(kHeadBytes);
  out.set(json, 12);
  const view = new DataView(out.buffer);
  view.setUint32(0, kMagic, true);
  view.setUint32(4, json.length, true);
  view.setUint32(8, xxh32(out.slice(12, 12 + json.length)), true);
  return out;
}

function decodeMeta(head: Uint8Array): EntryMeta | null {
  if (head.length < kHeadBytes) return null;
  const view = new DataView(head.buffer, head.byteOffset, head.length);
  const length = view.getUint32(4, true);
  if (view.getUint32(0, true) !== kMagic || length > kHeadBytes - 12) return null;
  const json = head.slice(12, 12 + length);
  if (xxh32(json) !== view.getUint32(8, true)) return null;
  const meta = JSON.parse(decoder.decode(json)) as EntryMeta;
  const sane = meta.size >= 0 && meta.size <= kMaxFileBytes && meta.chunkSize >= 4096;
  return sane ? meta : null;
}

export type EntryDescription = EntryMeta & { bytesCached: number };

/** Metadata and number of stored bytes of an index file; null if it is invalid. */
export function describeIndex(index: Uint8Array): EntryDescription | null {
  const meta = decodeMeta(index.subarray(0, kHeadBytes));
  if (!meta) return null;
  const count = Math.ceil(meta.size / meta.chunkSize);
  let bytesCached = 0;
  for (let i = 0; i < count; i++) {
    if (!isPresent(index, i)) continue;
    bytesCached += Math.min(meta.chunkSize, meta.size - i * meta.chunkSize);
  }
  return { ...meta, bytesCached };
}

/** Whether the chunk is present, according to the contents of an index file. */
export const isPresent = (index: Uint8Array, chunk: number): boolean =>
  index[kHeadBytes + chunk * kRecordBytes] === kPresent;

/** Records that a chunk is stored with these bytes; null: that it is missing. False: disk full. */
export function writeRecord(index: SyncFile, chunk: number, bytes: Uint8Array | null): boolean {
  const record = new Uint8Array(kRecordBytes);
  if (bytes) {
    const view = new DataView(record.buffer);
    view.setUint32(0, kPresent, true);
    view.setUint32(4, xxh32(bytes), true);
  }
  return index.write(record, { at: kHeadBytes + chunk * kRecordBytes }) === kRecordBytes;
}

/** Whether these bytes match the checksum of the chunk. */
export function isRecorded(index: SyncFile, chunk: number, bytes: Uint8Array): boolean {
  const record = new Uint8Array(kRecordBytes);
  index.read(record, { at: kHeadBytes + chunk * kRecordBytes });
  const view = new DataView(record.buffer);
  return view.getUint32(0, true) === kPresent && view.getUint32(4, true) === xxh32(bytes);
}
