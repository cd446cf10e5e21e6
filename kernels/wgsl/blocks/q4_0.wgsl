// 18 bytes of 32 values: the scale, 16 bytes. x = d * (nibble - 8).
const PAIR = 16u;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let block = row + (unit >> 2u) * 18u;
  let d = half$(block);
  let q = word$(block + 2u + (unit & 3u) * 4u);
  return mat2x4f((vec4f(low_nibbles(q)) - 8.0) * d, (vec4f(high_nibbles(q)) - 8.0) * d);
}
//@ once
