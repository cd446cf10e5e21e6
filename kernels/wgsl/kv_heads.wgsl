// Heads of queries, keys and values where the KV cache is quantized: RMS norm (NORM), RoPE, and the
// Hadamard transform. Queries stay in the arena, keys and values go to the KV cache. One workgroup per
// head; scores do not change, since queries and keys are transformed alike.
struct Params {
  x: u32, x_ld: u32, rot: u32, column: u32,
  table: u32, neox: u32, heads: u32, kv_heads: u32,
  dk: u32, dv: u32, first: u32, capacity: u32,
  key_at: u32, key_head: u32, key_row: u32, value_at: u32,
  value_head: u32, value_row: u32, recent_at: u32, recent_capacity: u32,
  gain: i32, key_gain: i32, gain_step: u32, eps: f32,
  value_norm: u32,
}
var<workgroup> values: array<f32, N>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let is_value = id.x >= p.heads + p.kv_heads;
  let is_key = !is_value && id.x >= p.heads;
  let head = id.x - select(select(0u, p.heads, is_key), p.heads + p.kv_heads, is_value);
  let n = select(p.dk, p.dv, is_value);
  let x = p.x + id.y * p.x_ld +
          select(id.x * p.dk, (p.heads + p.kv_heads) * p.dk + head * p.dv, is_value);
  for (var i = at.lane; i < n; i += 64u) {
    values[i] = arena[x + i];
  }
  if (NORM && (!is_value || p.value_norm != 0u)) {
    var sums: array<f32, SUMS>;
    for (var i = at.lane; i < n; i += 64u) {
      sums[0] += values[i] * values[i];
    }
    add_up(at, &sums);
    let root = inverseSqrt(total(0u) / f32(n) + p.eps);
    let gain = select(select(p.gain, p.key_gain, is_key), -1, is_value);
    let weights = u32(max(gain, 0)) + head * p.gain_step;
    for (var i = at.lane; i < n; i += 64u) {
      values[i] *= root * select(1.0, vectors[weights + i], gain >= 0);
    }
  }
  workgroupBarrier();
  if (!is_value) {
    let reach = p.rot / 2u;
    let table = p.table + id.y * p.rot;
    for (var i = at.lane; i < reach; i += 64u) {
      let j = p.column + select(2u * i, i, p.neox != 0u);
      let k = j + select(1u, reach, p.neox != 0u);
      let a = values[j];
      let b = values[k];
      let c = arena[table + i];
      let s = arena[table + reach + i];
      values[j] = a * c - b * s;
      values[k] = a * s + b * c;
    }
  }
  for (var step = 1u; step < n; step *= 2u) {
    workgroupBarrier();
    for (var i = at.lane; i < n; i += 64u) {
      if ((i & step) == 0u && step < size_of(i, n)) {
        let a = values[i];
        let b = values[i + step];
        values[i] = a + b;
        values[i + step] = a - b;
      }
    }
  }
  workgroupBarrier();
  for (var i = at.lane; i < n; i += 64u) {
    values[i] *= inverseSqrt(f32(size_of(i, n)));
    if (id.x < p.heads) {
      arena[x + i] = values[i];
    }
  }
  if (id.x < p.heads) {
    return;
  }
  workgroupBarrier();
  keep(head, p.first + id.y, is_value, n, at.lane);
}
