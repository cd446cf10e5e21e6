// Quantizes rows of activations (with NORM, their RMS norm): a scale per 32 values as a float, then
// 32 signed bytes. A workgroup takes 256 values of a row, an invocation four. With NORM each
// workgroup adds up the squares of the whole row, which is faster than another dispatch.
struct Params {
  x: u32, x_ld: u32, cols: u32, gain: i32,
  eps: f32,
}
@group(0) @binding(3) var<storage, read_write> acts: array<u32>;
var<workgroup> largest: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, at: Invocation) {
  let row = p.x + id.y * p.x_ld;
  let c = (id.x * WG + at.lane) * 4u;
  var x = vec4f();
  if (c < p.cols) {
    x = quad(row + c);
  }
  if (NORM) {
    var squares: array<f32, SUMS>;
    for (var i = at.lane * 4u; i < p.cols; i += WG * 4u) {
      let other = quad(row + i);
      squares[0] += dot(other, other);
    }
    add_up(at, &squares);
    x *= inverseSqrt(total(0u) / f32(p.cols) + p.eps);
    if (p.gain >= 0 && c < p.cols) {
      x *= vector_quad(u32(p.gain) + c);
    }
  }
  let sizes = abs(x);
  largest[at.lane] = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
  workgroupBarrier();
  if (c >= p.cols) {
    return;
  }
  let first = at.lane / 8u * 8u;
  var most = 0.0;
  for (var i = first; i < first + 8u; i++) {
    most = max(most, largest[i]);
  }
  let scale = most / 127.0;
  let codes = vec4i(round(x * select(0.0, 1.0 / scale, scale > 1e-30)));
  let block = (id.y * (p.cols / 32u) + c / 32u) * 9u;
  acts[block + 1u + at.lane % 8u] = packed(bitcast<vec4u>(codes) & vec4u(255u));
  if (at.lane == first) {
    acts[block] = bitcast<u32>(scale);
  }
}
