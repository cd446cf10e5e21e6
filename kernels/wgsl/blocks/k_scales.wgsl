// For Q4_K and Q5_K, whose block begins with d and dmin: d * scale and dmin * minimum of sub-block
// j, from 12 bytes with 6 bits each.
//@ each binding
fn scale_and_minimum$(block: u32, j: u32) -> vec2f {
  let at = block + 4u;
  var s: vec2u;
  if (j < 4u) {
    s = vec2u(byte$(at + j), byte$(at + j + 4u)) & vec2u(63u);
  } else {
    let low = byte$(at + j + 4u);
    s = vec2u(low & 15u, low >> 4u) | ((vec2u(byte$(at + j - 4u), byte$(at + j)) >> vec2u(6u)) << vec2u(4u));
  }
  return vec2f(half$(block), half$(block + 2u)) * vec2f(s);
}
//@ once
