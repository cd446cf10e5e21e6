// Chooses the token behind a step of a queue: [steps + 1] tokens, their number without the first, and
// whether the queue has ended. First each workgroup finds the k best of its part of the logits, the
// lowest id of several equal ones. Then (`last`) one workgroup finds the k best of theirs, and takes
// the first of them, or with a temperature draws one of the first `top` as sample::Sampler does, after
// top-p and min-p. With penalties (`counts` >= 0: how often each token occurs in their window) k is
// one more than `top`, to see how close the next one is.
struct Params {
  logits: u32, n: u32, parts: u32, best: u32,
  tokens: u32, step: u32, count: u32, ended: u32,
  stops: u32, n_stops: u32, k: u32, draws: u32,
  last: u32, top: u32, counts: i32, leaving: u32,
  temperature: f32, top_probability: f32, min_probability: f32,
  repetition: f32, frequency: f32, presence: f32,
}
// A key and an id. Keys are in the order of the logits; 0: NaN or minus infinity, never chosen.
const NOTHING = vec2u(0u, 0xffffffffu);
const EVERYTHING = vec2u(0xffffffffu, 0u);
// The sampler adds up doubles. Where sums of floats could decide otherwise, the queue ends, and the
// sampler decides.
const NEAR = 2e-5;
const UNDECIDED = 0xffffffffu;
// Relative error of a logit with penalties, whose division need not round as the sampler's.
const ROUNDING = 1e-6;

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
fn occurrences(id: u32) -> f32 {
  if (p.counts < 0) {
    return 0.0;
  }
  return arena[u32(p.counts) + id];
}
fn penalty(id: u32) -> f32 {
  return occurrences(id) * p.frequency + p.presence;
}
// The logit of a token, after penalties.
fn logit(id: u32) -> f32 {
  let x = arena[p.logits + id];
  if (occurrences(id) == 0.0 || key_of(x) == 0u) {
    return x;
  }
  return select(x * p.repetition, x / p.repetition, x > 0.0) - penalty(id);
}
// How far the sampler's value of a logit may be.
fn blur(id: u32) -> f32 {
  return select(0.0, ROUNDING * (abs(logit(id)) + abs(penalty(id))), occurrences(id) != 0.0);
}
fn candidate(i: u32) -> vec2u {
  if (p.last == 0u) {
    return vec2u(key_of(logit(i)), i);
  }
  let id = arena[p.best + i];
  if (id < 0.0) {
    return NOTHING;
  }
  return vec2u(key_of(logit(u32(id))), u32(id));
}
// The best of an invocation's candidates that are not as good as `before`.
fn best_behind(before: vec2u, group: u32, lane: u32) -> vec2u {
  var best = NOTHING;
  let last = p.last != 0u;
  let end = select(p.n, p.parts * p.k, last);
  for (var i = group * WG + lane; i < end; i += select(p.parts, 1u, last) * WG) {
    let other = candidate(i);
    if (other.x != 0u && better(before, other) && better(other, best)) {
      best = other;
    }
  }
  return best;
}
// Whether the sampler may have the token at a place among the k best behind the next one.
fn doubtful(i: u32) -> bool {
  let next = chosen[i + 1u];
  return next != NOTHING.y && logit(chosen[i]) - logit(next) < blur(chosen[i]) + blur(next);
}
// The place of the token that is drawn.
fn drawn() -> u32 {
  let most = logit(chosen[0]);
  var near = NEAR;
  var total = 0.0;
  var kept = 0u;
  for (var i = 0u; i < p.top && chosen[i] != NOTHING.y; i++) {
    if (p.counts >= 0 && doubtful(i)) {
      return UNDECIDED;
    }
    near = max(near, NEAR + (blur(chosen[0]) + blur(chosen[i])) / p.temperature);
    weights[i] = exp(max((logit(chosen[i]) - most) / p.temperature, -87.0));
    total += weights[i];
    if (i > 0u && abs(weights[i] - p.min_probability) < near) {
      return UNDECIDED;
    }
    kept += u32(weights[i] >= p.min_probability);
  }
  let wanted = select(p.top_probability * total, 2.0 * total, p.top_probability >= 1.0);
  var sum = 0.0;
  for (var i = 0u; i < kept; i++) {
    sum += weights[i];
    if (abs(sum - wanted) < near * total) {
      return UNDECIDED;
    }
    if (sum >= wanted) {
      kept = i + 1u;
    }
  }
  var left = arena[p.draws + p.step] * sum;
  for (var i = 0u; i + 1u < kept; i++) {
    left -= weights[i];
    if (abs(left) < near * total) {
      return UNDECIDED;
    }
    if (left < 0.0) {
      return i;
    }
  }
  return kept - 1u;
}
// Moves the window of the penalties on by a token. Another leaves it: an id, -1 for none, or below
// that minus one minus the number of a token of this queue.
fn slide(id: u32) {
  arena[u32(p.counts) + id] += 1.0;
  var gone = arena[p.leaving + p.step];
  if (gone < -1.0) {
    gone = arena[p.tokens + u32(-1.0 - gone)];
  }
  if (gone >= 0.0) {
    arena[u32(p.counts) + u32(gone)] -= 1.0;
  }
}
fn finish() {
  if (arena[p.ended] != 0.0) {
    return;
  }
  var place = UNDECIDED;
  if (chosen[0] == NOTHING.y) {
  } else if (p.temperature > 0.0) {
    place = drawn();
  } else if (p.counts < 0 || !doubtful(0u)) {
    place = 0u;
  }
  if (place == UNDECIDED) {
    arena[p.ended] = 1.0;
    return;
  }
  let token = f32(chosen[place]);
  arena[p.tokens + p.step + 1u] = token;
  arena[p.count] = f32(p.step + 1u);
  if (p.counts >= 0) {
    slide(chosen[place]);
  }
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
    if (lane == 0u && p.last != 0u) {
      chosen[r] = winner.y;
    } else if (lane == 0u) {
      arena[p.best + id.x * p.k + r] = select(-1.0, f32(winner.y), winner.x != 0u);
    }
    if (winner.x != 0u && all(winner == own)) {
      own = best_behind(winner, id.x, lane);
    }
  }
  if (p.last != 0u && lane == 0u) {
    finish();
  }
}
