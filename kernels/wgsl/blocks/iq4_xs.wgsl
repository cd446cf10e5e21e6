// 136 bytes per 256 values: d, the upper two bits of the scales of each 32, their nibbles, nibbles.
// x = d * (scale - 32) * level of nibble.
// -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113
const LEVELS = vec4u(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
const PAIR = 16u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 136u;
  let j = (unit >> 2u) & 7u;
  let low = (word$(block + 4u) >> (j * 4u)) & 15u;
  let high = (word$(block) >> (16u + j * 2u)) & 3u;
  let d = half$(block) * (f32(low | (high << 4u)) - 32.0);
  let q = word$(block + 8u + (unit & 31u) * 4u);
  return Codes(looked_up(q, LEVELS), vec2f(d), vec2f());
}
//@ once
