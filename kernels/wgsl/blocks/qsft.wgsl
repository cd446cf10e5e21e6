// 18 bytes per 64 values: d, a sign bit of each, a bit of each that makes it zero.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 3u) * 18u;
  let signs = byte$(block + 2u + (unit & 7u));
  let others = ~byte$(block + 10u + (unit & 7u));
  let q = 254u * vec2u(four_bits(signs), four_bits(signs >> 4u)) + 0x01010101u;
  return Codes(q & (255u * vec2u(four_bits(others), four_bits(others >> 4u))), vec2f(half$(block)), vec2f());
}
//@ once
