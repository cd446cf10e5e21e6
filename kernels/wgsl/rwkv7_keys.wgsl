// RWKV 7's removal and replacement keys, from keys k and learning rates: src/session/rwkv.cpp. One
// workgroup per head: negative = -l2norm(k * removal), both = -negative * rate, and
// k *= 1 + (rate - 1) * replacement.
struct Params {
  k: u32, k_ld: u32, negative: u32, negative_ld: u32,
  both: u32, both_ld: u32, rates: u32, rates_ld: u32,
  n: u32, removal: u32, replacement: u32, eps: f32,
}
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let head = id.x * p.n;
  let k = p.k + id.y * p.k_ld + head;
  var sums: array<f32, SUMS>;
  for (var i = at.lane; i < p.n; i += WG) {
    let x = arena[k + i] * vectors[p.removal + head + i];
    sums[0] += x * x;
  }
  add_up(at, &sums);
  let by = 1.0 / max(sqrt(total(0u)), p.eps);
  for (var i = at.lane; i < p.n; i += WG) {
    let key = arena[k + i];
    let rate = arena[p.rates + id.y * p.rates_ld + head + i];
    let removed = key * vectors[p.removal + head + i] * by;
    arena[p.negative + id.y * p.negative_ld + head + i] = -removed;
    arena[p.both + id.y * p.both_ld + head + i] = removed * rate;
    arena[k + i] = key * (1.0 + (rate - 1.0) * vectors[p.replacement + head + i]);
  }
}
