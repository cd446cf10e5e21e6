// Selects the experts of a token and their weights, like src/session/moe_router.cpp. One workgroup
// per token. A row has the router's logits, then space for probabilities, scores and group sums.
struct Params {
  logits: u32, ld: u32, n: u32, used: u32,
  ids: u32, weights: u32,  // [tokens][used]; an expert of -1 means none
  gating: u32, groups: u32, groups_used: u32, shared_by: u32,
  normalize: u32, scale: f32, bias: i32,
}
const WIDTH = 64u;
const TAKEN = -3.4e38;
const EXCLUDED = -3.3e38;  // below every score, above TAKEN
const LEAST_SUM = 6.103515625e-5;
var<workgroup> values: array<f32, WIDTH>;
var<workgroup> numbers: array<u32, WIDTH>;

fn sum_of_all(lane: u32, value: f32) -> f32 {
  values[lane] = value;
  for (var reach = WIDTH / 2u; reach > 0u; reach /= 2u) {
    workgroupBarrier();
    if (lane < reach) {
      values[lane] += values[lane + reach];
    }
  }
  workgroupBarrier();
  let sum = values[0];
  workgroupBarrier();
  return sum;
}
// The first of equal maxima.
fn best_of_all(lane: u32, value: f32, number: u32) -> u32 {
  values[lane] = value;
  numbers[lane] = number;
  for (var reach = WIDTH / 2u; reach > 0u; reach /= 2u) {
    workgroupBarrier();
    if (lane < reach) {
      let other = values[lane + reach];
      let later = numbers[lane + reach] > numbers[lane];
      if (other > values[lane] || (other == values[lane] && !later)) {
        values[lane] = other;
        numbers[lane] = numbers[lane + reach];
      }
    }
  }
  workgroupBarrier();
  let best = numbers[0];
  workgroupBarrier();
  return best;
}
fn best_at(lane: u32, at: u32, n: u32) -> u32 {
  var value = TAKEN;
  var number = n;
  for (var i = lane; i < n; i += WIDTH) {
    if (arena[at + i] > value) {
      value = arena[at + i];
      number = i;
    }
  }
  return best_of_all(lane, value, number);
}

// Keeps only the scores of the groups whose two best experts have the largest sum.
fn keep_best_groups(scores: u32) {
  let size = p.n / p.groups;
  let sums = scores + p.n;
  for (var g = 0u; g < p.groups; g++) {
    var first = TAKEN;
    var second = TAKEN;
    for (var i = g * size; i < (g + 1u) * size; i++) {
      second = max(second, min(first, arena[scores + i]));
      first = max(first, arena[scores + i]);
    }
    let both = max(first, -1e38) + max(second, -1e38);
    arena[sums + g] = max(select(first, both, size > 1u), EXCLUDED);
  }
  for (var k = 0u; k < p.groups_used; k++) {
    var best = 0u;
    for (var g = 1u; g < p.groups; g++) {
      if (arena[sums + g] > arena[sums + best]) {
        best = g;
      }
    }
    arena[sums + best] = TAKEN;
  }
  for (var g = 0u; g < p.groups; g++) {
    if (arena[sums + g] != TAKEN) {
      for (var i = g * size; i < (g + 1u) * size; i++) {
        arena[scores + i] = EXCLUDED;
      }
    }
  }
}

// Computes the weights of the chosen experts.
fn weigh(ids: u32, weights: u32) {
  var sum = 0.0;
  var largest = TAKEN;
  for (var k = 0u; k < p.used; k++) {
    sum += arena[weights + k];
    largest = max(largest, arena[weights + k]);
  }
  if (p.gating == 2u) {
    var all = 0.0;
    for (var k = 0u; k < p.used; k++) {
      arena[weights + k] = exp(max(arena[weights + k] - largest, -87.0));
      all += arena[weights + k];
    }
    for (var k = 0u; k < p.used; k++) {
      arena[weights + k] /= all;
    }
  }
  let by = p.scale / select(1.0, max(sum, LEAST_SUM), p.normalize != 0u);
  for (var k = 0u; k < p.used; k++) {
    arena[weights + k] *= by;
  }
  // If several choices are one expert, the first of them gets all their weight.
  for (var k = 1u; k < p.used && p.shared_by > 1u; k++) {
    for (var j = 0u; j < k; j++) {
      if (arena[ids + j] == arena[ids + k]) {
        arena[weights + j] += arena[weights + k];
        arena[ids + k] = -1.0;
        break;
      }
    }
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = p.logits + id.x * p.ld;
  let scores = row + 2u * p.n;
  var most = 0.0;
  var sum = 1.0;
  if (p.gating == 0u) {
    most = arena[row + min(best_at(lane, row, p.n), p.n - 1u)];
    var part = 0.0;
    for (var i = lane; i < p.n; i += WIDTH) {
      part += exp(max(arena[row + i] - most, -87.0));
    }
    sum = sum_of_all(lane, part);
  }
  for (var i = lane; i < p.n; i += WIDTH) {
    let x = arena[row + i];
    var weight = x;
    if (p.gating == 0u) {
      weight = exp(max(x - most, -87.0)) / sum;
    } else if (p.gating == 1u) {
      weight = sigmoid(x);
    }
    arena[row + p.n + i] = weight;
    let score = weight + select(0.0, vectors[u32(max(p.bias, 0)) + i], p.bias >= 0);
    arena[scores + i] = select(EXCLUDED, score, score > EXCLUDED);
  }
  storageBarrier();
  if (p.groups > 1u) {
    if (lane == 0u) {
      keep_best_groups(scores);
    }
    storageBarrier();
  }
  let ids = p.ids + id.x * p.used;
  let weights = p.weights + id.x * p.used;
  for (var k = 0u; k < p.used; k++) {
    let expert = min(best_at(lane, scores, p.n), p.n - 1u);
    if (lane == 0u) {
      arena[scores + expert] = TAKEN;
      arena[ids + k] = f32(expert / p.shared_by);
      arena[weights + k] = arena[row + p.n + expert / p.shared_by];
    }
    storageBarrier();
  }
  if (lane == 0u) {
    weigh(ids, weights);
  }
}
