// 20 bytes of 32 values: d, m, 16 bytes. x = d * nibble + m.
const PAIR = 16u;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let block = row + (unit >> 2u) * 20u;
  let d = half$(block);
  let m = vec4f(half$(block + 2u));
  let q = word$(block + 4u + (unit & 3u) * 4u);
  return mat2x4f(vec4f(low_nibbles(q)) * d + m, vec4f(high_nibbles(q)) * d + m);
}
//@ once
