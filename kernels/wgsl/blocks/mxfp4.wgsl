// 17 bytes per 32 values: the scale, 16 bytes. x = 2^(e - 128) * level of nibble. For e below 2 the
// scale is not a normal float, and 0 here. Levels:
// 0 1 2 3, 4 6 8 12, and their negatives
const LEVELS = vec4u(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
const PAIR = 16u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 2u) * 17u;
  let d = bitcast<f32>((max(byte$(block), 1u) - 1u) << 23u);
  let q = word$(block + 1u + (unit & 3u) * 4u);
  return Codes(looked_up(q, LEVELS), vec2f(d), vec2f());
}
//@ once
