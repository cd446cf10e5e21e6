// LZ4's block format. Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md

/** Decompresses a block. Returns false if it is invalid or not exactly `into.length` bytes. */
export function unpackLz4(from: Uint8Array, into: Uint8Array): boolean {
  let [at, to] = [0, 0];
  /** Reads a length, which continues while bytes are 255. */
  const whole = (length: number): number => {
    if (length < 15) return length;
    let byte = 255;
    while (byte === 255 && at < from.length) length += byte = from[at++]!;
    return length;
  };
  while (at < from.length) {
    const token = from[at++]!;
    const literals = whole(token >> 4);
    if (literals > from.length - at || literals > into.length - to) return false;
    into.set(from.subarray(at, at + literals), to);
    at += literals;
    to += literals;
    if (at === from.length) break; // the last sequence has only literals
    if (at + 2 > from.length) return false;
    const distance = from[at]! | (from[at + 1]! << 8);
    at += 2;
    const length = whole(token & 15) + 4;
    if (distance === 0 || distance > to || length > into.length - to) return false;
    if (distance >= length) into.copyWithin(to, to - distance, to - distance + length);
    // Source and target overlap.
    else for (let i = 0; i < length; i++) into[to + i] = into[to + i - distance]!;
    to += length;
  }
  return to === into.length;
}
