// 144 bytes per 256 values: d, dmin, 12 bytes of scales and minima, nibbles.
// x = d * scale * q - dmin * minimum; byte 32 c + l has values 64 c + l and 64 c + 32 + l.
const PAIR = 32u;
const ONE_BLOCK = false;
const MINIMA = true;
fn column(unit: u32) -> u32 { return (unit >> 3u) * 64u + (unit & 7u) * 4u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 144u;
  let j = ((unit >> 3u) & 3u) * 2u;
  let q = word$(block + 16u + (unit & 31u) * 4u);
  let s = scales_and_minima$(block, j);
  return Codes(nibbles(q), s.xy, s.zw);
}
//@ once
