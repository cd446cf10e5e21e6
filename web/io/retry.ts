// Failed attempts of a request: errors after which it is repeated, and whether it is then sent without
// a range.

import { withoutSecrets } from '../protocol/address.js';

/** An attempt failed, and another one may succeed. */
export class Retry extends Error {
  constructor(
    message: string,
    readonly afterMs = 0,
    readonly code: 'NETWORK' | 'HTTP_STATUS' = 'NETWORK',
    cause?: unknown,
    /** The host could not be reached at all. */
    readonly unreachable = false,
  ) {
    super(message, { cause });
  }
}

/**
 * Chromium rejects a compressed response to a request with a range, and a page cannot tell that from
 * a host that is not there. So a request without a range follows the first failure.
 */
export const enum Bare {
  No,
  Next,
  Failed,
  /** It worked, perhaps because the host is back: a range is tried once more. */
  Worked,
  Only,
}

/** Text of an error of fetch(), with its cause and without secrets. */
export function describe(error: unknown): string {
  const { message, cause } = error as Error;
  const inner = cause instanceof Error ? `${message} (${cause.message})` : message;
  return withoutSecrets(inner.endsWith('.') ? inner : `${inner}.`);
}
