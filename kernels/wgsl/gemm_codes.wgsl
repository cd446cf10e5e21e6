// The operands of gemm.wgsl if activations are codes too. Four units have two quads of columns
// each. All of them belong to one block of activations (ONE_BLOCK), or the first quads to one and
// the second to another. Either way they share a scale, so sums over them stay integers.
const RUNS = select(2u, 1u, ONE_BLOCK);
const RUN = STEP / RUNS;

var<workgroup> tile_w: array<u32, TILE_ROWS * STRIDE>;
var<workgroup> tile_x: array<u32, TILE_TOKENS * STRIDE>;
var<workgroup> scales_w: array<vec4f, TILE_ROWS>;
var<workgroup> scales_x: array<f32, TILE_TOKENS * 2u>;

//@ each binding
fn load_weights$(row: u32, unit: u32, lane: u32) {
  for (var i = lane; i < TILE_ROWS * UNITS; i += 64u) {
    let r = i / UNITS;
    let w = codes$(p.base[$] + min(row + r, p.rows[$] - 1u) * p.row_bytes, unit + i % UNITS);
    tile_w[r * STRIDE + i % UNITS] = w.q.x;
    tile_w[r * STRIDE + UNITS + i % UNITS] = w.q.y;
    if (i % UNITS == 0u) {
      scales_w[r] = vec4f(w.d, w.m);
    }
  }
}
//@ once
fn load_inputs(token: u32, unit: u32, lane: u32) {
  for (var i = lane; i < TILE_TOKENS * STEP; i += 64u) {
    let c = column(unit + i % UNITS) + PAIR * (i / UNITS % 2u);
    let block = block_of(min(token + i / STEP, p.tokens - 1u), c);
    tile_x[i / STEP * STRIDE + i % STEP] = quad_of(block, c);
    if (i % UNITS == 0u) {
      scales_x[i / UNITS] = scale_of(block);
    }
  }
}

fn add_tile(by_row: u32, by_token: u32, sums: ptr<function, array<vec4f, 8>>) {
  for (var run = 0u; run < RUNS; run++) {
    var parts: array<vec4i, 8>;
    var of_x = vec4i();
    for (var i = 0u; i < 8u; i++) {
      parts[i] = vec4i();  // a declaration here does not reset it in every implementation
    }
    for (var k = run * RUN; k < (run + 1u) * RUN; k++) {
      let at = by_token * STRIDE + k;
      let x = vec4u(tile_x[at], tile_x[at + 8u * STRIDE], tile_x[at + 16u * STRIDE], tile_x[at + 24u * STRIDE]);
      if (MINIMA) {
        of_x += products(ONES, x);
      }
      for (var i = 0u; i < 8u; i++) {
        parts[i] += products(tile_w[(by_row + 8u * i) * STRIDE + k], x);
      }
    }
    let at = by_token * 2u + run;
    let scales = vec4f(scales_x[at], scales_x[at + 16u], scales_x[at + 32u], scales_x[at + 48u]);
    for (var i = 0u; i < 8u; i++) {
      let w = scales_w[by_row + 8u * i];
      var values = w[run] * vec4f(parts[i]);
      if (MINIMA) {
        values += w[2u + run] * vec4f(of_x);
      }
      (*sums)[i] += scales * values;
    }
  }
}
fn products(w: u32, x: vec4u) -> vec4i {
  return vec4i(dot4I8Packed(w, x.x), dot4I8Packed(w, x.y), dot4I8Packed(w, x.z), dot4I8Packed(w, x.w));
}
