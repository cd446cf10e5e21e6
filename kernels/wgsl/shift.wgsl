// out = in of the previous token - in. One invocation per channel goes through all tokens. The state
// is the last token's row, read and written as in recurrence.wgsl.
struct Params {
  x: u32, x_ld: u32, out: u32, out_ld: u32,
  n: u32, tokens: u32, before: u32, after: u32,
  copies: u32, step: u32, due: u32, every: u32,
  ended: i32,
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let channel = id.x;
  if (channel >= p.n) {
    return;
  }
  var former = arena[p.before + channel];
  let ended = p.ended >= 0 && arena[max(p.ended, 0)] != 0.0;
  var due = select(p.due, 0u, ended);
  var copy = p.copies + channel;
  for (var t = 0u; t < p.tokens; t++) {
    let x = arena[p.x + t * p.x_ld + channel];
    arena[p.out + t * p.out_ld + channel] = former - x;
    former = x;
    if (t + 1u == due) {
      arena[copy] = former;
      due += p.every;
      copy += p.step;
    }
  }
  if (!ended) {
    arena[p.after + channel] = former;
  }
}
