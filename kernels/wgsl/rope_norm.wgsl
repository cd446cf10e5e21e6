// RoPE behind an RMS norm of each head, as Qwen3 and Gemma 3 have it. One workgroup per head of
// queries, then of keys, which are stored, then of values.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let row = p.x + id.y * p.x_ld;
  let table = p.table + id.y * p.rot;
  let place = (p.first + id.y) % p.capacity;
  root = 1.0;
  weights = -1;
  if (id.x >= p.heads + p.kv_heads) {
    let head = id.x - p.heads - p.kv_heads;
    for (var i = at.lane; i < p.value_runs; i += WG) {
      keep(p.value_at + head * p.value_head + place * p.value_row, i * 2u,
           row + p.values + head * p.dv, false, table);
    }
    return;
  }
  let key = id.x >= p.heads;
  let head = select(id.x, id.x - p.heads, key);
  let x = row + select(0u, p.keys, key) + head * p.dk;
  var sums: array<f32, SUMS>;
  for (var d = at.lane; d < p.dk; d += WG) {
    let value = arena[x + d];
    sums[0] += value * value;
  }
  storageBarrier();
  add_up(at, &sums);
  root = inverseSqrt(total(0u) / f32(p.dk) + p.eps);
  let gain = select(p.gain, p.key_gain, key);
  weights = select(-1, gain + i32(head * p.gain_step), gain >= 0);
  if (key) {
    for (var i = at.lane; i < p.key_runs; i += WG) {
      keep(p.key_at + head * p.key_head + place * p.key_row, i * 2u, x, true, table);
    }
    return;
  }
  for (var i = at.lane; i < p.rot / 2u; i += WG) {
    rotate_in_place(x, i, table);
  }
  for (var d = at.lane; d < p.dk; d += WG) {
    if (d - p.column >= p.rot) {  // wraps below
      arena[x + d] = value_of(x, d);
    }
  }
}
