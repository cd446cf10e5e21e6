// One invocation per pair that is rotated in place, then one per run of values that are stored. No
// invocation reads what another writes.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let x = p.x + id.y * p.x_ld;
  let table = p.table + id.y * p.rot;
  if (id.x < p.pairs) {
    rotate_in_place(x, id.x, table);
    return;
  }
  //@ store
}
