// Two halves of a word.
fn halves(word: u32) -> vec2f {
  return unpack2x16float(word);
}
