// Rotary position embedding of queries and keys, and the KV store. Values rotated in place have one
// invocation per pair. Keys with STORE are rotated on the way to the cache and stay unchanged in
// the arena, so no invocation reads what another writes.
struct Params {
  x: u32, x_ld: u32, pairs: u32, rot: u32,           // pairs per token to rotate in place
  dk: u32, dv: u32, column: u32, table: u32,
  neox: u32, kv_heads: u32, keys: u32, values: u32,  // columns of x
  first: u32, capacity: u32, key_at: u32, key_head: u32,
  key_row: u32, value_at: u32, value_head: u32, value_row: u32,
  key_runs: u32, value_runs: u32,                    // invocations that store one head
}
fn rotated_pair(a: f32, b: f32, i: u32, table: u32) -> vec2f {
  let c = arena[table + i];
  let s = arena[table + p.rot / 2u + i];
  return vec2f(a * c - b * s, a * s + b * c);
}
// Value d of the head at x.
fn rotated(x: u32, d: u32, key: bool, table: u32) -> f32 {
  let e = d - p.column;  // wraps below
  if (!key || e >= p.rot) {
    return arena[x + d];
  }
  let first = x + p.column;
  let reach = p.rot / 2u;
  if (p.neox != 0u) {
    let i = e % reach;
    let pair = rotated_pair(arena[first + i], arena[first + i + reach], i, table);
    return select(pair.y, pair.x, e < reach);
  }
  let pair = rotated_pair(arena[first + (e & ~1u)], arena[first + (e | 1u)], e / 2u, table);
  return select(pair.y, pair.x, (e & 1u) == 0u);
}
fn rotate_in_place(x: u32, pair: u32, table: u32) {
  let reach = p.rot / 2u;
  let i = pair % reach;
  let head = x + pair / reach * p.dk + p.column;
  let a = head + select(2u * i, i, p.neox != 0u);
  let b = a + select(1u, reach, p.neox != 0u);
  let turned = rotated_pair(arena[a], arena[b], i, table);
  arena[a] = turned.x;
  arena[b] = turned.y;
}
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
