// 110 bytes per 256 values: third bits, planes of two bits as in Q2_K, 6-bit scales of each 16, d.
// x = d * (scale - 32) * (q - 4). The third bit of value i is bit i / 32 of byte i % 32.
const PAIR = 32u;
const ONE_BLOCK = false;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 3u) * 64u + (unit & 7u) * 4u; }
//@ each binding
fn scale$(block: u32, j: u32) -> f32 {
  let low = (byte$(block + 96u + (j & 7u)) >> ((j >> 3u) * 4u)) & 15u;
  let high = (byte$(block + 104u + (j & 3u)) >> ((j >> 2u) * 2u)) & 3u;
  return f32(low | (high << 4u)) - 32.0;
}
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 110u;
  let of_half = (unit >> 4u) & 1u;
  let plane = ((unit >> 3u) & 1u) * 2u;
  let l = (unit & 7u) * 4u;
  let d = half$(block + 108u);
  let q = word$(block + 32u + 32u * of_half + l);
  let third = word$(block + l) >> (4u * of_half + plane);
  let j = 8u * of_half + 2u * plane + (l >> 4u);
  let codes = two_bits(q, 2u * plane, 2u) | (bit_of_bytes(third) * 4u);
  return Codes(less(codes, 0x04040404u), d * vec2f(scale$(block, j), scale$(block, j + 2u)), vec2f());
}
//@ once
