// Keys and values of an encoder: f32 in the arena.
fn kept(row: u32, c: u32) -> vec4f {
  return quad(row + c);
}
