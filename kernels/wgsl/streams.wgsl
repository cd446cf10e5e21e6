// AltUp: streams of n values, one invocation for a value of all of them. Each stream += a mix of all;
// weights: [streams][streams].
//   CORRECT  each += (1 + its weight) * (in - the active stream); weights: [streams]
//   MATRIX   the weights are a matrix times the values at `weights`
//   SCALED   with CORRECT: another row becomes the active stream times a vector
//   BEHIND   streams behind the first += an RMS norm, before they are mixed
// Each workgroup computes weights and norm for itself.
struct Params {
  in: u32, in_ld: u32, out: u32, out_ld: u32,
  weights: u32, weights_ld: u32, n: u32, lead: u32,
  scaled: u32, scaled_ld: u32, vec: u32, base: u32,
  behind: u32, behind_ld: u32, gain: i32, eps: f32,
}
var<workgroup> weights: array<f32, WEIGHTS>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, at: Invocation) {
  let given = p.weights + id.y * p.weights_ld;
  for (var k = at.lane; k < WEIGHTS; k += WG) {
    var weight = 0.0;
    if (MATRIX) {
      for (var i = 0u; i < STREAMS; i++) {
        weight += coefficient(k * STREAMS + i) * arena[given + i];
      }
    } else {
      weight = arena[given + k];
    }
    weights[k] = weight;
  }
  let behind = p.behind + id.y * p.behind_ld;
  var root = 0.0;
  if (BEHIND) {
    var sums: array<f32, SUMS>;
    for (var i = at.lane; i < p.n; i += WG) {
      sums[0] += arena[behind + i] * arena[behind + i];
    }
    add_up(at, &sums);
    root = inverseSqrt(total(0u) / f32(p.n) + p.eps);
  }
  workgroupBarrier();
  if (id.x >= p.n) {
    return;
  }
  let y = p.out + id.y * p.out_ld + id.x;
  var before: array<f32, STREAMS>;
  for (var i = 0u; i < STREAMS; i++) {
    before[i] = arena[y + i * p.n];
  }
  if (BEHIND) {
    let normed = arena[behind + id.x] * root *
                 select(1.0, vectors[u32(max(p.gain, 0)) + id.x], p.gain >= 0);
    for (var i = 1u; i < STREAMS; i++) {
      before[i] += normed;
    }
  }
  let change = arena[p.in + id.y * p.in_ld + id.x] - before[p.lead];
  for (var j = 0u; j < STREAMS; j++) {
    var sum = before[j];
    if (CORRECT) {
      sum += (1.0 + weights[j]) * change;
    } else {
      for (var i = 0u; i < STREAMS; i++) {
        sum += weights[j * STREAMS + i] * before[i];
      }
    }
    arena[y + j * p.n] = sum;
    if (SCALED && j == p.lead) {
      arena[p.scaled + id.y * p.scaled_ld + id.x] = sum * vectors[p.vec + id.x];
    }
  }
}
