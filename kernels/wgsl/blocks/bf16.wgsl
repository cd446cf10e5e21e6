// Eight bfloat16: the upper halves of floats.
const PAIR = 4u;
fn column(unit: u32) -> u32 { return unit * 8u; }
fn upper_halves(a: u32, b: u32) -> vec4f {
  return bitcast<vec4f>(vec4u(a << 16u, a & 0xffff0000u, b << 16u, b & 0xffff0000u));
}
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let at = row + unit * 16u;
  return mat2x4f(upper_halves(word$(at), word$(at + 4u)), upper_halves(word$(at + 8u), word$(at + 12u)));
}
//@ once
