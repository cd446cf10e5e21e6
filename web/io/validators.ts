// What the answer of a server says about the file behind it, in its headers: which version it is,
// how long, whether it comes compressed, and when to ask again.

const kRetryAfterCapMs = 60_000;
// Other origins hide Content-Encoding: a length up to this may be that of compressed text.
const kMaxText = 32 << 20;

/** What identifies a version of a file on a server; fields that cannot be read stay undefined. */
export interface Validators {
  size?: number | undefined;
  etag?: string | undefined;
  lastModified?: string | undefined;
}

/** What an answer says about the whole file. */
export function validatorsOf({ headers, status, type }: Response): Validators {
  const length = headers.get('content-length') ?? '';
  const hidden = type === 'cors' && Number(length) < kMaxText;
  const size =
    status === 206
      ? /\/(\d+)$/.exec(headers.get('content-range') ?? '')?.[1]
      : encoded(headers) || hidden
        ? ''
        : length;
  return {
    etag: headers.get('etag')?.replace(/^W\//, ''),
    lastModified: headers.get('last-modified') ?? undefined,
    size: size ? Number(size) : undefined,
  };
}

/** True when both sides know a property and it is not the same. */
export function differs(a: Validators, b: Validators): boolean {
  if (a.size !== undefined && b.size !== undefined && a.size !== b.size) return true;
  if (a.etag && b.etag) return a.etag !== b.etag;
  return Boolean(a.lastModified && b.lastModified && a.lastModified !== b.lastModified);
}

/** Compressed on the way: lengths and ranges are not the file's. */
export function encoded(headers: Headers): boolean {
  const encoding = headers.get('content-encoding');
  return encoding !== null && encoding !== '' && encoding !== 'identity';
}

/** Milliseconds that the server asks for. */
export function retryAfter(response: Response): number {
  const value = response.headers.get('retry-after');
  if (!value) return 0;
  const seconds = Number(value);
  const ms = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(value) - Date.now();
  return Math.min(Math.max(0, ms || 0), kRetryAfterCapMs);
}
