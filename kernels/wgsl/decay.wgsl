// in = softplus(in + bias), out = exp(rate of the head * in). One invocation per value.
struct Params {
  in: u32, in_ld: u32, out: u32, out_ld: u32,
  n: u32, per_head: u32, bias: u32, rates: u32,
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= p.n) {
    return;
  }
  let at = p.in + id.y * p.in_ld + id.x;
  let x = softplus(arena[at] + vectors[p.bias + id.x]);
  arena[at] = x;
  let decay = vectors[p.rates + id.x / p.per_head] * x;
  arena[p.out + id.y * p.out_ld + id.x] = exp(clamp(decay, -87.0, 88.0));
}
