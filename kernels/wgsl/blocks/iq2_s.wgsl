// 82 bytes per 256 values: d, lower 8 bits of the index of each eight, their signs, upper two bits of
// the indices, a nibble for each 16. x = d * (scale + 1/2) / 4 * entry.
const PAIR = 16u;
const ONE_BLOCK = false;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn half_octet$(block: u32, octet: u32, upper: u32) -> u32 {
  let high = (byte$(block + 66u + (octet >> 2u)) >> ((octet & 3u) * 2u)) & 3u;
  return with_four_signs(half_entry(byte$(block + 2u + octet) | (high << 8u), upper),
                         byte$(block + 34u + octet) >> (upper * 4u));
}
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 82u;
  let sub = (unit >> 2u) & 7u;
  let octet = sub * 4u + ((unit >> 1u) & 1u);
  let q = vec2u(half_octet$(block, octet, unit & 1u), half_octet$(block, octet + 2u, unit & 1u));
  let scales = vec2f((vec2u(byte$(block + 74u + sub)) >> vec2u(0u, 4u)) & vec2u(15u));
  return Codes(q, half$(block) * 0.25 * (scales + 0.5), vec2f());
}
//@ once
