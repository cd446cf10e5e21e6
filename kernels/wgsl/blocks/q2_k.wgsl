// 84 bytes per 256 values: scale and minimum (nibbles) of each 16, planes of two bits, d, dmin.
// x = d * scale * q - dmin * minimum. Byte 32 h + l has two bits of values 128 h + 32 p + l.
const PAIR = 32u;
const ONE_BLOCK = false;
const MINIMA = true;
fn column(unit: u32) -> u32 { return (unit >> 3u) * 64u + (unit & 7u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
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
  return Codes(two_bits(q, 2u * plane, 2u), d * vec2f(vec2u(s0, s1) & vec2u(15u)),
               -dmin * vec2f(vec2u(s0, s1) >> vec2u(4u)));
}
//@ once
