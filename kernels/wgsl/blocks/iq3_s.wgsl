// 110 bytes per 256 values: d, lower 8 bits of the index of each four, their ninth bits, signs, a
// nibble for each 32. x = d * (1 + 2 scale) * entry.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 110u;
  let octet = unit & 31u;
  let sub = octet >> 2u;
  let both = short$(block + 2u + octet * 2u);
  let ninth = byte$(block + 66u + sub) >> ((octet & 3u) * 2u);
  let q = vec2u(codebook[(both & 255u) | ((ninth & 1u) << 8u)], codebook[(both >> 8u) | ((ninth & 2u) << 7u)]);
  let scale = (byte$(block + 106u + (sub >> 1u)) >> ((sub & 1u) * 4u)) & 15u;
  return Codes(with_signs(q, byte$(block + 74u + octet)), vec2f(half$(block) * f32(1u + 2u * scale)), vec2f());
}
//@ once
