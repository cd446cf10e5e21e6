// GEMV: matrix multiplication with few tokens. A workgroup computes ROWS rows of one part for
// TOKENS tokens. Each invocation reads every WG-th unit of eight weights of each row, so that
// neighbours read neighbouring words, and uses it for all tokens (gemv_values.wgsl,
// gemv_codes.wgsl). Then the workgroup adds up.
//   NORM     x is its RMS norm; the root of the sum of squares divides the sums at the end
//   GATED    a workgroup has the same rows of two parts and writes act(gate, up)
//   EXPERTS  rows are those of several matrices, one after the other; a number in the arena selects
//            the matrix of each token; `share` consecutive tokens have one x
// y = (add ? y : 0) + scale * (factor * w . x + bias), where x may have a weight for each token
struct Params {
  base: vec4u,    // of each part: the byte offset of its rows in its binding
  rows: vec4u,
  first: vec4u,   // first workgroup of each part
  column: vec4u,  // first column of y
  bias: vec4i,    // offset in vectors, or -1
  factor: vec4i,  // offset in vectors of one value (with EXPERTS one per expert), or -1
  stride: vec4u,  // bytes between experts
  row_bytes: vec4u,
  x: u32, x_ld: u32, y: u32, y_ld: u32,
  cols: u32, units: u32, tokens: u32, groups: u32,
  gain: i32, eps: f32, scale: f32, add: u32,
  positive: f32, negative: f32, linear: f32, below: f32,
  ids: u32, expert: u32, experts: u32, share: u32,
  weights: i32,  // of x, with EXPERTS: in the arena, or -1
}
const RESULTS = ROWS * TOKENS;

var<workgroup> chosen: i32;
var<private> matrix: u32;  // index among the bound matrices

// The byte offsets of ROWS rows of a part; past the last row, the offset of the last.
fn places_of(part: u32, row: u32) -> array<u32, ROWS> {
  var at: array<u32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    at[r] = p.base[part] + matrix * p.stride[part] + min(row + r, p.rows[part] - 1u) * p.row_bytes[part];
  }
  return at;
}

fn weighed(sum: f32, part: u32, row: u32, token: u32) -> f32 {
  let bias = p.bias[part];
  let factor = p.factor[part];
  var expert = 0u;
  var weight = 1.0;
  if (EXPERTS) {
    expert = p.expert + matrix;
    weight = select(1.0, arena[u32(max(p.weights, 0)) + token], p.weights >= 0);
  }
  return p.scale *
         (weight * sum * select(1.0, vectors[u32(max(factor, 0)) + expert], factor >= 0) +
          select(0.0, vectors[u32(max(bias, 0)) + expert * p.rows[part] + row], bias >= 0));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(num_workgroups) groups: vec3u, at: Invocation) {
  let group = id.y * groups.x + id.x;
  if (group >= p.groups) {
    return;
  }
  var part = 0u;
  if (PARTS > 1u && !GATED) {
    part = u32(group >= p.first.y) + u32(PARTS > 2u && group >= p.first.z);
  }
  let row = (group - p.first[part]) * ROWS;
  let token = id.z * TOKENS;
  if (EXPERTS) {
    if (at.lane == 0u) {
      chosen = i32(arena[p.ids + token]) - i32(p.expert);
    }
    let expert = workgroupUniformLoad(&chosen);
    if (expert < 0 || expert >= i32(p.experts)) {
      return;
    }
    matrix = u32(expert);
  }
  var sums: array<f32, SUMS>;
  //@ quantize
  //@ accumulate
  add_up(at, &sums);
  if (at.lane >= RESULTS) {
    return;
  }
  let r = row + at.lane / TOKENS;
  let t = token + at.lane % TOKENS;
  if (r >= p.rows[part] || t >= p.tokens) {
    return;
  }
  var root = 1.0;
  if (NORM) {
    root = inverseSqrt(total(SUMS - TOKENS + at.lane % TOKENS) / f32(p.cols) + p.eps);
  }
  let gate = weighed(total(at.lane) * root, part, r, t);
  var up = 0.0;
  if (GATED) {
    up = weighed(total(RESULTS + at.lane) * root, 1u, r, t);
  }
  let y = p.y + t * p.y_ld + p.column[part] + r;
  arena[y] = ACTIVATION + select(0.0, arena[y], p.add != 0u);
}
