// Four values of a row at the cache's word `row`, from value c, a multiple of 4; past the end of a
// row that is no multiple of 4 lies something else.
fn kept(row: u32, c: u32) -> vec4f {
  return vec4f(halves(cache[row + c / 2u]), halves(cache[row + c / 2u + 1u]));
}
