// Converts words to values. Block scales are often subnormal halves, which the built-in conversions
// may flush to zero, so they are converted here. Weights and keys that small do not matter.
fn half_value(bits: u32) -> f32 {
  let magnitude = bits & 0x7fffu;
  let normal = bitcast<f32>((magnitude << 13u) + (112u << 23u));
  let value = select(normal, f32(magnitude) * 5.9604644775390625e-8, magnitude < 0x400u);
  return select(value, -value, (bits & 0x8000u) != 0u);
}
// Rounds to nearest, ties to even, which pack2x16float does not guarantee.
fn half_bits(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x477ff000u) {
    return sign | select(0x7c00u, 0x7e00u, magnitude > 0x7f800000u);
  }
  if (magnitude < 0x38800000u) {
    return sign | u32(round(bitcast<f32>(magnitude) * 16777216.0));
  }
  return sign | (((magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u) - (112u << 10u));
}
// The two halves of a word.
fn halves(word: u32) -> vec2f {
  return unpack2x16float(word);
}
fn bytes(word: u32) -> vec4u {
  return (vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(255u);
}
fn signed_bytes(word: u32) -> vec4i {
  return (vec4i(bitcast<i32>(word)) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u);
}
fn packed(values: vec4u) -> u32 {
  return dot(values, vec4u(1u, 1u << 8u, 1u << 16u, 1u << 24u));
}
// A unit of weights: two quads of signed bytes, with a factor and an added offset for each quad.
struct Codes {
  q: vec2u,
  d: vec2f,
  m: vec2f,
}
fn nibbles(word: u32) -> vec2u {
  return vec2u(word, word >> 4u) & vec2u(0x0f0f0f0fu);
}
// Bytes of 0 to 127 minus those of `by`.
fn less(words: vec2u, by: u32) -> vec2u {
  return ((words | vec2u(0x80808080u)) - vec2u(by)) ^ vec2u(0x80808080u);
}
// The lowest four bits of a word, one per byte.
fn four_bits(bits: u32) -> u32 {
  return ((bits & 15u) * 0x204081u) & 0x01010101u;
}
// The lowest two bits of each byte, in a word each.
fn bit_of_bytes(word: u32) -> vec2u {
  return vec2u(word, word >> 1u) & vec2u(0x01010101u);
}
// Two bits of each byte, at `at` and at `at` + `step`.
fn two_bits(word: u32, at: u32, step: u32) -> vec2u {
  return vec2u(word >> at, word >> (at + step)) & vec2u(0x03030303u);
}
// The lowest sixteen bits as eight bytes of two.
fn spread_two_bits(word: u32) -> vec2u {
  let both = vec2u(word, word >> 8u);
  return (both & vec2u(3u)) | ((both & vec2u(12u)) << vec2u(6u)) | ((both & vec2u(48u)) << vec2u(12u)) |
         ((both & vec2u(192u)) << vec2u(18u));
}
// The bytes of `table` (sixteen, four per word) with these numbers.
fn chosen_bytes(numbers: vec4u, table: vec4u) -> u32 {
  let words = vec4u(table[numbers.x >> 2u], table[numbers.y >> 2u], table[numbers.z >> 2u],
                    table[numbers.w >> 2u]);
  return packed((words >> ((numbers & vec4u(3u)) * 8u)) & vec4u(255u));
}
fn looked_up(word: u32, table: vec4u) -> vec2u {
  let n = nibbles(word);
  return vec2u(chosen_bytes(bytes(n.x), table), chosen_bytes(bytes(n.y), table));
}
