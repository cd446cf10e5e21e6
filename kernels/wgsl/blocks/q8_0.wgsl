// 34 bytes per 32 values: d, 32 signed bytes. x = d * q.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 2u) * 34u;
  let at = block + 2u + (unit & 3u) * 8u;
  return Codes(vec2u(word$(at), word$(at + 4u)), vec2f(half$(block)), vec2f());
}
//@ once
