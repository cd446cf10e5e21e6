// 66 bytes per 256 values: planes of two bits as in Q2_K, d. x = d * (q - 1).
const PAIR = 32u;
const ONE_BLOCK = false;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 3u) * 64u + (unit & 7u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 66u;
  let plane = ((unit >> 3u) & 1u) * 2u;
  let d = half$(block + 64u);
  let q = word$(block + 32u * ((unit >> 4u) & 1u) + (unit & 7u) * 4u);
  return Codes(less(two_bits(q, 2u * plane, 2u), 0x01010101u), vec2f(d), vec2f());
}
//@ once
