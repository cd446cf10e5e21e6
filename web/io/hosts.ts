// What the fetcher and the model cache need only for some hosts: keys of addresses with a query,
// statuses of failure, nodes that give different ETags to the same file, and requests with headers,
// a token or the caller's fetch(). A module of its own, loaded on first use.

import type { ErrorCode } from '../protocol/errors.js';
import type { RequestSpec } from '../protocol/messages.js';
import { channelFetch } from './fetch-channel.js';
import { fetchWith } from './requests.js';
import { kHeadBytes } from './store-index.js';
import { following } from './timeouts.js';
import { changed, encoded, validatorsOf, type Validators } from './validators.js';
import { xxh32 } from './xxh32.js';

export { storedUrl } from '../protocol/address.js';

/** The fetch() of a model's files. */
export const requestFetch = (spec: RequestSpec): typeof fetch =>
  fetchWith(spec, spec.channel === undefined ? undefined : channelFetch(spec.channel));

const kTries = 16;
const kRetryStatus = new Set([408, 425, 429, 500, 502, 503, 504]);
const kRetryAfterCapMs = 60_000;

/**
 * Whether the node that sent `seen` has the file whose first kHeadBytes have this checksum. `ask`
 * requests those bytes; another node may answer, so it is called again until this one does.
 */
export async function isSameFile(
  seen: Validators,
  head: number,
  ask: () => Promise<Response>,
): Promise<boolean> {
  for (let tries = 0; tries < kTries; tries++) {
    const response = await ask();
    const { etag, size } = validatorsOf(response);
    if (response.status !== 206 || size !== seen.size) return false;
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (etag !== seen.etag) continue;
    return bytes.length === Math.min(kHeadBytes, size!) && xxh32(bytes) === head;
  }
  return false;
}

/** What a status other than 200 and 206 means. With `afterMs`, the request may be repeated. */
export function statusFailure(
  response: Response,
  name: string,
  known: Validators,
  position: number,
): { code: ErrorCode; message: string; afterMs?: number } {
  const { status, statusText, redirected, headers } = response;
  if (status === 416) {
    if (known.size === undefined && position === 0)
      return { code: 'TRUNCATED', message: `${name} is empty.` };
    const total = /\*\/(\d+)/.exec(headers.get('content-range') ?? '');
    if (total && Number(total[1]) !== known.size)
      return { code: 'SOURCE_CHANGED', message: changed(name) };
    const message = 'The server reports that the range is invalid.';
    return { code: 'HTTP_STATUS', message, afterMs: 0 };
  }
  const message = `${name} answered ${status} ${statusText}`.trimEnd() + '. Check the address.';
  if (kRetryStatus.has(status))
    return { code: 'HTTP_STATUS', message, afterMs: retryAfter(response) };
  // A redirect whose signature has expired: the original URL redirects to a new one.
  const expired = redirected && (status === 401 || status === 403 || status === 410);
  return { code: 'HTTP_STATUS', message, ...(expired && { afterMs: 0 }) };
}

/** Retry-After in milliseconds, at most a minute; 0 if there is none. */
function retryAfter(response: Response): number {
  const value = response.headers.get('retry-after');
  if (!value) return 0;
  const seconds = Number(value);
  const ms = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(value) - Date.now();
  return Math.min(Math.max(0, ms || 0), kRetryAfterCapMs);
}

/**
 * Size of a file whose range responses do not show it; undefined: unknown. Other origins often hide
 * Content-Range, but never Content-Length, which equals the file size for a range without an end.
 * Content-Length of a request without a range could be that of compressed bytes.
 */
export function sizeOf(
  ask: (signal: AbortSignal) => Promise<Response>,
  limitMs: number,
  signal?: AbortSignal,
): Promise<number | undefined> {
  return following(signal, async (control) => {
    const timer = setTimeout(() => control.abort(), limitMs);
    try {
      const { status, headers } = await ask(control.signal);
      const length = headers.get('content-length');
      return status === 206 && length && !encoded(headers) ? Number(length) : undefined;
    } finally {
      clearTimeout(timer);
      control.abort();
    }
  });
}
