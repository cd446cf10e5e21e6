// Stores values of a head, after RoPE, in a block: 32 per invocation. The scale has the eight bits
// of bfloat16, rounded up, so that caches can be converted to the CPU's layout and back.
const KEPT = 32u;
fn keep(row: u32, c: u32, x: u32, n: u32, key: bool, table: u32) {
  let count = min(n - c, 32u);
  var most = 0.0;
  for (var i = 0u; i < count; i++) {
    most = max(most, abs(rotated(x, c + i, key, table)));
  }
  let scale = bitcast<f32>((bitcast<u32>(most / 127.0) + 0xffffu) & 0xffff0000u);
  let block = row + c / 32u * 9u;
  cache[block] = bitcast<u32>(scale);
  for (var w = 0u; w < 8u; w++) {
    var word = 0u;
    for (var i = 0u; i < 4u; i++) {
      var code = 0i;
      if (4u * w + i < count && scale > 0.0) {
        code = i32(round(clamp(rotated(x, c + 4u * w + i, key, table) / scale, -127.0, 127.0)));
      }
      word |= (bitcast<u32>(code) & 255u) << (8u * i);
    }
    cache[block + 1u + w] = word;
  }
}
