// out = EXPRESSION of x (in), y (the old out), z (a second input) and v (a value of `vectors`). One
// invocation per value, in `heads` groups of n.
struct Params {
  in: u32, in_ld: u32, in_step: u32, in_every: u32,  // in_every values of out share one
  out: u32, out_ld: u32, out_step: u32, n: u32,
  other: u32, other_ld: u32, other_step: u32, vector: u32,
  heads: u32, a: f32, b: f32, c: f32,
  d: f32, vector_step: u32,
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= p.n * p.heads) {
    return;
  }
  let head = id.x / p.n;
  let i = id.x % p.n;
  let at = p.out + id.y * p.out_ld + head * p.out_step + i;
  let x = arena[p.in + id.y * p.in_ld + head * p.in_step + i / p.in_every];
  let y = arena[at];
  let z = arena[p.other + id.y * p.other_ld + head * p.other_step + i];
  let v = vectors[p.vector + i * p.vector_step];
  arena[at] = EXPRESSION;
}
