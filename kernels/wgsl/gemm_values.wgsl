// The operands of gemm.wgsl as values. Weights are floats, or halves if the file has halves (HELD).
alias Held = vec4<HELD>;
var<workgroup> tile_w: array<Held, TILE_ROWS * STRIDE>;
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
    tile_w[r * STRIDE + 2u * (i % UNITS)] = Held(w[0]);
    tile_w[r * STRIDE + 2u * (i % UNITS) + 1u] = Held(w[1]);
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

fn add_tile(by_row: u32, by_token: u32, sums: ptr<function, array<vec4f, 8>>) {
  for (var k = 0u; k < STEP; k++) {
    let x0 = tile_x[by_token * STRIDE + k];
    let x1 = tile_x[(by_token + 8u) * STRIDE + k];
    let x2 = tile_x[(by_token + 16u) * STRIDE + k];
    let x3 = tile_x[(by_token + 24u) * STRIDE + k];
    for (var i = 0u; i < 8u; i++) {
      let w = vec4f(tile_w[(by_row + 8u * i) * STRIDE + k]);
      (*sums)[i] += vec4f(dot(w, x0), dot(w, x1), dot(w, x2), dot(w, x3));
    }
  }
}
