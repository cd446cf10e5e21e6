// For Q4_K and Q5_K, whose block begins with d and dmin: d * scale of sub-blocks j and j + 1, then
// -dmin * minimum of both, from 12 bytes with 6 bits each; j is even. A word has bytes of four.
//@ each binding
fn scales_and_minima$(block: u32, j: u32) -> vec4f {
  let w = vec3u(word$(block + 4u), word$(block + 8u), word$(block + 12u)) >> vec3u((j & 2u) * 8u);
  var s = w.xy & vec2u(0x3f3fu);
  if (j >= 4u) {
    s = (vec2u(w.z, w.z >> 4u) & vec2u(0x0f0fu)) | ((w.xy & vec2u(0xc0c0u)) >> vec2u(2u));
  }
  return vec4f(bytes(s.x | (s.y << 16u))) * vec4f(vec2f(half$(block)), -vec2f(half$(block + 2u)));
}
//@ once
