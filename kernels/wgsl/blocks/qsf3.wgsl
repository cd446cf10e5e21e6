// 28 bytes per 64 values: d, m, three bits of each. x = d * q + m.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = true;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 3u) * 28u;
  let at = block + 4u + (unit & 7u) * 3u;
  let both = vec2u(byte$(at) | ((byte$(at + 1u) & 15u) << 8u), (byte$(at + 1u) >> 4u) | (byte$(at + 2u) << 4u));
  let q = (both & vec2u(0x7u)) | ((both & vec2u(0x38u)) << vec2u(5u)) | ((both & vec2u(0x1c0u)) << vec2u(10u)) |
          ((both & vec2u(0xe00u)) << vec2u(15u));
  return Codes(q, vec2f(half$(block)), vec2f(half$(block + 2u)));
}
//@ once
