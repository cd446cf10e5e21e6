// gate = max(0, x - (mean + deviations * standard deviation)), both over a token's n values; x = EXPRESSION
// of it. One workgroup per token.
struct Params {
  x: u32, x_ld: u32, n: u32, deviations: f32,
}
fn sum_of(at: Invocation, x: u32, mean: f32, squares: bool) -> f32 {
  var sums: array<f32, SUMS>;
  for (var i = at.lane; i < p.n; i += WG) {
    let v = arena[x + i] - mean;
    sums[0] += select(v, v * v, squares);
  }
  add_up(at, &sums);
  return total(0u);
}
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let x = p.x + id.y * p.x_ld;
  let mean = sum_of(at, x, 0.0, false) / f32(p.n);
  let squares = sum_of(at, x, mean, true);
  let cut = mean + p.deviations * sqrt(squares / f32(max(p.n, 2u) - 1u));
  for (var i = at.lane; i < p.n; i += WG) {
    let gate = max(arena[x + i] - cut, 0.0);
    arena[x + i] = EXPRESSION;
  }
}
