// 20 bytes per 32 values: d, m, 16 bytes. x = d * nibble + m.
const PAIR = 16u;
const ONE_BLOCK = true;
const MINIMA = true;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 2u) * 20u;
  let q = word$(block + 4u + (unit & 3u) * 4u);
  return Codes(nibbles(q), vec2f(half$(block)), vec2f(half$(block + 2u)));
}
//@ once
