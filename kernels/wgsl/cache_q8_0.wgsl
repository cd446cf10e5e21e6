// Four values of the row at word `row` of the cache, from value c, a multiple of 4.
fn kept(row: u32, c: u32) -> vec4f {
  let block = row + c / 32u * 9u;
  return vec4f(signed_bytes(cache[block + 1u + c % 32u / 4u])) * bitcast<f32>(cache[block]);
}
