// Stores the values of a head in blocks, one per invocation: a scale, rounded to bfloat16 as on the CPU,
// so that caches can be converted to its layout and back, and codes.
fn keep(head: u32, position: u32, is_value: bool, n: u32, lane: u32) {
  let row = select(p.key_at + head * p.key_head + position % p.capacity * p.key_row,
                   p.value_at + head * p.value_head + position % p.capacity * p.value_row, is_value);
  for (var c = 32u * lane; c < n; c += 64u * 32u) {
    let count = min(n - c, 32u);
    var most = 0.0;
    for (var i = 0u; i < count; i++) {
      most = max(most, abs(values[c + i]));
    }
    let bits = bitcast<u32>(most / 127.0);
    let scale = bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u);
    let block = row + c / 32u * 9u;
    cache[block] = bitcast<u32>(scale);
    for (var w = 0u; w < 8u; w++) {
      var word = 0u;
      for (var i = 0u; i < 4u; i++) {
        var code = 0i;
        if (4u * w + i < count && most > 1e-30) {
          code = i32(round(clamp(values[c + 4u * w + i] / scale, -127.0, 127.0)));
        }
        word |= (bitcast<u32>(code) & 255u) << (8u * i);
      }
      cache[block + 1u + w] = word;
    }
  }
}
