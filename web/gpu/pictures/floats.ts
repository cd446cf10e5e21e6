// Small tensors of a projector, which are F32, F16 or BF16, as f32.

// ggml's type ids.
const kF16 = 1;
const kBf16 = 30;

function ofHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function toFloats(type: number, bytes: Uint8Array): Float32Array<ArrayBuffer> {
  const { buffer } = new Uint8Array(bytes);
  if (type === kF16) return Float32Array.from(new Uint16Array(buffer), ofHalf);
  if (type !== kBf16) return new Float32Array(buffer);
  const words = Uint32Array.from(new Uint16Array(buffer), (bits) => bits << 16);
  return new Float32Array(words.buffer);
}
