// 22 bytes of 32 values: d, a fifth bit of each, 16 bytes. x = d * (q - 16).
const PAIR = 16u;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let block = row + (unit >> 2u) * 22u;
  let d = half$(block);
  let high = word$(block + 2u) >> ((unit & 3u) * 4u);
  let q = word$(block + 6u + (unit & 3u) * 4u);
  return mat2x4f((vec4f(low_nibbles(q) + four_bits(high) * 16u) - 16.0) * d,
                 (vec4f(high_nibbles(q) + four_bits(high >> 16u) * 16u) - 16.0) * d);
}
//@ once
