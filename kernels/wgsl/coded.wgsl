// Decodes weights that are stored as codes.
//@ each binding
fn decode$(row: u32, unit: u32) -> mat2x4f {
  let codes = codes$(row, unit);
  let values = mat2x4f(vec4f(signed_bytes(codes.q.x)) * codes.d.x, vec4f(signed_bytes(codes.q.y)) * codes.d.y);
  if (MINIMA) {
    return values + mat2x4f(vec4f(codes.m.x), vec4f(codes.m.y));
  }
  return values;
}
//@ once
