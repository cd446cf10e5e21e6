// 98 bytes per 256 values: d, an index for each four, a word for each 32 as in IQ2_XXS.
// x = d * (scale + 1/2) / 2 * entry.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 98u;
  let both = short$(block + 2u + (unit & 31u) * 2u);
  let signs = word$(block + 66u + ((unit >> 2u) & 7u) * 4u);
  let q = vec2u(codebook[both & 255u], codebook[both >> 8u]);
  let d = half$(block) * (f32(signs >> 28u) + 0.5) * 0.5;
  return Codes(with_signs(q, seven_signs(signs >> ((unit & 3u) * 7u))), vec2f(d), vec2f());
}
//@ once
