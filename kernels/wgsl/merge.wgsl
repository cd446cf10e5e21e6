// Merges the parts of attention.wgsl. One workgroup per token and head. A part is dv values, their
// maximum score and their sum; the sum is 0 if the part saw no position.
struct Params {
  out: u32, out_ld: u32, dv: u32, heads: u32,
  tokens: u32, partials: u32, parts: u32, sinks: i32,
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) lane: u32) {
  let stride = p.dv + 2u;
  let first = p.partials + (id.y * p.heads + id.x) * stride;
  let step = p.tokens * p.heads * stride;
  var most = -3.0e38;
  var sum = 0.0;
  if (p.sinks >= 0) {
    most = vectors[u32(p.sinks) + id.x];
  }
  for (var i = 0u; i < p.parts; i++) {
    most = max(most, arena[first + i * step + p.dv]);
  }
  if (p.sinks >= 0) {
    sum = exp(max(vectors[u32(p.sinks) + id.x] - most, -87.0));
  }
  for (var i = 0u; i < p.parts; i++) {
    let part = first + i * step + p.dv;
    sum += exp(max(arena[part] - most, -87.0)) * arena[part + 1u];
  }
  for (var c = lane; c < p.dv; c += 64u) {
    var value = 0.0;
    for (var i = 0u; i < p.parts; i++) {
      let part = first + i * step;
      value += exp(max(arena[part + p.dv] - most, -87.0)) * arena[part + c];
    }
    arena[p.out + id.y * p.out_ld + id.x * p.dv + c] = value / sum;
  }
}
