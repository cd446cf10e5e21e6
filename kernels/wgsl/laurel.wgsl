// Attention and LAuReL: out = scale * (norm(out) + x + norm(low) + norm(x)), RMS norms with weights of
// their own. One workgroup per token.
struct Params {
  out: u32, out_ld: u32, x: u32, x_ld: u32,
  low: u32, low_ld: u32, n: u32, eps: f32,
  out_gain: i32, x_gain: i32, low_gain: i32, scale: f32,
}
fn normed(at: u32, i: u32, sum: u32, gain: i32) -> f32 {
  return arena[at + i] * inverseSqrt(total(sum) / f32(p.n) + p.eps) *
         select(1.0, vectors[u32(max(gain, 0)) + i], gain >= 0);
}
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let y = p.out + id.y * p.out_ld;
  let x = p.x + id.y * p.x_ld;
  let low = p.low + id.y * p.low_ld;
  var sums: array<f32, SUMS>;
  for (var i = at.lane; i < p.n; i += WG) {
    sums[0] += arena[y + i] * arena[y + i];
    sums[1] += arena[x + i] * arena[x + i];
    sums[2] += arena[low + i] * arena[low + i];
  }
  add_up(at, &sums);
  for (var i = at.lane; i < p.n; i += WG) {
    let sum = normed(y, i, 0u, p.out_gain) + arena[x + i];
    arena[y + i] = p.scale * (sum + (normed(low, i, 2u, p.low_gain) + normed(x, i, 1u, p.x_gain)));
  }
}
