// First request for a file that is not stored or will be replaced. Determines the size and receives
// the first bytes before anything is stored. If the server ignores ranges, its response contains
// the whole file, and reading it continues in the background.

import { publicUrl } from '../protocol/address.js';
import { SluiceError } from '../protocol/errors.js';
import type { Fetcher } from './fetcher.js';
import { kHeadBytes } from './store-index.js';
import { xxh32 } from './xxh32.js';

const kFirstRequest = 1 << 20;
const kMaxUnknown = 256 << 20; // maximum for a file of unknown length

/**
 * Calls `begin` with the size and the first kHeadBytes once `enough` bytes have arrived, and passes all
 * bytes in order to the sink that it returns. Resolves when the request is done. If the server
 * sends the whole file, resolves as soon as that has started; `rest` settles at its end. Errors:
 * those of the fetcher and of `begin`, NO_RANGE_SUPPORT, NOT_GGUF for a page of HTML.
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
    if (/^\s*<(!doctype|html|head|\?xml)/i.test(new TextDecoder().decode(head.subarray(0, 64)))) {
      throw new SluiceError(
        'NOT_GGUF',
        `${publicUrl(fetcher.url)} is a web page: give the address of the file itself.`,
      );
    }
    fetcher.head = xxh32(head.subarray(0, size));
    sink = begin(size, head.subarray(0, held));
    for (const part of early.splice(0)) sink(part);
    if (fetcher.mode === 'whole') onBegun();
  };
  const noSize = (): SluiceError =>
    new SluiceError(
      'NO_RANGE_SUPPORT',
      `${publicUrl(fetcher.url)} serves neither byte ranges nor the size of the file.`,
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
        // Requested in parallel, so that the first bytes can be stored immediately.
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
