// Reads bytes of weights in file layout; rows begin at any byte. `$` is the number of a binding,
// and functions with it in their name are pasted once per binding. ALIGNED: every word read is
// aligned.
//@ each binding
@group(0) @binding(WEIGHTS$) var<storage, read> weights$: array<u32>;

fn word$(at: u32) -> u32 {
  let i = at >> 2u;
  if (ALIGNED) {
    return weights$[i];
  }
  let shift = (at & 3u) * 8u;
  let low = weights$[i] >> shift;
  if (shift == 0u) {
    return low;
  }
  return low | (weights$[i + 1u] << (32u - shift));
}
fn byte$(at: u32) -> u32 {
  return (weights$[at >> 2u] >> ((at & 3u) * 8u)) & 255u;
}
// Two bytes at an even address, as a number and as a half.
fn short$(at: u32) -> u32 {
  return (weights$[at >> 2u] >> ((at & 2u) * 8u)) & 0xffffu;
}
fn half$(at: u32) -> f32 {
  return half_value(short$(at));
}
//@ once
