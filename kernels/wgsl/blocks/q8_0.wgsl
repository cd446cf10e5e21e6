// 34 bytes of 32 values: d, 32 signed bytes. x = d * q.
const PAIR = 4u;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let block = row + (unit >> 2u) * 34u;
  let d = half$(block);
  let at = block + 2u + (unit & 3u) * 8u;
  return mat2x4f(vec4f(signed_bytes(word$(at))) * d, vec4f(signed_bytes(word$(at + 4u))) * d);
}
//@ once
