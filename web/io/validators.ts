// Parses response headers: the version and size of the file, and content encoding.

// Other origins hide Content-Encoding, so a length up to this could be that of compressed text.
const kMaxText = 32 << 20;

/** Identifies a version of a file on a server. Fields that cannot be read are undefined. */
export interface Validators {
  size?: number | undefined;
  etag?: string | undefined;
  lastModified?: string | undefined;
}

/** Size and validators of the whole file, from a response. */
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

/** Whether a property that both sides have is different. */
export function differs(a: Validators, b: Validators): boolean {
  if (a.size !== undefined && b.size !== undefined && a.size !== b.size) return true;
  if (a.etag && b.etag) return a.etag !== b.etag;
  return Boolean(a.lastModified && b.lastModified && a.lastModified !== b.lastModified);
}

/**
 * Whether files whose ETags differ may still be the same, as nodes of a CDN have it: if their first
 * bytes are equal too. One of the two may lack Last-Modified.
 */
export function mayEqual(a: Validators, b: Validators): boolean {
  const date = a.lastModified ?? b.lastModified;
  return a.size === b.size && date !== undefined && date === (b.lastModified ?? a.lastModified);
}

/** Whether the body is compressed. Lengths and ranges are then not those of the file. */
export function encoded(headers: Headers): boolean {
  const encoding = headers.get('content-encoding');
  return encoding !== null && encoding !== '' && encoding !== 'identity';
}

/** Message of SOURCE_CHANGED. */
export const changed = (name: string): string =>
  `${name} has changed on the server; load it again.`;
