// 24 bytes of 32 values: d, m, a fifth bit of each, 16 bytes. x = d * q + m.
const PAIR = 16u;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let block = row + (unit >> 2u) * 24u;
  let d = half$(block);
  let m = vec4f(half$(block + 2u));
  let high = word$(block + 4u) >> ((unit & 3u) * 4u);
  let q = word$(block + 8u + (unit & 3u) * 4u);
  return mat2x4f(vec4f(low_nibbles(q) + four_bits(high) * 16u) * d + m,
                 vec4f(high_nibbles(q) + four_bits(high >> 16u) * 16u) * d + m);
}
//@ once
