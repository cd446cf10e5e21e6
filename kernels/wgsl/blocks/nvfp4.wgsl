// 36 bytes per 64 values: a scale (E4M3 without sign) for each 16, eight bytes for each 16.
// x = scale / 2 * level of nibble. Levels:
// 0 1 2 3, 4 6 8 12, and their negatives
const LEVELS = vec4u(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
const PAIR = 16u;
const ONE_BLOCK = false;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
fn half_e4m3(byte: u32) -> f32 {
  let exponent = (byte >> 3u) & 15u;
  let fraction = f32(byte & 7u);
  let normal = (8.0 + fraction) * bitcast<f32>((exponent + 116u) << 23u);
  return select(select(normal, fraction * 0.0009765625, exponent == 0u), 0.0, byte == 0x7fu);
}
//@ each binding
fn quad_of_sixteen$(at: u32, unit: u32) -> u32 {
  return chosen_bytes(bytes((word$(at + (unit & 1u) * 4u) >> ((unit & 2u) * 2u)) & 0x0f0f0f0fu), LEVELS);
}
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 3u) * 36u;
  let sub = (unit >> 1u) & 2u;
  let at = block + 4u + sub * 8u;
  return Codes(vec2u(quad_of_sixteen$(at, unit), quad_of_sixteen$(at + 8u, unit)),
               vec2f(half_e4m3(byte$(block + sub)), half_e4m3(byte$(block + sub + 1u))), vec2f());
}
//@ once
