// 22 bytes per 32 values: d, a fifth bit of each, 16 bytes. x = d * (q - 16).
const PAIR = 16u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 2u) * 22u;
  let high = word$(block + 2u) >> ((unit & 3u) * 4u);
  let q = word$(block + 6u + (unit & 3u) * 4u);
  let codes = nibbles(q) | (vec2u(four_bits(high), four_bits(high >> 16u)) * 16u);
  return Codes(less(codes, 0x10101010u), vec2f(half$(block)), vec2f());
}
//@ once
