// Eight halves.
const PAIR = 4u;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let at = row + unit * 16u;
  return mat2x4f(vec4f(halves(word$(at)), halves(word$(at + 4u))),
                 vec4f(halves(word$(at + 8u)), halves(word$(at + 12u))));
}
//@ once
