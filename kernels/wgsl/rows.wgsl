// out = (add ? out : 0) + scale * values [first, first + n) of embedding rows, as floats. The row
// numbers are in the arena at `ids`; those outside [row, row + count) are left to other dispatches.
// One invocation per unit of eight values.
struct Params {
  base: vec4u,
  ids: u32, y: u32, y_ld: u32, cols: u32,
  units: u32, row_bytes: u32, first: u32, n: u32,
  scale: f32, add: u32, row: u32, count: u32,
}
fn give(token: u32, c: u32, values: vec4f) {
  for (var i = 0u; i < 4u; i++) {
    let at = c + i - p.first;  // wraps below `first`
    if (c + i < p.cols && at < p.n) {
      let y = p.y + token * p.y_ld + at;
      arena[y] = p.scale * values[i] + select(0.0, arena[y], p.add != 0u);
    }
  }
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let row = u32(arena[p.ids + id.y]) - p.row;  // wraps below
  if (id.x >= p.units || row >= p.count) {
    return;
  }
  let w = decode0(p.base.x + row * p.row_bytes, id.x);
  let c = column(id.x);
  give(id.y, c, w[0]);
  give(id.y, c + PAIR, w[1]);
}
