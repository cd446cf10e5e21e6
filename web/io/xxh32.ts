// xxHash32, the checksum of stored chunks, written from its specification. Plain JavaScript runs it
// nearly at memory speed (four independent Math.imul lanes), so checking each chunk once per
// session costs little compared with reading it. It detects damage, not manipulation.

const P1 = 0x9e3779b1 | 0;
const P2 = 0x85ebca77 | 0;
const P3 = 0xc2b2ae3d | 0;
const P4 = 0x27d4eb2f | 0;
const P5 = 0x165667b1 | 0;

const rotl = (x: number, r: number): number => (x << r) | (x >>> (32 - r));

/** 32-bit hash of `bytes`. The view must start at a multiple of 4 in its buffer. */
export function xxh32(bytes: Uint8Array, seed = 0): number {
  const length = bytes.length;
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, length >> 2);
  const n = words.length;
  let i = 0;
  let h: number;
  if (n >= 4) {
    let a = (seed + P1 + P2) | 0;
    let b = (seed + P2) | 0;
    let c = seed | 0;
    let d = (seed - P1) | 0;
    for (const end = n - 3; i < end; i += 4) {
      a = Math.imul(rotl((a + Math.imul(words[i]!, P2)) | 0, 13), P1);
      b = Math.imul(rotl((b + Math.imul(words[i + 1]!, P2)) | 0, 13), P1);
      c = Math.imul(rotl((c + Math.imul(words[i + 2]!, P2)) | 0, 13), P1);
      d = Math.imul(rotl((d + Math.imul(words[i + 3]!, P2)) | 0, 13), P1);
    }
    h = (rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18)) | 0;
  } else {
    h = (seed + P5) | 0;
  }
  h = (h + length) | 0;
  for (; i < n; i++) h = Math.imul(rotl((h + Math.imul(words[i]!, P3)) | 0, 17), P4);
  for (let j = n << 2; j < length; j++) {
    h = Math.imul(rotl((h + Math.imul(bytes[j]!, P5)) | 0, 11), P1);
  }
  h = Math.imul(h ^ (h >>> 15), P2);
  h = Math.imul(h ^ (h >>> 13), P3);
  return (h ^ (h >>> 16)) >>> 0;
}
