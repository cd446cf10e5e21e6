// The inner loop of gemv.wgsl if activations are codes too: one instruction multiplies four bytes
// by four.
fn product_of(w: Codes, x: vec2u, d: vec2f) -> f32 {
  let sums = vec2i(dot4I8Packed(w.q.x, x.x), dot4I8Packed(w.q.y, x.y));
  var of_x = vec2i();
  if (MINIMA) {
    of_x = vec2i(dot4I8Packed(ONES, x.x), dot4I8Packed(ONES, x.y));
  }
  if (ONE_BLOCK) {
    let value = w.d.x * f32(sums.x + sums.y);
    return d.x * select(value, value + w.m.x * f32(of_x.x + of_x.y), MINIMA);
  }
  let values = w.d * vec2f(sums);
  return dot(d, select(values, values + w.m * vec2f(of_x), MINIMA));
}

//@ each binding
fn accumulate$(first: u32, row: u32, token: u32, lane: u32, sums: ptr<function, array<f32, SUMS>>) {
  let at = places_of($u, row);
  for (var unit = lane; unit < p.units; unit += WG) {
    let c = column(unit);
    var x: array<vec2u, TOKENS>;
    var d: array<vec2f, TOKENS>;
    for (var t = 0u; t < TOKENS; t++) {
      let of_x = min(token + t, p.tokens - 1u) / p.share;
      let a = block_of(of_x, c);
      let b = select(block_of(of_x, c + PAIR), a, ONE_BLOCK);
      x[t] = vec2u(quad_of(a, c), quad_of(b, c + PAIR));
      d[t] = vec2f(scale_of(a), select(scale_of(b), 0.0, ONE_BLOCK));
    }
    for (var r = 0u; r < ROWS; r++) {
      let w = codes$(at[r], unit);
      for (var t = 0u; t < TOKENS; t++) {
        (*sums)[first + r * TOKENS + t] += product_of(w, x[t], d[t]);
      }
    }
  }
}
//@ once
