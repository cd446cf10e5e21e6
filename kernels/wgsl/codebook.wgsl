// Entries of four signed bytes, or of eight in two words (kernels/codebooks.h), and their signs.
@group(0) @binding(CODEBOOK_BINDING) var<storage, read> codebook: array<u32>;

fn entry(index: u32) -> vec2u {
  return vec2u(codebook[2u * index], codebook[2u * index + 1u]);
}
fn half_entry(index: u32, upper: u32) -> u32 {
  return codebook[2u * index + upper];
}
// Seven sign bits, and an eighth that makes their number even.
fn seven_signs(bits: u32) -> u32 {
  let signs = bits & 127u;
  return signs | ((countOneBits(signs) & 1u) << 7u);
}
// Bytes of 1 to 127, negated where the lowest four bits of `signs` are set.
fn with_four_signs(word: u32, signs: u32) -> u32 {
  let ones = four_bits(signs);
  return (word ^ (ones * 255u)) + ones;
}
fn with_signs(words: vec2u, signs: u32) -> vec2u {
  return vec2u(with_four_signs(words.x, signs), with_four_signs(words.y, signs >> 4u));
}
