// Splits a GGUF file as llama.cpp does, for tests of split models.

/** Splits a GGUF into `count` files with a share of the tensors each. */
export function splitGguf(bytes, count) {
  let at = 24;
  const u32 = () => bytes.readUInt32LE((at += 4) - 4);
  const u64 = () => Number(bytes.readBigUInt64LE((at += 8) - 8));
  const move = (n) => (at += n);
  const skipText = () => move(u64());
  const skip = (type) => {
    if (type === 8) return skipText();
    if (type !== 9) return move([1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][type]);
    const element = u32();
    for (let n = u64(); n > 0; n--) skip(element);
  };
  for (let n = Number(bytes.readBigUInt64LE(16)); n > 0; n--) {
    skipText();
    skip(u32());
  }
  const metadata = bytes.subarray(24, at);
  const tensors = Array.from({ length: Number(bytes.readBigUInt64LE(8)) }, () => {
    const start = at;
    skipText();
    move(8 * u32() + 4);
    const info = Buffer.from(bytes.subarray(start, at + 8));
    return { info, offset: u64() };
  });
  const data = bytes.subarray(Math.ceil(at / 32) * 32);
  const pair = (key, type, value) => {
    const out = Buffer.alloc(8 + key.length + 8);
    out.writeBigUInt64LE(BigInt(key.length));
    out.write(key, 8);
    out.writeUInt32LE(type, 8 + key.length);
    out.writeUInt32LE(value, 12 + key.length);
    return out;
  };
  const share = Math.ceil(tensors.length / count);
  return Array.from({ length: count }, (_, part) => {
    const mine = tensors.slice(part * share, (part + 1) * share);
    const base = mine[0].offset;
    for (const { info, offset } of mine)
      info.writeBigUInt64LE(BigInt(offset - base), info.length - 8);
    const own = [
      ['split.no', part],
      ['split.count', count],
      ['split.tensors.count', tensors.length],
    ];
    const preamble = Buffer.from(bytes.subarray(0, 24));
    preamble.writeBigUInt64LE(BigInt(mine.length), 8);
    preamble.writeBigUInt64LE(
      BigInt(own.length) + (part === 0 ? bytes.readBigUInt64LE(16) : 0n),
      16,
    );
    const header = Buffer.concat([
      preamble,
      part === 0 ? metadata : Buffer.alloc(0),
      ...own.map(([key, value]) => pair(key, 4, value)),
      ...mine.map(({ info }) => info),
    ]);
    const padding = Buffer.alloc(-header.length & 31);
    return Buffer.concat([
      header,
      padding,
      data.subarray(base, tensors[(part + 1) * share]?.offset),
    ]);
  });
}
