// A naive matrix multiplication: one invocation computes one row of one token.
struct Params { x: u32, x_ld: u32, y: u32, y_ld: u32, units: u32, row_bytes: u32, rows: u32 }
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= p.rows) {
    return;
  }
  let x = p.x + id.y * p.x_ld;
  var sum = 0.0;
  for (var unit = 0u; unit < p.units; unit++) {
    let w = decode0(id.x * p.row_bytes, unit);
    let c = x + column(unit);
    sum += dot(w[0], quad(c)) + dot(w[1], quad(c + PAIR));
  }
  arena[p.y + id.y * p.y_ld + id.x] = sum;
}
