// 50 bytes per 256 values: d, lower 8 bits of the index of each eight, a half word for each 32 (upper
// three bits of the indices, scale, sign of delta). x = d * (2 scale + 1) / 8 * (8 entry +- 1); the
// codebook has 8 entry + 9.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 50u;
  let octet = unit & 31u;
  let high = short$(block + 34u + (octet >> 2u) * 2u);
  let index = byte$(block + 2u + octet) | (((high >> ((octet & 3u) * 3u)) & 7u) << 8u);
  let q = less(entry(index), select(0x08080808u, 0x0a0a0a0au, (high & 0x8000u) != 0u));
  return Codes(q, vec2f(half$(block) * 0.125 * f32(2u * ((high >> 12u) & 7u) + 1u)), vec2f());
}
//@ once
