// 18 bytes per 32 values: the scale, 16 bytes. x = d * level of nibble.
// -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113
const LEVELS = vec4u(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
const PAIR = 16u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 2u) * 18u;
  let q = word$(block + 2u + (unit & 3u) * 4u);
  return Codes(looked_up(q, LEVELS), vec2f(half$(block)), vec2f());
}
//@ once
