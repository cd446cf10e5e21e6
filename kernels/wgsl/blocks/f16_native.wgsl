// Eight halves, with shader-f16 and rows that begin at multiples of eight bytes.
const PAIR = 4u;
fn column(unit: u32) -> u32 { return unit * 8u; }
//@ each binding
@group(0) @binding(WEIGHTS$) var<storage, read> weights$: array<vec4<f16>>;
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let at = (row >> 3u) + unit * 2u;
  return mat2x4f(vec4f(weights$[at]), vec4f(weights$[at + 1u]));
}
//@ once
