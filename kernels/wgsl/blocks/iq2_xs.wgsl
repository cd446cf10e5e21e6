// 74 bytes per 256 values: d, a half word for each eight (9 bits of index, 7 of signs), a nibble for
// each 16. x = d * (scale + 1/2) / 4 * entry.
const PAIR = 16u;
const ONE_BLOCK = false;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn half_octet$(at: u32, upper: u32) -> u32 {
  let both = short$(at);
  return with_four_signs(half_entry(both & 511u, upper), seven_signs(both >> 9u) >> (upper * 4u));
}
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 74u;
  let sub = (unit >> 2u) & 7u;
  let at = block + 2u + sub * 8u + (unit & 2u);
  let q = vec2u(half_octet$(at, unit & 1u), half_octet$(at + 4u, unit & 1u));
  let scales = vec2f((vec2u(byte$(block + 66u + sub)) >> vec2u(0u, 4u)) & vec2u(15u));
  return Codes(q, half$(block) * 0.25 * (scales + 0.5), vec2f());
}
//@ once
