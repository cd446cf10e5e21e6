// RoPE behind an RMS norm of each head, as Qwen3 and Gemma 3 have it. One workgroup per head of
// queries, then of keys, which are stored, then of values, which may have a norm without weights.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let row = p.x + id.y * p.x_ld;
  let table = p.table + id.y * p.rot;
  let place = (p.first + id.y) % p.capacity;
  let value = id.x >= p.heads + p.kv_heads;
  let key = id.x >= p.heads;
  let head = id.x - select(0u, p.heads, key) - select(0u, p.kv_heads, value);
  let n = select(p.dk, p.dv, value);
  let x = row + select(select(0u, p.keys, key), p.values, value) + head * n;
  root = 1.0;
  weights = -1;
  if (!value || p.value_norm != 0u) {
    var sums: array<f32, SUMS>;
    for (var d = at.lane; d < n; d += WG) {
      sums[0] += arena[x + d] * arena[x + d];
    }
    storageBarrier();
    add_up(at, &sums);
    root = inverseSqrt(total(0u) / f32(n) + p.eps);
  }
  if (value) {
    for (var i = at.lane; i < p.value_runs; i += WG) {
      keep(p.value_at + head * p.value_head + place * p.value_row, i * 2u, x, false, table);
    }
    return;
  }
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
