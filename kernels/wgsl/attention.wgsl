// Flash attention (https://arxiv.org/abs/2205.14135). A workgroup takes ROWS rows: the query heads
// of one KV head over successive tokens. It passes over its part of the positions in tiles of 32.
// For each row it keeps the maximum score so far, the sum of exponentials and the weighted values,
// and rescales them when the maximum grows. Tiles begin at multiples of 32 and parts at multiples
// of p.split, so a row's bits do not depend on the rows beside it. With SPLIT the parts stay
// unnormalized, for merge.wgsl.
// p.causal is 0 for bidirectional attention and 1 for causal. 2: each query sees the batch's last
// position too, and begins where a causal one does.
// p.chunked is 1 if windows are chunks of positions. Without a window, it is the first position that
// a query sees.
struct Params {
  q: u32, q_ld: u32, out: u32, out_ld: u32,
  dk: u32, dv: u32, group: u32, tokens: u32,  // group: query heads of a KV head
  first: u32, window: u32, chunked: u32, causal: u32,
  length: u32, capacity: u32, heads: u32, split: u32,
  key_at: u32, key_head: u32, key_row: u32, value_at: u32,
  value_head: u32, value_row: u32, sinks: i32, partials: u32,
  scale: f32, softcap: f32, slope: f32,       // slope: ALiBi's exponent per head
  slope_heads: u32, part: u32,                // part: number of the first part
}
const WG = 64u;
const TILE = 32u;
const NONE = -3.0e38;           // below every score
const LANES = WG / ROWS;        // invocations per row in the softmax step
const ROW_GROUPS = WG / QUADS;  // groups of QUADS invocations, in the sum of values
const OWN = ROWS / ROW_GROUPS;  // rows per group; an invocation sums TIMES quads of each

alias Held = vec4<HELD>;        // halves if keys are read as halves: no precision is lost
var<workgroup> tile_k: array<Held, TILE * 9u>;
var<workgroup> tile_q: array<vec4f, ROWS * 8u>;
var<workgroup> scores: array<f32, ROWS * (TILE + 1u)>;
var<workgroup> factors: array<f32, ROWS>;
var<workgroup> row_sums: array<f32, WG>;

