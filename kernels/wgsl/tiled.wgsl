// Products with many tokens: a workgroup computes 64 rows for 32 tokens, of which each invocation
// holds 8 by 4 in registers. Weights and activations pass through workgroup memory (14 KB), four
// units of eight columns at a time; which columns these are is the type's affair.
// y = (add ? y : 0) + factor * (w . x + bias)
struct Params {
  base: vec4u, rows: vec4u, first: vec4u, column: vec4u, bias: vec4i, factor: vec4i,
  x: u32, x_ld: u32, y: u32, y_ld: u32,
  cols: u32, units: u32, row_bytes: u32, tokens: u32,
  groups: u32, scale: f32, add: u32,
}
const UNITS = 4u;
const STEP = 2u * UNITS;      // quads of a row of a tile
const STRIDE = STEP + 1u;     // rows lie in different banks
const TILE_ROWS = 64u;
const TILE_TOKENS = 32u;

var<workgroup> tile_w: array<vec4f, TILE_ROWS * STRIDE>;
var<workgroup> tile_x: array<vec4f, TILE_TOKENS * STRIDE>;

//@ each binding
fn load_weights$(row: u32, unit: u32, lane: u32) {
  for (var i = lane; i < TILE_ROWS * UNITS; i += 64u) {
    let u = unit + i % UNITS;
    let r = i / UNITS;
    var w = mat2x4f();
    if (u < p.units) {
      w = decode$(p.base[$] + min(row + r, p.rows[$] - 1u) * p.row_bytes, u);
      if (TAIL) {
        let c = column(u);
        w = mat2x4f(within(w[0], c, p.cols), within(w[1], c + PAIR, p.cols));
      }
    }
    tile_w[r * STRIDE + 2u * (i % UNITS)] = w[0];
    tile_w[r * STRIDE + 2u * (i % UNITS) + 1u] = w[1];
  }
}
//@ once
fn load_inputs(token: u32, unit: u32, lane: u32) {
  for (var i = lane; i < TILE_TOKENS * STEP; i += 64u) {
    let u = unit + i % STEP / 2u;
    let t = i / STEP;
    var x = vec4f();
    if (u < p.units) {
      let c = column(u) + PAIR * (i % 2u);
      x = quad(p.x + min(token + t, p.tokens - 1u) * p.x_ld + c);
      x = select(x, within(x, c, p.cols), TAIL);
    }
    tile_x[t * STRIDE + i % STEP] = x;
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let group = id.y * groups.x + id.x;
  if (group >= p.groups) {
    return;
  }
  let part = u32(PARTS > 1u && group >= p.first.y) + u32(PARTS > 2u && group >= p.first.z);
  let row = (group - p.first[part]) * TILE_ROWS;
  let token = id.z * TILE_TOKENS;
  let by_row = lane / 8u;
  let by_token = lane % 8u;
  var sums: array<vec4f, 8>;
  for (var unit = 0u; unit < p.units; unit += UNITS) {
    workgroupBarrier();
    //@ load
    load_inputs(token, unit, lane);
    workgroupBarrier();
    for (var k = 0u; k < STEP; k++) {
      let x0 = tile_x[by_token * STRIDE + k];
      let x1 = tile_x[(by_token + 8u) * STRIDE + k];
      let x2 = tile_x[(by_token + 16u) * STRIDE + k];
      let x3 = tile_x[(by_token + 24u) * STRIDE + k];
      for (var i = 0u; i < 8u; i++) {
        let w = tile_w[(by_row + 8u * i) * STRIDE + k];
        sums[i] += vec4f(dot(w, x0), dot(w, x1), dot(w, x2), dot(w, x3));
      }
    }
  }
  let bias = p.bias[part];
  let factor = p.factor[part];
  let by = p.scale * select(1.0, vectors[max(factor, 0)], factor >= 0);
  for (var i = 0u; i < 8u; i++) {
    let r = row + by_row + 8u * i;
    for (var j = 0u; j < 4u; j++) {
      let t = token + by_token + 8u * j;
      if (r < p.rows[part] && t < p.tokens) {
        let y = p.y + t * p.y_ld + p.column[part] + r;
        arena[y] = by * (sums[i][j] + select(0.0, vectors[u32(max(bias, 0)) + r], bias >= 0)) +
                   select(0.0, arena[y], p.add != 0u);
      }
    }
  }
}
