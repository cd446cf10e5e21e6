  // The part of rope.wgsl that stores: one invocation per two values.
  var i = id.x - p.pairs;
  let place = (p.first + id.y) % p.capacity;
  let key_items = p.kv_heads * p.key_runs;
  if (i < key_items) {
    let head = i / p.key_runs;
    keep(p.key_at + head * p.key_head + place * p.key_row, i % p.key_runs * 2u, x + p.keys + head * p.dk,
         p.rot > 0u, table);
    return;
  }
  i -= key_items;
  if (i < p.kv_heads * p.value_runs) {
    let head = i / p.value_runs;
    keep(p.value_at + head * p.value_head + place * p.value_row, i % p.value_runs * 2u,
         x + p.values + head * p.dv, false, table);
  }
