// Quantizes complete groups of positions from their halves to q4_0, as kernels/generic/kv_quantize.h
// does: the best of eight scales, refined by least squares. One invocation per block of 32 values.
struct Params {
  first: u32, kv_heads: u32, dk: u32, dv: u32,
  capacity: u32, key_at: u32, key_head: u32, key_row: u32,
  value_at: u32, value_head: u32, value_row: u32, recent_at: u32,
  recent_capacity: u32,
}
const UNIT = 5.793103448275862;  // levels are UNIT (u + 0.008 u^3), rounded, of u = code - 7.5
fn nearest(value: f32) -> f32 {
  let y = value / UNIT;
  let y2 = y * y;
  let u = y * (y2 * (y2 * 1.88775938e-5 - 4.46482060e-3) + 9.70276618e-1);
  return clamp(round(u + 7.5), 0.0, 15.0) - 7.5;
}
fn level(u: f32) -> f32 {
  return round(u * (u * u * (0.008 * UNIT) + UNIT));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let key_blocks = p.kv_heads * ((p.dk + 31u) / 32u);
  let is_value = id.x >= key_blocks;
  let n = select(p.dk, p.dv, is_value);
  let blocks = (n + 31u) / 32u;
  let i = select(id.x, id.x - key_blocks, is_value);
  let head = i / blocks;
  if (head >= p.kv_heads) {
    return;
  }
  let c = i % blocks * 32u;
  let count = min(n - c, 32u);
  let position = p.first + id.y;
  let begin = p.recent_at + position % p.recent_capacity * (p.kv_heads * (p.dk + p.dv) / 2u) +
             (select(head * p.dk, p.kv_heads * p.dk + head * p.dv, is_value) + c) / 2u;
  var x: array<f32, 32>;
  var peak = 0.0;
  for (var k = 0u; k < 32u; k++) {
    x[k] = 0.0;
    if (k < count) {
      x[k] = halves(cache[begin + k / 2u])[k % 2u];
    }
    peak = max(peak, abs(x[k]));
  }
  var d = 0.0;
  if (peak > 1e-30) {
    var least = 0.0;
    for (var t = 0u; t < 8u; t++) {
      let tried = peak / ((0.85 + 0.05 * f32(t)) * 63.0);
      var error = 0.0;
      for (var k = 0u; k < count; k++) {
        let e = x[k] - level(nearest(x[k] / tried)) * tried;
        error += e * e;
      }
      if (t == 0u || error < least) {
        least = error;
        d = tried;
      }
    }
    var xl = 0.0;
    var ll = 0.0;
    for (var k = 0u; k < count; k++) {
      let l = level(nearest(x[k] / d));
      xl += x[k] * l;
      ll += l * l;
    }
    d = xl / ll;
  }
  let bits = bitcast<u32>(d);
  let scale = (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;
  d = bitcast<f32>(scale);
  let inverse = select(0.0, 1.0 / d, d > 0.0);
  let block = select(p.key_at + head * p.key_head + position % p.capacity * p.key_row,
                     p.value_at + head * p.value_head + position % p.capacity * p.value_row, is_value) +
              c / 32u * 5u;
  cache[block] = scale;
  for (var w = 0u; w < 4u; w++) {
    var word = 0u;
    for (var k = 0u; k < 4u; k++) {
      let low = u32(nearest(x[4u * w + k] * inverse) + 7.5);
      let high = u32(nearest(x[16u + 4u * w + k] * inverse) + 7.5);
      word |= (low | (high << 4u)) << (8u * k);
    }
    cache[block + 1u + w] = word;
  }
}
