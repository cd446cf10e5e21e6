// Functions of one value. Arguments of exp and tanh are clamped so that no implementation
// overflows.
fn sigmoid(x: f32) -> f32 {
  return 1.0 / (1.0 + exp(min(-x, 88.0)));
}
fn silu(x: f32) -> f32 {
  return x * sigmoid(x);
}
fn bounded_tanh(x: f32) -> f32 {
  return tanh(clamp(x, -15.0, 15.0));
}
fn gelu_tanh(x: f32) -> f32 {
  // 0.5 (1 + tanh(z)) is sigmoid(2 z), which stays exact for negative z.
  return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x));
}
// 1 - erf(z) for z >= 0, to a relative 1.2e-7 (Press et al., Numerical Recipes, 6.2).
fn erfc_positive(z: f32) -> f32 {
  let t = 1.0 / (1.0 + 0.5 * z);
  let terms = array(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806,
                    0.09678418, 0.37409196, 1.00002368);
  var sum = terms[0];
  sum = sum * t + terms[1];
  sum = sum * t + terms[2];
  sum = sum * t + terms[3];
  sum = sum * t + terms[4];
  sum = sum * t + terms[5];
  sum = sum * t + terms[6];
  sum = sum * t + terms[7];
  sum = sum * t + terms[8];
  return t * exp(max(-z * z - 1.26551223 + t * sum, -87.0));
}
fn gelu_erf(x: f32) -> f32 {
  let tail = erfc_positive(abs(x) * 0.70710678118654752);
  return 0.5 * x * select(2.0 - tail, tail, x < 0.0);
}
fn relu(x: f32) -> f32 {
  return max(x, 0.0);
}
fn softplus(x: f32) -> f32 {
  let small = exp(max(-abs(x), -87.0));
  // log(1 + y), by its series if 1 + y would round y away.
  return relu(x) + select(log(1.0 + small), small - 0.5 * small * small, small < 1e-3);
}
// e^x - 1, by its series near 0.
fn exp_minus_1(x: f32) -> f32 {
  let series = x * (1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666667 + x * 0.0083333333))));
  return select(exp(clamp(x, -87.0, 88.0)) - 1.0, series, abs(x) < 0.25);
}
fn xielu(x: f32, positive: f32, negative: f32, linear: f32, below: f32) -> f32 {
  let bent = select(negative * (exp_minus_1(min(x, below)) - x), positive * x * x, x > 0.0);
  return bent + linear * x;
}
// gpt-oss: g sigmoid(1.702 g) (u + 1)
fn clamped_swiglu(gate: f32, up: f32) -> f32 {
  let g = min(gate, 7.0);
  return g * sigmoid(1.702 * g) * (clamp(up, -7.0, 7.0) + 1.0);
}
