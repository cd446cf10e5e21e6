// 84 bytes of 256 values: scale and minimum (nibbles) of each 16, planes of two bits, d, dmin.
// x = d * scale * q - dmin * minimum. Byte 32 h + l has two bits of values 128 h + 32 p + l.
const PAIR = 32u;
fn column(unit: u32) -> u32 { return (unit >> 3u) * 64u + (unit & 7u) * 4u; }
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let block = row + (unit >> 5u) * 84u;
  let of_half = (unit >> 4u) & 1u;
  let plane = ((unit >> 3u) & 1u) * 2u;
  let l = (unit & 7u) * 4u;
  let d = half$(block + 80u);
  let dmin = half$(block + 82u);
  let q = word$(block + 16u + 32u * of_half + l);
  let at = block + 8u * of_half + 2u * plane + (l >> 4u);
  let s0 = byte$(at);
  let s1 = byte$(at + 2u);
  return mat2x4f(vec4f(two_bits_of_bytes(q, 2u * plane)) * (d * f32(s0 & 15u)) - dmin * f32(s0 >> 4u),
                 vec4f(two_bits_of_bytes(q, 2u * plane + 2u)) * (d * f32(s1 & 15u)) - dmin * f32(s1 >> 4u));
}
//@ once
