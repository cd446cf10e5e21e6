// out += weighted sums of rows of a table in the arena. Row t of out has `taps` pairs of a row and its
// weight, from list + 2 t taps on.
struct Params {
  table: u32, out: u32, out_ld: u32, cols: u32,
  list: u32, taps: u32,
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= p.cols) {
    return;
  }
  let out = p.out + id.y * p.out_ld + id.x;
  var sum = arena[out];
  for (var i = 0u; i < p.taps; i++) {
    let tap = p.list + 2u * (id.y * p.taps + i);
    sum += arena[tap + 1u] * arena[p.table + u32(arena[tap]) * p.cols + id.x];
  }
  arena[out] = sum;
}
