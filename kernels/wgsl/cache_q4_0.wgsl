// A cache in q4_0: blocks of 32 values in five words, a float and codes of four bits, which name levels
// (kKvLevels4 in kernels.h). The latest positions are also there as halves, from word p.recent_at on:
// a query reads those of its own group of 64 positions as halves, and earlier groups as codes.
const LEVELS = vec4u(0xe2d8cec1u, 0xfdf7f1eau, 0x160f0903u, 0x3f32281eu);
var<private> as_halves: bool;

fn recent_row(position: u32) -> u32 {
  return p.recent_at + position % p.recent_capacity * (p.heads / p.group * (p.dk + p.dv) / 2u);
}
fn key_row(head: u32, position: u32) -> u32 {
  if (as_halves) {
    return recent_row(position) + head * p.dk / 2u;
  }
  return p.key_at + head * p.key_head + position % p.capacity * p.key_row;
}
fn value_row(head: u32, position: u32) -> u32 {
  if (as_halves) {
    return recent_row(position) + (p.heads / p.group * p.dk + head * p.dv) / 2u;
  }
  return p.value_at + head * p.value_head + position % p.capacity * p.value_row;
}
// Four values of a row, from value c, a multiple of 4.
fn kept(row: u32, c: u32) -> vec4f {
  if (as_halves) {
    return vec4f(halves(cache[row + c / 2u]), halves(cache[row + c / 2u + 1u]));
  }
  let block = row + c / 32u * 5u;
  let codes = (cache[block + 1u + c % 16u / 4u] >> (c / 16u % 2u * 4u)) & 0x0f0f0f0fu;
  return vec4f(signed_bytes(chosen_bytes(bytes(codes), LEVELS))) * bitcast<f32>(cache[block]);
}
