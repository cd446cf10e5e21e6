// Scales each of several groups of out to the Euclidean norm of in. One workgroup per group.
struct Params {
  in: u32, in_ld: u32, out: u32, out_ld: u32,
  n: u32,
}
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let x = p.in + id.y * p.in_ld;
  let y = p.out + id.y * p.out_ld + id.x * p.n;
  var sums: array<f32, SUMS>;
  for (var i = at.lane; i < p.n; i += WG) {
    sums[0] += arena[x + i] * arena[x + i];
    sums[1] += arena[y + i] * arena[y + i];
  }
  add_up(at, &sums);
  let own = total(1u);
  let by = select(0.0, sqrt(total(0u) / max(own, 1e-38)), own > 0.0);
  for (var i = at.lane; i < p.n; i += WG) {
    arena[y + i] *= by;
  }
}
