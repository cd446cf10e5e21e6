// 66 bytes of 256 values: planes of two bits as Q2_K has, d. x = d * (q - 1).
const PAIR = 32u;
fn column(unit: u32) -> u32 { return (unit >> 3u) * 64u + (unit & 7u) * 4u; }
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let block = row + (unit >> 5u) * 66u;
  let plane = ((unit >> 3u) & 1u) * 2u;
  let d = half$(block + 64u);
  let q = word$(block + 32u * ((unit >> 4u) & 1u) + (unit & 7u) * 4u);
  return mat2x4f((vec4f(two_bits_of_bytes(q, 2u * plane)) - 1.0) * d,
                 (vec4f(two_bits_of_bytes(q, 2u * plane + 2u)) - 1.0) * d);
}
//@ once
