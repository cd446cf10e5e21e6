// Norms of groups of n values, one workgroup per group. A layer norm sums twice, the second time
// around the mean. in may equal out, unless `add` is set: then out += add * the norm.
struct Params {
  in: u32, in_ld: u32, out: u32, out_ld: u32,
  n: u32, heads: u32, weight: i32, bias: i32,
  per_head: u32, eps: f32, scale: f32, add: f32,
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
  let head = id.x;
  let x = p.in + id.y * p.in_ld + head * p.n;
  let y = p.out + id.y * p.out_ld + head * p.n;
  let n = f32(p.n);
  var mean = 0.0;
  if (KIND == LAYER) {
    mean = sum_of(at, x, 0.0, false) / n;
  }
  let squares = sum_of(at, x, mean, true);
  var by = 0.0;
  if (KIND == L2) {
    by = p.scale / max(sqrt(squares), p.eps);
  } else {
    by = 1.0 / sqrt(squares / n + p.eps);
  }
  let own = select(0u, head * p.n, p.per_head != 0u);
  for (var i = at.lane; i < p.n; i += WG) {
    var v = (arena[x + i] - mean) * by;
    if (KIND != L2) {
      v = v * select(1.0, vectors[u32(max(p.weight, 0)) + own + i], p.weight >= 0) +
          select(0.0, vectors[u32(max(p.bias, 0)) + own + i], p.bias >= 0);
    }
    arena[y + i] = select(v, arena[y + i] + p.add * v, p.add != 0.0);
  }
}
