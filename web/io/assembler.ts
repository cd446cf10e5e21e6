// Assembles whole chunks from a stream of bytes.

import { SluiceError } from '../protocol/errors.js';

/** Receives bytes in order. */
export type Sink = (bytes: Uint8Array) => void;

/** Calls `arrived` for each whole chunk, from number `chunk` on. Its bytes are then reused. */
export function assembler(
  file: { readonly size: number; readonly chunkSize: number },
  name: string,
  chunk: number,
  arrived: (chunk: number, bytes: Uint8Array) => void,
): Sink {
  const { chunkSize } = file;
  const buffer = new Uint8Array(chunkSize);
  let filled = 0;
  return (bytes) => {
    for (let at = 0; at < bytes.length;) {
      const length = Math.min(chunkSize, file.size - chunk * chunkSize);
      if (length <= 0) throw new SluiceError('NETWORK', `${name} sent too many bytes.`);
      const n = Math.min(length - filled, bytes.length - at);
      buffer.set(bytes.subarray(at, at + n), filled);
      filled += n;
      at += n;
      if (filled < length) continue;
      arrived(chunk++, buffer.subarray(0, length));
      filled = 0;
    }
  };
}
