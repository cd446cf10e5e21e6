// Checks whether a stored file is still the one on the server. Compares the validators, and the
// first bytes, because some servers send no validators.

import { isAbort, throwIfAborted, type Warn } from '../protocol/errors.js';
import type { Fetcher } from './fetcher.js';
import type { LocalChunks } from './local-chunks.js';
import { kHeadBytes } from './store-index.js';
import { xxh32 } from './xxh32.js';
import { differs, mayEqual } from './validators.js';

const kOfflineMs = 4_000;

/** False if the file must be downloaded again. If the server fails, a complete file is used. */
export async function isCurrent(
  fetcher: Fetcher,
  local: LocalChunks,
  warn: Warn,
  signal?: AbortSignal,
): Promise<boolean> {
  const entry = local.entry!;
  const { size, etag, lastModified } = entry.meta!;
  try {
    if (await compare(fetcher, local, signal)) {
      fetcher.known.size = size;
      entry.touch();
      return true;
    }
  } catch (error) {
    throwIfAborted(signal);
    if (isAbort(error) || !entry.complete) throw error;
    warn('NETWORK', `${(error as Error).message} Using the cached file.`);
    fetcher.reset({ size, etag, lastModified });
    return true;
  }
  warn('SOURCE_CHANGED', 'The file on the server has changed; downloading it.');
  if (!local.writing) local.drop();
  return false;
}

/** Compares the server's file with the stored one. Throws if it cannot be a version of it. */
async function compare(
  fetcher: Fetcher,
  local: LocalChunks,
  signal?: AbortSignal,
): Promise<boolean> {
  const entry = local.entry!;
  const stored = new Uint8Array(Math.min(kHeadBytes, local.size));
  const fresh = new Uint8Array(stored.length);
  const got = await fetcher.peek(fresh, entry.complete ? kOfflineMs : 0, signal);
  const known = local.collect(0, stored).size === 0;
  const same = known && got === fresh.length && fresh.every((byte, i) => byte === stored[i]);
  if (!same) local.mayReplace(fresh.subarray(0, got), fetcher.mode === 'ranges');
  if (same) fetcher.head = xxh32(fresh);
  if (!differs(entry.meta!, fetcher.known)) return same || !known;
  if (!same || !mayEqual(entry.meta!, fetcher.known)) return false;
  const { size, etag, lastModified } = entry.meta!;
  fetcher.alias({ size, etag, lastModified });
  return true;
}
