// Writes the header of a GGUF file, version 3: metadata and where tensors are. The data that would
// follow is synthetic (virtual-file.mjs), so no tensor is stored.

const kAlignment = 32;
/** Value types of the format. */
const kType = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 };

/** Ids, values and bytes of the blocks of quantization types. */
export const kBlocks = {
  F32: [0, 1, 4],
  F16: [1, 1, 2],
  Q4_0: [2, 32, 18],
  Q8_0: [8, 32, 34],
  Q4_K: [12, 256, 144],
  Q6_K: [14, 256, 210],
};

/** Bytes of a tensor with dimensions `ne`. */
export function tensorBytes({ type, ne }) {
  const [, values, bytes] = kBlocks[type];
  return (ne.reduce((product, n) => product * n, 1) / values) * bytes;
}

class Bytes {
  #all = Buffer.alloc(1 << 16);
  #used = 0;

  #take(bytes) {
    while (this.#used + bytes > this.#all.length)
      this.#all = Buffer.concat([this.#all, Buffer.alloc(this.#all.length)]);
    this.#used += bytes;
    return this.#used - bytes;
  }
  u32(value) {
    const at = this.#take(4);
    this.#all.writeUInt32LE(value, at);
  }
  u64(value) {
    const at = this.#take(8);
    this.#all.writeBigUInt64LE(BigInt(value), at);
  }
  string(text) {
    const bytes = Buffer.from(text);
    this.u64(bytes.length);
    const at = this.#take(bytes.length);
    bytes.copy(this.#all, at);
  }
  value(type, value) {
    if (type === 'string') this.string(value);
    else if (type === 'u32') this.u32(value);
    else {
      const at = this.#take(type === 'bool' ? 1 : 4);
      if (type === 'f32') this.#all.writeFloatLE(value, at);
      else if (type === 'i32') this.#all.writeInt32LE(value, at);
      else this.#all.writeUInt8(Number(value), at);
    }
  }
  padded(to) {
    this.#take((to - (this.#used % to)) % to);
    return this.#all.subarray(0, this.#used);
  }
}

/**
 * `keys`: [name, type, value]; a value that is an array becomes one. `tensors`: { name, type, ne }.
 * Returns the header, padded to the alignment of the data, and the size of the whole file.
 */
export function ggufHeader(keys, tensors) {
  const out = new Bytes();
  out.u32(0x46554747); // "GGUF"
  out.u32(3);
  out.u64(tensors.length);
  out.u64(keys.length);
  for (const [name, type, value] of keys) {
    out.string(name);
    if (Array.isArray(value)) {
      out.u32(kType.array);
      out.u32(kType[type]);
      out.u64(value.length);
      for (const one of value) out.value(type, one);
    } else {
      out.u32(kType[type]);
      out.value(type, value);
    }
  }
  let at = 0;
  for (const tensor of tensors) {
    out.string(tensor.name);
    out.u32(tensor.ne.length);
    for (const n of tensor.ne) out.u64(n);
    out.u32(kBlocks[tensor.type][0]);
    out.u64(at);
    at += Math.ceil(tensorBytes(tensor) / kAlignment) * kAlignment;
  }
  const header = out.padded(kAlignment);
  return { header, size: header.length + at };
}
