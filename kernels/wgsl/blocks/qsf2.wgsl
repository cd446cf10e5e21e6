// 20 bytes per 64 values: d, m, two bits of each. x = d * q + m.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = true;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 3u) * 20u;
  let q = spread_two_bits(short$(block + 4u + (unit & 7u) * 2u));
  return Codes(q, vec2f(half$(block)), vec2f(half$(block + 2u)));
}
//@ once
