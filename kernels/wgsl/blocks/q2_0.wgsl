// 18 bytes per 64 values: d, two bits of each. x = d * (q - 1).
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 3u) * 18u;
  return Codes(less(spread_two_bits(short$(block + 2u + (unit & 7u) * 2u)), 0x01010101u), vec2f(half$(block)), vec2f());
}
//@ once
