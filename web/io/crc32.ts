// zlib's CRC-32, of QSF's layers and of PNG's chunks: https://www.rfc-editor.org/rfc/rfc1952#section-8

/** Bytes per step of a CRC. */
const kStep = 16;
// Each 256 numbers: what a byte adds to the CRC, and what it adds n bytes later.
const tables = new Int32Array(kStep * 256);
for (let n = 0; n < 256; n++) {
  let sum = n;
  for (let table = 0; table < kStep; table++) {
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
    tables[table * 256 + n] = sum;
  }
}

/** zlib's CRC-32. `before` is the CRC of the preceding bytes. */
export function crc32(bytes: Uint8Array, before = 0): number {
  let sum = ~before;
  let i = 0;
  for (const end = bytes.length - kStep + 1; i < end; i += kStep) {
    sum ^= bytes[i]! | (bytes[i + 1]! << 8) | (bytes[i + 2]! << 16) | (bytes[i + 3]! << 24);
    sum =
      tables[3840 + (sum & 255)]! ^
      tables[3584 + ((sum >>> 8) & 255)]! ^
      tables[3328 + ((sum >>> 16) & 255)]! ^
      tables[3072 + (sum >>> 24)]! ^
      tables[2816 + bytes[i + 4]!]! ^
      tables[2560 + bytes[i + 5]!]! ^
      tables[2304 + bytes[i + 6]!]! ^
      tables[2048 + bytes[i + 7]!]! ^
      tables[1792 + bytes[i + 8]!]! ^
      tables[1536 + bytes[i + 9]!]! ^
      tables[1280 + bytes[i + 10]!]! ^
      tables[1024 + bytes[i + 11]!]! ^
      tables[768 + bytes[i + 12]!]! ^
      tables[512 + bytes[i + 13]!]! ^
      tables[256 + bytes[i + 14]!]! ^
      tables[bytes[i + 15]!]!;
  }
  for (; i < bytes.length; i++) sum = (sum >>> 8) ^ tables[(sum ^ bytes[i]!) & 255]!;
  return ~sum >>> 0;
}
