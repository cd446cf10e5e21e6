// 54 bytes per 256 values: base-3 digits, most significant first, then d. The first 48 bytes have
// five digits each, the next 4 have four. x = d * (digit - 1). Digit n of byte b is
// (3 ((b 3^n) mod 256)) / 256. Values 32 n + l are in byte l, 160 + 16 n + l in byte 32 + l, and
// 240 + 4 n + l in byte 48 + l.
const PAIR = 4u;
const ONE_BLOCK = true;
const MINIMA = false;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn digits$(block: u32, i: u32) -> u32 {
  var at = i & 31u;
  var n = i >> 5u;
  if (i >= 240u) {
    at = 48u;
    n = (i - 240u) >> 2u;
  } else if (i >= 160u) {
    at = 32u + (i & 15u);
    n = (i - 160u) >> 4u;
  }
  var b = bytes(word$(block + at));
  for (var k = 0u; k < n; k++) {
    b = (b * 3u) & vec4u(255u);
  }
  return packed((b * 3u) >> vec4u(8u));
}
fn codes$(row: u32, unit: u32) -> Codes {
  let block = row + (unit >> 5u) * 54u;
  let i = (unit & 31u) * 8u;
  return Codes(less(vec2u(digits$(block, i), digits$(block, i + 4u)), 0x01010101u), vec2f(half$(block + 52u)), vec2f());
}
//@ once
