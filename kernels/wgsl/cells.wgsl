// Rows of a grid that become one: side by side, value by value (CHANNELS_FIRST), or their mean (MEAN).
// Row t of out is made of the `cells` rows that the arena lists from ids + t * cells on; -1 is a row of
// zeros.
struct Params {
  in: u32, in_ld: u32, out: u32, out_ld: u32,
  cols: u32, cells: u32, ids: u32,
}
fn value(token: u32, cell: u32, c: u32) -> f32 {
  let row = arena[p.ids + token * p.cells + cell];
  return select(0.0, arena[p.in + u32(max(row, 0.0)) * p.in_ld + c], row >= 0.0);
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let out = p.out + id.y * p.out_ld + id.x;
  if (MEAN) {
    if (id.x < p.cols) {
      var sum = 0.0;
      for (var cell = 0u; cell < p.cells; cell++) {
        sum += value(id.y, cell, id.x);
      }
      arena[out] = sum / f32(p.cells);
    }
  } else if (id.x < p.cols * p.cells) {
    let cell = select(id.x / p.cols, id.x % p.cells, CHANNELS_FIRST);
    let c = select(id.x % p.cols, id.x / p.cells, CHANNELS_FIRST);
    arena[out] = value(id.y, cell, c);
  }
}
