// Stores values of a head, after RoPE, in a block: 32 per invocation. The scale is rounded to
// bfloat16, as on the CPU, so that caches can be converted to its layout and back.
const KEPT = 32u;
fn keep(row: u32, c: u32, x: u32, n: u32, key: bool, table: u32) {
  let count = min(n - c, 32u);
  var most = 0.0;
  for (var i = 0u; i < count; i++) {
    most = max(most, abs(rotated(x, c + i, key, table)));
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
        code = i32(round(clamp(rotated(x, c + 4u * w + i, key, table) / scale, -127.0, 127.0)));
      }
      word |= (bitcast<u32>(code) & 255u) << (8u * i);
    }
    cache[block + 1u + w] = word;
  }
}
