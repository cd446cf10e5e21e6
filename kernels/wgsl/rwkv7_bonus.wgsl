// out += v * sum(r * k * weights), one workgroup per head.
struct Params {
  r: u32, r_ld: u32, k: u32, k_ld: u32,
  v: u32, v_ld: u32, out: u32, out_ld: u32,
  keys: u32, values: u32, weights: u32,
}
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let r = p.r + id.y * p.r_ld + id.x * p.keys;
  let k = p.k + id.y * p.k_ld + id.x * p.keys;
  var sums: array<f32, SUMS>;
  for (var i = at.lane; i < p.keys; i += WG) {
    sums[0] += arena[r + i] * arena[k + i] * vectors[p.weights + id.x * p.keys + i];
  }
  add_up(at, &sums);
  let sum = total(0u);
  let v = p.v + id.y * p.v_ld + id.x * p.values;
  let out = p.out + id.y * p.out_ld + id.x * p.values;
  for (var i = at.lane; i < p.values; i += WG) {
    arena[out + i] += arena[v + i] * sum;
  }
}
