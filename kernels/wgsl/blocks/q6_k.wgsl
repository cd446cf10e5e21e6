// 210 bytes per 256 values: low nibbles, upper two bits, signed scales of each 16, d.
// x = d * scale * (q - 32). Value 128 h + 32 p + l: nibble p / 2 of byte 64 h + 32 (p % 2) + l, and
// bits 2 p of byte 32 h + l.
const PAIR = 64u;
const ONE_BLOCK = false;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 4u) * 128u + (unit & 15u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 210u;
  let of_half = (unit >> 4u) & 1u;
  let plane = (unit >> 3u) & 1u;
  let l = (unit & 7u) * 4u;
  let low = word$(block + (unit & 31u) * 4u);
  let high = word$(block + 128u + 32u * of_half + l);
  let d = half$(block + 208u);
  let at = block + 192u + 8u * of_half + 2u * plane + (l >> 4u);
  let s0 = d * f32(signed_bytes(byte$(at)).x);
  let s1 = d * f32(signed_bytes(byte$(at + 4u)).x);
  let codes = nibbles(low) | (two_bits(high, 2u * plane, 4u) * 16u);
  return Codes(less(codes, 0x20202020u), vec2f(s0, s1), vec2f());
}
//@ once
