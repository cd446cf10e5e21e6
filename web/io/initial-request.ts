// The first request of a file that is not stored, or is about to be replaced: learns its size,
// waits until its beginning is here, and only then says what comes. A server that ignores ranges
// sends all of it in this answer, which goes on behind the caller's back.

import { publicUrl } from '../protocol/address.js';
import { SluiceError } from '../protocol/errors.js';
import type { Fetcher } from './fetcher.js';
import { kHeadBytes } from './local-chunks.js';

const kFirstRequest = 1 << 20;
const kMaxUnknown = 256 << 20; // of a file whose length nobody tells

/**
 * Calls `begin` with the size and the first bytes once `enough` have come, and hands what it
 * returns all bytes in order. Resolves when the request is done, or for a whole file as soon as
 * that has begun, with what remains. Errors: the fetcher's, begin's, NO_RANGE_SUPPORT.
 */
export async function firstContact(
  fetcher: Fetcher,
  enough: number,
  begin: (size: number, head: Uint8Array) => (bytes: Uint8Array) => void,
  signal: AbortSignal,
): Promise<{ rest?: Promise<unknown> }> {
  const early: Uint8Array[] = [];
  const head = new Uint8Array(kHeadBytes);
  let held = 0;
  let sink: ((bytes: Uint8Array) => void) | undefined;
  let probe: Promise<unknown> | undefined;
  let onBegun!: () => void;
  const begun = new Promise<void>((resolve) => (onBegun = resolve));
  const start = (size: number): void => {
    sink = begin(size, head.subarray(0, held));
    for (const part of early.splice(0)) sink(part);
    if (fetcher.mode === 'whole') onBegun();
  };
  const noSize = (): SluiceError =>
    new SluiceError(
      'NO_RANGE_SUPPORT',
      `${publicUrl(fetcher.url)} neither serves byte ranges nor says how long the file is.`,
    );

  const stream = async (): Promise<void> => {
    await fetcher.stream(
      0,
      kFirstRequest,
      (bytes, offset) => {
        if (sink) return sink(bytes);
        if (offset > kMaxUnknown) throw noSize();
        if (offset < kHeadBytes) head.set(bytes.subarray(0, kHeadBytes - offset), offset);
        early.push(bytes.slice());
        held = offset + bytes.length;
        const { size } = fetcher.known;
        if (size !== undefined && held >= Math.min(enough, size)) start(size);
        // Asked for while the first bytes come, so that they can be kept at once.
        if (size === undefined && fetcher.mode === 'ranges')
          probe ??= fetcher.probeSize(signal).catch(() => {});
      },
      signal,
    );
    if (sink) return;
    await probe;
    if (fetcher.known.size === undefined) throw noSize();
    start(fetcher.known.size);
  };
  const done = stream();
  await Promise.race([begun, done]);
  return fetcher.mode === 'whole' ? { rest: done } : {};
}
