// Two halves of a word, where shaders have the type.
fn halves(word: u32) -> vec2f {
  return vec2f(bitcast<vec2<f16>>(word));
}
