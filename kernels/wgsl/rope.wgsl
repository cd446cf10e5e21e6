// Rotary position embedding of queries and keys, and the KV store: what rope_each.wgsl and
// rope_norm.wgsl share. Keys that are stored are rotated on the way to the cache and stay unchanged
// in the arena.
struct Params {
  x: u32, x_ld: u32, pairs: u32, rot: u32,           // pairs per token to rotate in place
  dk: u32, dv: u32, column: u32, table: u32,
  neox: u32, kv_heads: u32, keys: u32, values: u32,  // columns of x
  first: u32, capacity: u32, key_at: u32, key_head: u32,
  key_row: u32, value_at: u32, value_head: u32, value_row: u32,
  key_runs: u32, value_runs: u32,                    // invocations that store one head
  heads: u32, gain: i32, key_gain: i32, gain_step: u32,  // rope_norm.wgsl; gain_step: between heads
  eps: f32, value_norm: u32,
}
// The head's norm: its root, and the offset of its weights or -1.
var<private> root: f32;
var<private> weights: i32;

// Value d of the head at x, before rotation.
fn value_of(x: u32, d: u32) -> f32 {
  let value = arena[x + d];
  if (!NORM) {
    return value;
  }
  return value * root * select(1.0, vectors[u32(max(weights, 0)) + d], weights >= 0);
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
    return value_of(x, d);
  }
  let first = p.column;
  let reach = p.rot / 2u;
  if (p.neox != 0u) {
    let i = e % reach;
    let pair = rotated_pair(value_of(x, first + i), value_of(x, first + i + reach), i, table);
    return select(pair.y, pair.x, e < reach);
  }
  let pair = rotated_pair(value_of(x, first + (e & ~1u)), value_of(x, first + (e | 1u)), e / 2u, table);
  return select(pair.y, pair.x, (e & 1u) == 0u);
}
fn rotate_in_place(x: u32, pair: u32, table: u32) {
  let reach = p.rot / 2u;
  let i = pair % reach;
  let head = x + pair / reach * p.dk;
  let a = p.column + select(2u * i, i, p.neox != 0u);
  let b = a + select(1u, reach, p.neox != 0u);
  let turned = rotated_pair(value_of(head, a), value_of(head, b), i, table);
  arena[head + a] = turned.x;
  arena[head + b] = turned.y;
}
