// Stores the values of a head as halves. kv_group_q4_0.wgsl quantizes them when their group is complete.
fn keep(head: u32, position: u32, is_value: bool, n: u32, lane: u32) {
  let row = p.recent_at + position % p.recent_capacity * (p.kv_heads * (p.dk + p.dv) / 2u) +
            select(head * p.dk, p.kv_heads * p.dk + head * p.dv, is_value) / 2u;
  for (var i = lane; i < n / 2u; i += 64u) {
    cache[row + i] = half_bits(values[2u * i]) | (half_bits(values[2u * i + 1u]) << 16u);
  }
}
