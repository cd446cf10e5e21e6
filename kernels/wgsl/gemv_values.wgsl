// The inner loop of gemv.wgsl: weights as values times f32 activations.
fn inputs(token: u32, c: u32) -> vec4f {
  var t = min(token, p.tokens - 1u);
  if (EXPERTS) {
    t /= p.share;
  }
  let x = quad(p.x + t * p.x_ld + c);
  return select(x, within(x, c, p.cols), TAIL);
}
fn gains(c: u32) -> vec4f {
  if (p.gain < 0) {
    return vec4f(1.0);
  }
  return vector_quad(u32(p.gain) + c);
}

//@ each binding
fn accumulate$(first: u32, row: u32, token: u32, lane: u32, sums: ptr<function, array<f32, SUMS>>) {
  let at = places_of($u, row);
  for (var unit = lane; unit < p.units; unit += WG) {
    let c = column(unit);
    var x0: array<vec4f, TOKENS>;
    var x1: array<vec4f, TOKENS>;
    for (var t = 0u; t < TOKENS; t++) {
      x0[t] = inputs(token + t, c);
      x1[t] = inputs(token + t, c + PAIR);
      if (NORM) {
        if ($u == 0u || !GATED) {
          (*sums)[SUMS - TOKENS + t] += dot(x0[t], x0[t]) + dot(x1[t], x1[t]);
        }
        x0[t] *= gains(c);
        x1[t] *= gains(c + PAIR);
      }
    }
    for (var r = 0u; r < ROWS; r++) {
      var w = decode$(at[r], unit);
      if (TAIL) {
        w = mat2x4f(within(w[0], c, p.cols), within(w[1], c + PAIR, p.cols));
      }
      for (var t = 0u; t < TOKENS; t++) {
        (*sums)[first + r * TOKENS + t] += dot(w[0], x0[t]) + dot(w[1], x1[t]);
      }
    }
  }
}
//@ once
