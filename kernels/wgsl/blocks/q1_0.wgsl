// 18 bytes per 128 values: d, a bit of each. x = d or -d.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 4u) * 18u;
  let bits = byte$(block + 2u + (unit & 15u));
  return Codes(less(2u * vec2u(four_bits(bits), four_bits(bits >> 4u)), 0x01010101u), vec2f(half$(block)), vec2f());
}
//@ once
