// Mamba's selective scan: S[i] = exp(dt A[i]) S[i] + b[i] dt x, out = the sum of c[i] S[i], + d x. One
// invocation per channel keeps the channel's KEYS states in registers through all tokens. The state
// is read and written as in recurrence.wgsl.
struct Params {
  x: u32, x_ld: u32, dt: u32, dt_ld: u32,
  b: u32, b_ld: u32, c: u32, c_ld: u32,
  out: u32, out_ld: u32, n: u32, tokens: u32,
  rates: u32, skip: u32, before: u32, after: u32,
  copies: u32, step: u32, due: u32, every: u32,
  ended: i32,
}
fn keep(at: u32, s: ptr<function, array<f32, KEYS>>) {
  for (var i = 0u; i < KEYS; i++) {
    arena[at + i * p.n] = (*s)[i];
  }
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let channel = id.x;
  if (channel >= p.n) {
    return;
  }
  var s: array<f32, KEYS>;
  for (var i = 0u; i < KEYS; i++) {
    s[i] = arena[p.before + i * p.n + channel];
  }
  let skip = vectors[p.skip + channel];
  let ended = p.ended >= 0 && arena[max(p.ended, 0)] != 0.0;
  var due = select(p.due, 0u, ended);
  var copy = p.copies + channel;
  for (var t = 0u; t < p.tokens; t++) {
    let x = arena[p.x + t * p.x_ld + channel];
    let dt = arena[p.dt + t * p.dt_ld + channel];
    var out = skip * x;
    for (var i = 0u; i < KEYS; i++) {
      let decay = exp(max(dt * vectors[p.rates + i * p.n + channel], -87.0));
      s[i] = decay * s[i] + arena[p.b + t * p.b_ld + i] * dt * x;
      out += arena[p.c + t * p.c_ld + i] * s[i];
    }
    arena[p.out + t * p.out_ld + channel] = out;
    if (t + 1u == due) {
      keep(copy, &s);
      due += p.every;
      copy += p.step;
    }
  }
  if (!ended) {
    keep(p.after + channel, &s);
  }
}
