// out = in W for a matrix W [rows][cols] in the arena. One invocation per value of out.
struct Params {
  in: u32, in_ld: u32, out: u32, out_ld: u32,
  matrix: u32, rows: u32, cols: u32,
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= p.cols) {
    return;
  }
  var sum = 0.0;
  for (var row = 0u; row < p.rows; row++) {
    sum += arena[p.in + id.y * p.in_ld + row] * arena[p.matrix + row * p.cols + id.x];
  }
  arena[p.out + id.y * p.out_ld + id.x] = sum;
}
