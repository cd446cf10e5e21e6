// out = EXPRESSION of x (in), z (step), y (the old out) and w (weights), for `rows` rows of n values of
// out. One invocation per value.
struct Params {
  in: u32, in_ld: u32, step: u32, step_ld: u32,
  out: u32, out_ld: u32, n: u32, rows: u32,
  weights: u32,
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= p.n * p.rows) {
    return;
  }
  let i = id.x % p.n;
  let at = p.out + id.y * p.out_ld + id.x;
  let x = arena[p.in + id.y * p.in_ld + i];
  let z = arena[p.step + id.y * p.step_ld + i];
  let y = arena[at];
  let w = vectors[p.weights + id.x];
  arena[at] = EXPRESSION;
}
