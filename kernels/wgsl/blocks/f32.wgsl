// Eight floats.
const PAIR = 4u;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let at = row + unit * 32u;
  return mat2x4f(bitcast<vec4f>(vec4u(word$(at), word$(at + 4u), word$(at + 8u), word$(at + 12u))),
                 bitcast<vec4f>(vec4u(word$(at + 16u), word$(at + 20u), word$(at + 24u), word$(at + 28u))));
}
//@ once
