// 66 bytes per 256 values: d, then for each 32 four indices and a word: 7 sign bits for each eight
// values, scale. x = d * (scale + 1/2) / 4 * entry.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 66u;
  let at = block + 2u + ((unit >> 2u) & 7u) * 8u;
  let signs = word$(at + 4u);
  let d = half$(block) * (f32(signs >> 28u) + 0.5) * 0.25;
  return Codes(with_signs(entry(byte$(at + (unit & 3u))), seven_signs(signs >> ((unit & 3u) * 7u))), vec2f(d), vec2f());
}
//@ once
