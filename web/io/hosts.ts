// What the fetcher and the model cache need only for some hosts: keys of addresses with a query,
// nodes that give different ETags to the same file, and requests with headers, a token or the
// caller's fetch(). A module of its own, loaded on first use.

import type { RequestSpec } from '../protocol/messages.js';
import { channelFetch } from './fetch-channel.js';
import { fetchWith } from './requests.js';
import { kHeadBytes } from './store-index.js';
import { validatorsOf, type Validators } from './validators.js';
import { xxh32 } from './xxh32.js';

export { storedUrl } from '../protocol/address.js';

/** The fetch() of a model's files. */
export const requestFetch = (spec: RequestSpec): typeof fetch =>
  fetchWith(spec, spec.channel === undefined ? undefined : channelFetch(spec.channel));

const kTries = 16;

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
