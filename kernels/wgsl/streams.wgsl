// AltUp: streams of n values, one invocation for a value of all of them. Each stream += a mix of all;
// weights: [streams][streams]. CORRECT: each += (1 + its weight) * (in - the active stream).
struct Params {
  in: u32, in_ld: u32, out: u32, out_ld: u32,
  weights: u32, weights_ld: u32, n: u32, lead: u32,
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= p.n) {
    return;
  }
  let weights = p.weights + id.y * p.weights_ld;
  let y = p.out + id.y * p.out_ld + id.x;
  var before: array<f32, STREAMS>;
  for (var i = 0u; i < STREAMS; i++) {
    before[i] = arena[y + i * p.n];
  }
  let change = arena[p.in + id.y * p.in_ld + id.x] - before[p.lead];
  for (var j = 0u; j < STREAMS; j++) {
    var sum = before[j];
    if (CORRECT) {
      sum += (1.0 + arena[weights + j]) * change;
    } else {
      for (var i = 0u; i < STREAMS; i++) {
        sum += arena[weights + j * STREAMS + i] * before[i];
      }
    }
    arena[y + j * p.n] = sum;
  }
}
