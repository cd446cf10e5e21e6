// Chooses the token behind a step of a queue: [steps + 1] tokens, their number without the first, and
// whether the queue has ended. First each workgroup finds the k best of its part of the logits, the
// lowest id of several equal ones. Then (LAST) one workgroup finds the k best of theirs, and takes the
// first of them, or (DRAW) draws one as sample::Sampler does, after top-p and min-p.
struct Params {
  logits: u32, n: u32, parts: u32, best: u32,
  tokens: u32, step: u32, count: u32, ended: u32,
  stops: u32, n_stops: u32, k: u32, draws: u32,
  temperature: f32, top_probability: f32, min_probability: f32,
}
// A key and an id. Keys are in the order of the logits; 0: NaN or minus infinity, never chosen.
const NOTHING = vec2u(0u, 0xffffffffu);
const EVERYTHING = vec2u(0xffffffffu, 0u);
// The sampler adds up doubles. Where sums of floats could decide otherwise, the queue ends, and the
// sampler decides.
const NEAR = 2e-5;

var<workgroup> found: array<vec2u, WG>;
var<workgroup> chosen: array<u32, MOST>;
var<workgroup> weights: array<f32, MOST>;

fn key_of(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0xff800000u) {
    return 0u;
  }
  return select(bits | 0x80000000u, ~bits, bits > 0x80000000u);
}
fn better(a: vec2u, b: vec2u) -> bool {
  return a.x > b.x || (a.x == b.x && a.y < b.y);
}
fn candidate(i: u32) -> vec2u {
  if (!LAST) {
    return vec2u(key_of(arena[p.logits + i]), i);
  }
  let id = arena[p.best + i];
  if (id < 0.0) {
    return NOTHING;
  }
  return vec2u(key_of(arena[p.logits + u32(id)]), u32(id));
}
// The best of an invocation's candidates that are not as good as `before`.
fn best_behind(before: vec2u, group: u32, lane: u32) -> vec2u {
  var best = NOTHING;
  let end = select(p.n, p.parts * p.k, LAST);
  for (var i = group * WG + lane; i < end; i += select(p.parts, 1u, LAST) * WG) {
    let other = candidate(i);
    if (other.x != 0u && better(before, other) && better(other, best)) {
      best = other;
    }
  }
  return best;
}
// The place among the k best, or `k` where the sampler has to decide.
fn drawn() -> u32 {
  let most = arena[p.logits + chosen[0]];
  var total = 0.0;
  var kept = 0u;
  for (var i = 0u; i < p.k && chosen[i] != NOTHING.y; i++) {
    weights[i] = exp(max((arena[p.logits + chosen[i]] - most) / p.temperature, -87.0));
    total += weights[i];
    if (i > 0u && abs(weights[i] - p.min_probability) < NEAR) {
      return p.k;
    }
    kept += u32(weights[i] >= p.min_probability);
  }
  let wanted = select(p.top_probability * total, 2.0 * total, p.top_probability >= 1.0);
  var sum = 0.0;
  for (var i = 0u; i < kept; i++) {
    sum += weights[i];
    if (abs(sum - wanted) < NEAR * total) {
      return p.k;
    }
    if (sum >= wanted) {
      kept = i + 1u;
    }
  }
  var left = arena[p.draws + p.step] * sum;
  for (var i = 0u; i + 1u < kept; i++) {
    left -= weights[i];
    if (abs(left) < NEAR * total) {
      return p.k;
    }
    if (left < 0.0) {
      return i;
    }
  }
  return kept - 1u;
}
fn finish() {
  if (arena[p.ended] != 0.0) {
    return;
  }
  var place = select(0u, p.k, chosen[0] == NOTHING.y);
  if (DRAW && place == 0u) {
    place = drawn();
  }
  if (place == p.k) {
    arena[p.ended] = 1.0;
    return;
  }
  let token = f32(chosen[place]);
  arena[p.tokens + p.step + 1u] = token;
  arena[p.count] = f32(p.step + 1u);
  for (var i = 0u; i < p.n_stops; i++) {
    if (arena[p.stops + i] == token) {
      arena[p.ended] = 1.0;
    }
  }
}
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) lane: u32) {
  var own = best_behind(EVERYTHING, id.x, lane);
  for (var r = 0u; r < p.k; r++) {
    found[lane] = own;
    for (var reach = WG / 2u; reach > 0u; reach /= 2u) {
      workgroupBarrier();
      if (lane < reach && better(found[lane + reach], found[lane])) {
        found[lane] = found[lane + reach];
      }
    }
    workgroupBarrier();
    let winner = found[0];
    workgroupBarrier();
    if (lane == 0u && LAST) {
      chosen[r] = winner.y;
    } else if (lane == 0u) {
      arena[p.best + id.x * p.k + r] = select(-1.0, f32(winner.y), winner.x != 0u);
    }
    if (winner.x != 0u && all(winner == own)) {
      own = best_behind(winner, id.x, lane);
    }
  }
  if (LAST && lane == 0u) {
    finish();
  }
}
