// 36 bytes per 64 values: d, m, four bits of each. x = d * q + m.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = true;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 3u) * 36u;
  let both = vec2u(word$(block + 4u + (unit & 7u) * 4u)) >> vec2u(0u, 16u);
  let q = (both & vec2u(0xfu)) | ((both & vec2u(0xf0u)) << vec2u(4u)) | ((both & vec2u(0xf00u)) << vec2u(8u)) |
          ((both & vec2u(0xf000u)) << vec2u(12u));
  return Codes(q, vec2f(half$(block)), vec2f(half$(block + 2u)));
}
//@ once
