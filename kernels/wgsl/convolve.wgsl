// Causal convolution of each channel over the tokens, in place. One invocation per channel keeps
// the last TAPS inputs in registers, since results overwrite them. The carried state is the last
// TAPS - 1 inputs, oldest first. It is read before the first token and written behind the last one,
// and where a copy is due, unless the queue of steps that this one belongs to has ended.
struct Params {
  x: u32, x_ld: u32, n: u32, tokens: u32,
  weights: u32, bias: i32, before: u32, after: u32,
  copies: u32, step: u32, due: u32, every: u32,
  ended: i32,  // arena, or -1
}
fn carry(at: u32, inputs: ptr<function, array<f32, TAPS>>) {
  for (var j = 1u; j < TAPS; j++) {
    arena[at + (j - 1u) * p.n] = (*inputs)[j];
  }
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let channel = id.x;
  if (channel >= p.n) {
    return;
  }
  var inputs: array<f32, TAPS>;
  var weights: array<f32, TAPS>;
  for (var j = 0u; j < TAPS; j++) {
    weights[j] = vectors[p.weights + j * p.n + channel];
    if (j > 0u) {
      inputs[j] = arena[p.before + (j - 1u) * p.n + channel];
    }
  }
  var bias = 0.0;
  if (p.bias >= 0) {
    bias = vectors[u32(p.bias) + channel];
  }
  let ended = p.ended >= 0 && arena[max(p.ended, 0)] != 0.0;
  var due = select(p.due, 0u, ended);
  var copy = p.copies + channel;
  for (var t = 0u; t < p.tokens; t++) {
    let at = p.x + t * p.x_ld + channel;
    for (var j = 1u; j < TAPS; j++) {
      inputs[j - 1u] = inputs[j];
    }
    inputs[TAPS - 1u] = arena[at];
    var sum = bias;
    for (var j = 0u; j < TAPS; j++) {
      sum += inputs[j] * weights[j];
    }
    arena[at] = RESULT;
    if (t + 1u == due) {
      carry(copy, &inputs);
      due += p.every;
      copy += p.step;
    }
  }
  if (!ended) {
    carry(p.after + channel, &inputs);
  }
}