//@ rows
// Where the row of a position begins in the cache, in words.
fn key_row(head: u32, position: u32) -> u32 {
  return p.key_at + head * p.key_head + position % p.capacity * p.key_row;
}
fn value_row(head: u32, position: u32) -> u32 {
  return p.value_at + head * p.value_head + position % p.capacity * p.value_row;
}
//@ end
//@ bounds
fn begin_of(position: u32) -> u32 {
  if (p.window == 0u) {
    return p.chunked;
  }
  if (p.chunked != 0u) {
    return position / p.window * p.window;
  }
  let back = select(p.window / 2u, p.window - 1u, p.causal != 0u);
  return position - min(position, back);
}
fn end_of(position: u32) -> u32 {
  if (p.causal == 1u) {
    return position + 1u;
  }
  if (p.causal == 2u) {
    return p.length;
  }
  return select(min(p.length, position + p.window / 2u + 1u), p.length, p.window == 0u);
}
//@ end
// Heads beyond a power of two use every other element of a series twice as fine
// (https://arxiv.org/abs/2108.12409).
fn slope_of(head: u32) -> f32 {
  let step = select(f32(head - p.slope_heads) + 0.5, f32(head) + 1.0, head < p.slope_heads);
  return exp2(-p.slope * step);
}
fn bent(score: f32) -> f32 {
  if (p.softcap == 0.0) {
    return score;
  }
  return p.softcap * tanh(clamp(score / p.softcap, -15.0, 15.0));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) lane: u32) {
  let kv_head = id.y;
  let part = p.part + id.z;
  let rows = p.tokens * p.group;
  let row0 = id.x * ROWS;
  let last_row = min(row0 + ROWS, rows) - 1u;
  let begin = max(begin_of(p.first + row0 / p.group), part * p.split);
  let until = min(end_of(p.first + last_row / p.group), (part + 1u) * p.split);

  // The row and the invocation's place in it, in the softmax step.
  let my_row = lane / LANES;
  var most = NONE;
  var sum = 0.0;
  // Rows my_group + ROW_GROUPS i and quads my_quad + QUADS j, in the sum of values.
  let my_group = lane / QUADS;
  let my_quad = lane % QUADS;
  var values: array<vec4f, OWN * TIMES>;
  var dots: array<f32, ROWS / 2u>;

  //@ tiles
  for (var tile = begin / TILE * TILE; tile < until; tile += TILE) {
  //@ end
    for (var i = 0u; i < ROWS / 2u; i++) {
      dots[i] = 0.0;  // a declaration here does not reset it in every implementation
    }
    for (var d0 = 0u; d0 < p.dk; d0 += 32u) {
      workgroupBarrier();
      for (var i = lane; i < TILE * 8u; i += WG) {
        let c = d0 + i % 8u * 4u;
        let row = key_row(kv_head, tile + i / 8u);
        var k = vec4f();
        if (c < p.dk) {
          k = within(kept(row, c), c, p.dk);
        }
        tile_k[i / 8u * 9u + i % 8u] = Held(k);
      }
      for (var i = lane; i < ROWS * 8u; i += WG) {
        let row = min(row0 + i / 8u, rows - 1u);
        let c = d0 + i % 8u * 4u;
        let at = p.q + row / p.group * p.q_ld + (kv_head * p.group + row % p.group) * p.dk + c;
        tile_q[i] = within(quad(at), c, p.dk);
      }
      workgroupBarrier();
      for (var j = 0u; j < 8u; j++) {
        let k = vec4f(tile_k[lane % 32u * 9u + j]);
        for (var i = 0u; i < ROWS / 2u; i++) {
          dots[i] += dot(k, tile_q[(lane / 32u + 2u * i) * 8u + j]);
        }
      }
    }
    let seen = tile + lane % 32u;
    for (var i = 0u; i < ROWS / 2u; i++) {
      let row = lane / 32u + 2u * i;
      let token = (row0 + row) / p.group;
      let position = p.first + token;
      var score = bent(dots[i] * p.scale);
      if (p.slope != 0.0) {
        score -= slope_of(kv_head * p.group + (row0 + row) % p.group) * abs(f32(seen) - f32(position));
      }
      var visible = seen >= max(begin_of(position), begin) && seen < min(end_of(position), until);
      //@ visible
      scores[row * (TILE + 1u) + lane % 32u] = select(NONE, score, visible);
    }
    workgroupBarrier();
    var highest = most;
    for (var i = 0u; i < TILE; i++) {
      highest = max(highest, scores[my_row * (TILE + 1u) + i]);
    }
    let factor = exp(max(most - highest, -87.0));
    most = highest;
    sum *= factor;
    workgroupBarrier();
    for (var i = lane % LANES; i < TILE; i += LANES) {
      let score = scores[my_row * (TILE + 1u) + i];
      let weight = select(exp(max(score - most, -87.0)), 0.0, score <= NONE);
      scores[my_row * (TILE + 1u) + i] = weight;
      sum += weight;
    }
    if (lane % LANES == 0u) {
      factors[my_row] = factor;
    }
    workgroupBarrier();
    for (var i = 0u; i < OWN; i++) {
      for (var j = 0u; j < TIMES; j++) {
        values[i * TIMES + j] *= factors[my_group + ROW_GROUPS * i];
      }
    }
    for (var seen = max(tile, begin); seen < min(tile + TILE, until); seen++) {
      let row = value_row(kv_head, seen);
      for (var j = 0u; j < TIMES; j++) {
        let c = (my_quad + QUADS * j) * 4u;
        if (c < p.dv) {
          let v = kept(row, c);
          for (var i = 0u; i < OWN; i++) {
            values[i * TIMES + j] += scores[(my_group + ROW_GROUPS * i) * (TILE + 1u) + seen - tile] * v;
          }
        }
      }
    }
  }

  // The sum of each row, and the factor that normalizes its values.
  row_sums[lane] = sum;
  workgroupBarrier();
  if (lane % LANES == 0u) {
    for (var i = 1u; i < LANES; i++) {
      sum += row_sums[lane + i];
    }
    let row = row0 + my_row;
    let head = kv_head * p.group + row % p.group;
    if (SPLIT) {
      factors[my_row] = 1.0;
      if (row < rows) {
        let at = p.partials + ((id.z * p.tokens + row / p.group) * p.heads + head) * (p.dv + 2u) + p.dv;
        arena[at] = most;
        arena[at + 1u] = sum;
      }
    } else if (p.sinks >= 0) {
      let sink = vectors[u32(p.sinks) + head];
      let highest = max(most, sink);
      let own = exp(max(most - highest, -87.0));
      factors[my_row] = own / (sum * own + exp(max(sink - highest, -87.0)));
    } else {
      factors[my_row] = 1.0 / sum;
    }
  }
  workgroupBarrier();
  //@ out
  for (var i = 0u; i < OWN; i++) {
    let of_tile = my_group + ROW_GROUPS * i;
    let row = row0 + of_tile;
    if (row < rows) {
      let head = kv_head * p.group + row % p.group;
      var at = p.out + row / p.group * p.out_ld + head * p.dv;
      if (SPLIT) {
        at = p.partials + ((id.z * p.tokens + row / p.group) * p.heads + head) * (p.dv + 2u);
      }
      for (var j = 0u; j < TIMES; j++) {
        let c = (my_quad + QUADS * j) * 4u;
        for (var k = 0u; k < 4u; k++) {
          if (c + k < p.dv) {
            arena[at + c + k] = values[i * TIMES + j][k] * factors[of_tile];
          }
        }
      }
    }
  }
  //@ end
}
