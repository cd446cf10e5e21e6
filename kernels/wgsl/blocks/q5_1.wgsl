// 24 bytes per 32 values: d, m, a fifth bit of each, 16 bytes. x = d * q + m.
const PAIR = 16u;
const ONE_BLOCK = true;
const MINIMA = true;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 2u) * 24u;
  let high = word$(block + 4u) >> ((unit & 3u) * 4u);
  let q = word$(block + 8u + (unit & 3u) * 4u);
  let codes = nibbles(q) | (vec2u(four_bits(high), four_bits(high >> 16u)) * 16u);
  return Codes(codes, vec2f(half$(block)), vec2f(half$(block + 2u)));
}
//@ once
