// Four values of the row at word `row` of the cache, from value c, a multiple of 4. If the row
// length is not a multiple of 4, values past its end are undefined.
fn kept(row: u32, c: u32) -> vec4f {
  return vec4f(halves(cache[row + c / 2u]), halves(cache[row + c / 2u + 1u]));
}
