// 176 bytes per 256 values: as Q4_K, with fifth bits in 32 more bytes: bit i / 32 of byte i % 32.
const PAIR = 32u;
const ONE_BLOCK = false;
const MINIMA = true;
fn column(unit: u32) -> u32 { return (unit >> 3u) * 64u + (unit & 7u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 176u;
  let j = ((unit >> 3u) & 3u) * 2u;
  let q = word$(block + 48u + (unit & 31u) * 4u);
  let fifth = word$(block + 16u + (unit & 7u) * 4u) >> j;
  let s = scales_and_minima$(block, j);
  return Codes(nibbles(q) | (bit_of_bytes(fifth) * 16u), s.xy, s.zw);
}
//@ once
