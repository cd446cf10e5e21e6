// 18 bytes per 32 values: the scale, 16 bytes. x = d * (nibble - 8).
const PAIR = 16u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 2u) * 18u;
  let q = word$(block + 2u + (unit & 3u) * 4u);
  return Codes(less(nibbles(q), 0x08080808u), vec2f(half$(block)), vec2f());
}
//@ once
