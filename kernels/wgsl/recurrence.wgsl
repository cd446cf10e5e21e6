// A recurrence over a state S [KEYS][values] per head: kernels::StateKind in kernels.h. Columns of S
// are independent. A workgroup takes COLUMNS of a head through all tokens. PARTS invocations share a
// column; each keeps SHARE keys of it in registers. The state is read before the first token and
// written behind the last one, and where a copy is due, unless the queue of steps that this one
// belongs to has ended.
struct Params {
  r: u32, r_ld: u32, k: u32, k_ld: u32,
  v: u32, v_ld: u32, decay: u32, decay_ld: u32,
  beta: i32, beta_ld: u32, out: u32, out_ld: u32,
  a: u32, a_ld: u32, b: u32, b_ld: u32,
  given: i32, heads: u32, groups: u32, values: u32,
  tokens: u32, before: u32, after: u32, copies: u32,
  step: u32, due: u32, every: u32, ended: i32,
  interleaved: u32,
}
const COLUMNS = WG / PARTS;
const SHARE = (KEYS + PARTS - 1u) / PARTS;
const EVEN = SHARE * PARTS == KEYS;
var<workgroup> sums: array<f32, 2u * WG>;
var<private> turn: u32;

// The sum of the invocations that share a column. Two places by turns: one barrier is enough.
fn total(lane: u32, x: f32) -> f32 {
  if (PARTS == 1u) {
    return x;
  }
  turn = WG - turn;
  sums[turn + lane] = x;
  workgroupBarrier();
  var sum = 0.0;
  for (var part = 0u; part < PARTS; part++) {
    sum += sums[turn + part * COLUMNS + lane % COLUMNS];
  }
  return sum;
}
fn keep(at: u32, count: u32, s: ptr<function, array<f32, SHARE>>) {
  for (var i = 0u; i < SHARE; i++) {
    if (i < count) {
      arena[at + i * p.values] = (*s)[i];
    }
  }
}
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) lane: u32) {
  let head = id.y;
  let column = id.x * COLUMNS + lane % COLUMNS;
  let first = lane / COLUMNS * SHARE;
  var count = select(min(SHARE, max(KEYS, first) - first), SHARE, EVEN);
  if (column >= p.values) {
    count = 0u;
  }
  let group = select(head * p.groups / p.heads, head % p.groups, p.interleaved != 0u);
  let key = group * KEYS + first;
  let at = (head * KEYS + first) * p.values + column;
  let value = head * p.values + column;
  var s: array<f32, SHARE>;
  for (var i = 0u; i < SHARE; i++) {
    if (i < count) {
      s[i] = arena[p.before + at + i * p.values];
    }
  }
  var skip = 0.0;
  if (!BONUS && p.given >= 0) {
    skip = vectors[u32(p.given) + head];
  }
  let ended = p.ended >= 0 && arena[max(p.ended, 0)] != 0.0;
  var due = select(p.due, 0u, ended);
  var copy = p.copies + at;
  for (var t = 0u; t < p.tokens; t++) {
    let r = p.r + t * p.r_ld + key;
    let k = p.k + t * p.k_ld + key;
    let a = p.a + t * p.a_ld + key;
    let b = p.b + t * p.b_ld + key;
    let decay = p.decay + t * p.decay_ld + select(head, head * KEYS + first, PER_KEY);
    let given = arena[p.v + t * p.v_ld + value];
    var v = given;
    var seen = 0.0;
    if (DELTA || GENERAL) {
      for (var i = 0u; i < SHARE; i++) {
        if (i < count) {
          if (DELTA) {
            seen += arena[k + i] * arena[decay + select(0u, i, PER_KEY)] * s[i];
          } else {
            seen += arena[a + i] * s[i];
          }
        }
      }
      seen = total(lane, seen);
    }
    if (DELTA) {
      v -= seen;
    }
    if (p.beta >= 0) {
      v *= arena[u32(p.beta) + t * p.beta_ld + head];
    }
    var out = select(0.0, skip * given, first == 0u);
    for (var i = 0u; i < SHARE; i++) {
      if (i < count) {
        let former = s[i];
        var next = arena[decay + select(0u, i, PER_KEY)] * former + arena[k + i] * v;
        if (GENERAL) {
          next += arena[b + i] * seen;
        }
        s[i] = next;
        if (BONUS) {
          next = former + arena[k + i] * vectors[u32(p.given) + head * KEYS + first + i] * given;
        }
        out += arena[r + i] * next;
      }
    }
    out = total(lane, out);
    if (first == 0u && column < p.values) {
      arena[p.out + t * p.out_ld + value] = out;
    }
    if (t + 1u == due) {
      keep(copy, count, &s);
      due += p.every;
      copy += p.step;
    }
  }
  if (!ended) {
    keep(p.after + at, count, &s);
  }
}
