// As acts.wgsl, of one row of activations, which each workgroup of a GEMV quantizes for itself. That
// repeats the work, but saves the dispatch in front of the multiplication. An RMS norm takes its gains
// here; the root is a factor of all codes and is left to the end.
const ONES = 0x01010101u;
var<workgroup> acts: array<u32, OWN>;

fn gained(x: u32, c: u32) -> vec4f {
  let values = quad(x + c);
  if (!NORM || p.gain < 0) {
    return values;
  }
  return values * vector_quad(u32(p.gain) + c);
}
// Returns the sum of squares of this invocation's values.
fn quantize(lane: u32, token: u32) -> f32 {
  let x = p.x + min(token, p.tokens - 1u) / p.share * p.x_ld;
  var squares = 0.0;
  for (var block = lane; block < p.cols / 32u; block += WG) {
    var sizes = vec4f();
    for (var c = 32u * block; c < 32u * block + 32u; c += 4u) {
      let values = quad(x + c);
      squares += dot(values, values);
      sizes = max(sizes, abs(gained(x, c)));
    }
    let scale = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)) / 127.0;
    let by = select(0.0, 1.0 / scale, scale > 1e-30);
    acts[9u * block] = bitcast<u32>(scale);
    for (var i = 0u; i < 8u; i++) {
      let codes = vec4i(round(gained(x, 32u * block + 4u * i) * by));
      acts[9u * block + 1u + i] = packed(bitcast<vec4u>(codes) & vec4u(255u));
    }
  }
  workgroupBarrier();
  return squares;
}
fn block_of(row: u32, c: u32) -> u32 {
  return c / 32u * 9u;
}
fn scale_of(block: u32) -> f32 {
  return bitcast<f32>(acts[block]);
}
fn quad_of(block: u32, c: u32) -> u32 {
  return acts[block + 1u + c % 32u / 4u];
}
