// 56 bytes per 256 values: lower 8 bits of the index of each eight, a nibble for each (upper three
// bits, sign of delta), four half words (scales of each 16, and four bits of d). x as in IQ1_S.
const PAIR = 16u;
const ONE_BLOCK = false;
const MINIMA = false;
fn column(unit: u32) -> u32 { return (unit >> 2u) * 32u + (unit & 3u) * 4u; }
//@ each binding
fn half_octet$(block: u32, octet: u32, upper: u32) -> u32 {
  let high = byte$(block + 32u + (octet >> 1u)) >> ((octet & 1u) * 4u);
  let q = half_entry(byte$(block + octet) | ((high & 7u) << 8u), upper);
  return less(vec2u(q), select(0x08080808u, 0x0a0a0a0au, (high & 8u) != 0u)).x;
}
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 56u;
  let sub = (unit >> 2u) & 7u;
  let octet = sub * 4u + ((unit >> 1u) & 1u);
  let low = word$(block + 48u);
  let high = word$(block + 52u);
  let d = half_value(((low >> 12u) & 0xfu) | ((low >> 24u) & 0xf0u) | ((high >> 4u) & 0xf00u) | ((high >> 16u) & 0xf000u));
  let scales = (vec2u(short$(block + 48u + (sub >> 1u) * 2u)) >> (vec2u(0u, 3u) + (sub & 1u) * 6u)) & vec2u(7u);
  let q = vec2u(half_octet$(block, octet, unit & 1u), half_octet$(block, octet + 2u, unit & 1u));
  return Codes(q, d * 0.125 * vec2f(2u * scales + 1u), vec2f());
}
//@ once
