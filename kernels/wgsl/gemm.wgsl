// GEMM: matrix multiplication with many tokens. A workgroup computes 64 rows for 32 tokens; each
// invocation has 8 by 4 of them in registers. Weights and activations go through workgroup memory,
// four units of eight columns at a time, as values or as codes (gemm_values.wgsl, gemm_codes.wgsl).
// The quantization type defines which columns a unit has.
// y = (add ? y : 0) + scale * (factor * w . x + bias)
struct Params {
  base: vec4u, rows: vec4u, first: vec4u, column: vec4u, bias: vec4i, factor: vec4i,
  x: u32, x_ld: u32, y: u32, y_ld: u32,
  cols: u32, units: u32, row_bytes: u32, tokens: u32,
  groups: u32, scale: f32, add: u32,
}
const UNITS = 4u;
const STEP = 2u * UNITS;      // quads of a row of a tile
const STRIDE = STEP + 1u;  // odd, so that rows are in different banks
const TILE_ROWS = 64u;
const TILE_TOKENS = 32u;

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
    add_tile(by_row, by_token, &sums);
  }
  let bias = p.bias[part];
  let factor = p.factor[part];
  let by = select(1.0, vectors[max(factor, 0)], factor >= 0);
  for (var i = 0u; i < 8u; i++) {
    let r = row + by_row + 8u * i;
    for (var j = 0u; j < 4u; j++) {
      let t = token + by_token + 8u * j;
      if (r < p.rows[part] && t < p.tokens) {
        let y = p.y + t * p.y_ld + p.column[part] + r;
        arena[y] = p.scale * (by * sums[i][j] +
                              select(0.0, vectors[u32(max(bias, 0)) + r], bias >= 0)) +
                   select(0.0, arena[y], p.add != 0u);
      }
    }
  }
}
