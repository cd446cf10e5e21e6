// Softmax of groups of n values, one workgroup per group: first the maximum, then the sum.
struct Params {
  in: u32, in_ld: u32, out: u32, out_ld: u32,
  n: u32, in_step: u32, out_step: u32,
}
var<workgroup> greatest: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let x = p.in + id.y * p.in_ld + id.x * p.in_step;
  let y = p.out + id.y * p.out_ld + id.x * p.out_step;
  var most = arena[x];
  for (var i = at.lane; i < p.n; i += WG) {
    most = max(most, arena[x + i]);
  }
  greatest[at.lane] = most;
  for (var reach = WG / 2u; reach > 0u; reach /= 2u) {
    workgroupBarrier();
    if (at.lane < reach) {
      greatest[at.lane] = max(greatest[at.lane], greatest[at.lane + reach]);
    }
  }
  workgroupBarrier();
  most = greatest[0];
  var sums: array<f32, SUMS>;
  for (var i = at.lane; i < p.n; i += WG) {
    sums[0] += exp(max(arena[x + i] - most, -87.0));
  }
  add_up(at, &sums);
  let sum = total(0u);
  for (var i = at.lane; i < p.n; i += WG) {
    arena[y + i] = exp(max(arena[x + i] - most, -87.0)) / sum;
  }
}
