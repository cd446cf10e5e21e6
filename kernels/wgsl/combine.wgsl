// out = (add ? out : 0) + scale * the weighted sum of the outputs of a token's experts. One
// invocation per value. weights: -1 if all are 1.
struct Params {
  ids: u32, weights: i32, used: u32, n: u32,
  in: u32, out: u32, out_ld: u32, add: u32,
  scale: f32,
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= p.n) {
    return;
  }
  var sum = 0.0;
  for (var k = id.y * p.used; k < (id.y + 1u) * p.used; k++) {
    if (arena[p.ids + k] >= 0.0) {
      let weight = select(1.0, arena[u32(max(p.weights, 0)) + k], p.weights >= 0);
      sum += weight * arena[p.in + k * p.n + id.x];
    }
  }
  let y = p.out + id.y * p.out_ld + id.x;
  arena[y] = p.scale * sum + select(0.0, arena[y], p.add != 0u);
}
