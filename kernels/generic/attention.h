// Attention of many query rows over one KV head, in one pass over the positions.
//
// Positions are taken in blocks that start at absolute multiples of kPositions. Rows pass in
// register tiles (attention_rows.h): scores, online softmax (Milakov, Gimelshein 2018), weighted
// values. A block is converted from f16 once: by the one tile that there is, in its registers, or
// else into scratch. A row's arithmetic is a fixed chain over components, positions, blocks and
// splits: tiles only decide which chains run side by side. So a row has the same bits alone and
// among others. Quantized positions are multiplied as they lie (kv_tiles.h), by rounded queries and
// weights. Transposing the keys instead, for scores without horizontal sums, was slower below eight
// rows.
#pragma once

#include "kernels/generic/attention_rows.h"
#include "kernels/generic/kv_tiles.h"
#include "kernels/generic/unroll.h"
#include "kernels/generic/vector_math.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kPanelRows = 64;  // rows that share a converted block; their state stays in cache
constexpr int kBlockVectors = kPositions / kLanes;
static_assert(kPositions == kKvTile);

int32_t round_up_to_lanes(int32_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

struct AttentionState {
  float* q;       // [kPanelRows][ldk] where dk is no multiple of lanes, zeros past dk
  float* keys;    // [kPositions][ldk] likewise
  float* values;  // [kPositions][ldv]
  float* p;       // [kPanelRows][kPositions] scores, then weights
  float* sum;     // [kPanelRows][kLanes] sum of weights, by lane
  float* acc;     // [kPanelRows][ldv] weighted values of the current split
  float* max;     // [kPanelRows] greatest score of the current split
  float* total_max;
  float* total_sum;  // [kPanelRows] of the splits before
  float* base;       // [kPanelRows] what a score begins with: keys by channel
  ActBlock* q8;      // [rows][tiles of dk] rounded queries
  ActBlock* p8;      // [2][kTileRows][tiles of dv] rounded weights
  int32_t ldk, ldv;  // dk and dv rounded up to lanes
};

AttentionState lay_out(void* scratch, int32_t n_rows, int32_t dk, int32_t dv, size_t* bytes) {
  AttentionState s;
  s.ldk = round_up_to_lanes(dk);
  s.ldv = round_up_to_lanes(dv);
  uint8_t* const base = static_cast<uint8_t*>(scratch);
  size_t used = 0;
  const auto take = [&](size_t rows, int32_t cols, size_t size) -> uint8_t* {
    uint8_t* const taken = base == nullptr ? nullptr : base + used;
    used += rows * static_cast<size_t>(cols) * size;
    return taken;
  };
  const auto floats = [&](size_t rows, int32_t cols) {
    return reinterpret_cast<float*>(take(rows, cols, sizeof(float)));
  };
  const auto blocks = [&](size_t rows, int32_t n) {
    return reinterpret_cast<ActBlock*>(take(rows, kv_tiles(n), sizeof(ActBlock)));
  };
  s.q8 = blocks(static_cast<size_t>(n_rows < kPanelRows ? n_rows : kPanelRows), dk);
  s.p8 = blocks(2 * kTileRows, dv);
  s.q = floats(kPanelRows, s.ldk);
  s.keys = floats(kPositions, s.ldk);
  s.values = floats(kPositions, s.ldv);
  s.acc = floats(kPanelRows, s.ldv);
  s.p = floats(kPanelRows, kPositions);
  s.sum = floats(kPanelRows, kLanes);
  s.max = floats(kPanelRows, 1);
  s.total_max = floats(kPanelRows, 1);
  s.total_sum = floats(kPanelRows, 1);
  s.base = floats(kPanelRows, 1);
  if (bytes != nullptr) *bytes = (used + 63) / 64 * 64;
  return s;
}

size_t attention_scratch(int32_t n_rows, int32_t dk, int32_t dv) {
  size_t bytes = 0;
  (void)lay_out(nullptr, n_rows, dk, dv, &bytes);
  return bytes;
}

// --- online softmax ------------------------------------------------------------------------------
constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// -inf in the lanes of positions outside [lo, hi).
SLUICE_INLINE F32 mask_scores(F32 s, int first, int lo, int hi) {
  const F32 position = load(kLaneNumbers) + splat(static_cast<float>(first));
  const F32 outside = splat(kNegativeInfinity);
  s = select(position < splat(static_cast<float>(lo)), outside, s);
  return select(position < splat(static_cast<float>(hi)), s, outside);
}

// What the positions of a block add to scores: of a panel's row r, -slope[r] * |p - position[r]|.
struct Bias {
  const float* slope;       // null: nothing
  const int32_t* position;  // null where nothing asks for it
  int64_t start;            // of the block

  // Of the kLanes positions from `first` of the block. Distances are integers: exact below 2^24.
  SLUICE_INLINE_METHOD F32 of(int r, int first) const {
    const float distance = static_cast<float>(start + first - position[r]);
    const F32 after = load(kLaneNumbers) + splat(distance), before = splat(0.0f) - after;
    return splat(slope[r]) * (splat(0.0f) - max(after, before));
  }
};

SLUICE_NOINLINE void add_relative(const AttentionArgs& a, int64_t distance, float* p) {
  constexpr int64_t kReach = kRelativeReach;
  for (int i = 0; i < kPositions; ++i, ++distance) {
    const int64_t d = distance < -kReach ? -kReach : distance < kReach ? distance : kReach;
    p[i] += a.relative[a.buckets[d + kReach] * a.relative_stride];
  }
}

// Turns a row's scores into weights relative to the greatest so far, rescaling what it has summed
// when that has grown. Positions [lo, hi) of the block are the row's.
void softmax_row(const AttentionArgs& a, const AttentionState& state, const Bias& bias, int r,
                 int lo, int hi) {
  float* p = state.p + r * kPositions;
  if (a.relative != nullptr) add_relative(a, bias.start - bias.position[r], p);
  F32 s[kBlockVectors];
  F32 top = splat(kNegativeInfinity);
  const F32 factor = splat(a.scale);
  const bool whole = lo == 0 && hi == kPositions;
  unroll<kBlockVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
    s[j] = load(p + j * kLanes) * factor;
    if (a.softcap != 0.0f) s[j] = splat(a.softcap) * tanh(s[j] * splat(1.0f / a.softcap));
    if (bias.slope != nullptr) s[j] = s[j] + bias.of(r, j * kLanes);
    if (!whole) s[j] = mask_scores(s[j], j * kLanes, lo, hi);
    top = max(s[j], top);
  });
  const float old_max = state.max[r];
  const float block_max = reduce_max(top);
  float* sum = state.sum + r * kLanes;
  F32 new_sum = load(sum);
  float new_max = old_max;
  if (block_max > old_max) {
    new_max = state.max[r] = block_max;
    const F32 keep = splat(exp_of(old_max - new_max));
    new_sum = new_sum * keep;
    float* acc = state.acc + r * state.ldv;
    for (int32_t c = 0; c < state.ldv; c += kLanes) store(acc + c, load(acc + c) * keep);
  }
  unroll<kBlockVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
    const F32 weight = exp(s[j] - splat(new_max));
    new_sum = new_sum + weight;
    store(p + j * kLanes, weight);
  });
  store(sum, new_sum);
}

// --- weighted values -----------------------------------------------------------------------------
struct Range {
  int lo, hi;  // positions of the block that a row sees
};

// Rows r .. r + 2^log2. They share the positions that all of them see; what a row sees before and
// after, it does alone. Positions that a row does not see are not multiplied by zero but left out,
// since they may hold infinities.
template <class T>
void value_group(const AttentionState& s, int r, int log2, const Range* range,
                 const Rows<T>& values) {
  const int n_rows = 1 << log2;
  int lo = 0, hi = kPositions;
  for (int i = 0; i < n_rows; ++i) {
    lo = range[r + i].lo > lo ? range[r + i].lo : lo;
    hi = range[r + i].hi < hi ? range[r + i].hi : hi;
  }
  float* const p = s.p + r * kPositions;
  float* const acc = s.acc + r * s.ldv;
  const auto alone = [&](int i, int from, int to) {
    from = range[r + i].lo > from ? range[r + i].lo : from;
    to = range[r + i].hi < to ? range[r + i].hi : to;
    if (from >= to) return;
    ValueStrips<T>::kStrips[0](p + i * kPositions, from, to, values, s.ldv, acc + i * s.ldv);
  };
  if (lo >= hi) lo = hi = kPositions;  // nothing in common
  for (int i = 0; i < n_rows; ++i) alone(i, 0, lo);
  if (lo < hi) ValueStrips<T>::kStrips[log2](p, lo, hi, values, s.ldv, acc);
  for (int i = 0; i < n_rows; ++i) alone(i, hi, kPositions);
}

// --- splits --------------------------------------------------------------------------------------
// Adds one split's unnormalised result to the row's, both relative to their own maxima. The same
// chain in attention and in attention_merge, so that splitting changes no bit.
struct Folded {
  float max = kNegativeInfinity;
  float sum = 0;
};
Folded fold(Folded total, float part_max, float part_sum, const float* part, int32_t dv,
            float* out) {
  if (part_max == kNegativeInfinity) return total;
  const float max = part_max > total.max ? part_max : total.max;
  const float keep = exp_of(total.max - max);
  const float take = exp_of(part_max - max);
  const F32 k = splat(keep), t = splat(take);
  for (int32_t c = 0; c < dv; c += kLanes) {
    const int n = dv - c < kLanes ? dv - c : kLanes;
    store_n(out + c, mul_add(load_n(part + c, n), t, load_n(out + c, n) * k), n);
  }
  return {max, total.sum * keep + part_sum * take};
}

// The last step of a row: divides by the sum of weights, the sink's among them.
void normalise(Folded total, float sink, int32_t dv, float* out) {
  float keep = 1;
  if (sink > kNegativeInfinity) {
    const float max = sink > total.max ? sink : total.max;
    keep = exp_of(total.max - max);
    total.sum = total.sum * keep + exp_of(sink - max);
  }
  const F32 factor = splat(total.sum > 0.0f ? keep / total.sum : 0.0f);
  for (int32_t c = 0; c < dv; c += kLanes) {
    const int n = dv - c < kLanes ? dv - c : kLanes;
    store_n(out + c, load_n(out + c, n) * factor, n);
  }
}

void zero(float* x, int64_t n) {
  memset(x, 0, static_cast<size_t>(n) * sizeof(float));
}

// --- a panel of rows -----------------------------------------------------------------------------
struct Panel {
  int32_t row, n_rows;
  int64_t first, last;  // positions that any of its rows sees
  int64_t group = -1;   // that the queries of keys by channel are ready for
};

// Which rows a block is for: where its form depends on the row, those that see it in one form.
enum class Seen { kByAll, kQuantized, kRecent };

bool has_recent(const AttentionArgs& a) {
  return a.k_type != KvType::kF16 || a.v_type != KvType::kF16;
}
bool in_tiles(KvType type, Seen seen) {
  return type != KvType::kF16 && seen == Seen::kQuantized;
}

// A block that begins at `start`, for rows [first_row, last_row).
struct Block {
  int64_t start;
  Seen seen;
  int from, to;  // positions that may be read
  int first_row, last_row;
  const Range* range;
};

// Its keys or values where they are f16: in the cache, or in the ring beside it.
Rows<f16> halves_of(const AttentionArgs& a, bool keys, const Block& b) {
  const bool in_ring = (keys ? a.k_type : a.v_type) != KvType::kF16;
  const void* data = in_ring ? (keys || a.v == a.k ? a.recent_k : a.recent_v) : keys ? a.k : a.v;
  const int64_t place = in_ring ? (b.start + a.recent_shift) % a.recent_size : b.start;
  const int64_t ld = keys ? a.dk : a.v_stride == 0 ? a.dv : a.v_stride;
  return {static_cast<const f16*>(data) + place * ld, ld, b.from, b.to};
}

// The scores of a block that is quantized.
void score_tiles(const AttentionArgs& a, const AttentionState& s, Panel& panel, const Queries& q,
                 const Block& b) {
  const Tiles t = tiles_at(a.k_type, true, a.k, b.start, a.dk);
  if (t.scales == nullptr && panel.group != b.start / kKvGroup) {
    panel.group = b.start / kKvGroup;
    for (int r = 0; r < panel.n_rows; ++r) {
      s.base[r] = scale_query(t, q.data + r * q.ld, a.dk, s.q8 + r * t.count);
    }
  }
  for (int r = b.first_row; r < b.last_row; ++r) {
    const F32 base = splat(t.scales == nullptr ? s.base[r] : 0.0f);
    unroll<kBlockVectors>(
        [&](auto j) SLUICE_INLINE_LAMBDA { store(s.p + r * kPositions + j * kLanes, base); });
  }
  TileProduct m{};
  const bool scaled = t.scales != nullptr;
  m.scales = scaled ? t.scales : reinterpret_cast<const uint8_t*>(kUnscaled);
  m.scale_stride = scaled ? t.stride : 0;
  m.x = s.q8 + b.first_row * t.count;
  m.ldx = t.count;
  m.out = s.p + b.first_row * kPositions;
  m.ld = kPositions;
  m.lanes = kPositions;
  multiply(t, m, b.last_row - b.first_row);
}

// The weighted values of a block that is quantized, of rows that see any of it.
void add_tiles(const AttentionArgs& a, const AttentionState& s, const Block& b) {
  const Tiles t = tiles_at(a.v_type, false, a.v, b.start, a.dv);
  const int planes = a.v_type == KvType::kQ8_0 ? 2 : 1;
  const int64_t plane = int64_t{kTileRows} * t.count;
  for (int r = b.first_row; r < b.last_row;) {
    int n = 0;
    while (n < kTileRows && r + n < b.last_row && b.range[r + n].lo < b.range[r + n].hi) {
      scale_weights(t, s.p + (r + n) * kPositions, planes, plane, s.p8 + n * t.count);
      ++n;
    }
    for (int i = 0; i < planes && n > 0; ++i) {
      TileProduct m{};
      m.scales = reinterpret_cast<const uint8_t*>(kUnscaled);
      m.x = s.p8 + i * plane;
      m.ldx = t.count;
      m.out = s.acc + r * s.ldv;
      m.ld = s.ldv;
      m.step = kKvTile;
      m.lanes = s.ldv;
      multiply(t, m, n);
    }
    r += n > 0 ? n : 1;
  }
}

template <class T>
void add_rows(const AttentionState& s, const Block& b, const Rows<T>& values) {
  for (int r = b.first_row; r < b.last_row;) {
    const int log2 = tile_log2(b.last_row - r, ValueStrips<T>::kMaxLog2);
    value_group(s, r, log2, b.range, values);
    r += 1 << log2;
  }
}

void attend_block(const AttentionArgs& a, const AttentionState& s, Panel& panel, const Queries& q,
                  int64_t start, Seen seen) {
  const auto clip = [start](int64_t position) {
    const int64_t i = position - start;
    return i < 0 ? 0 : i < kPositions ? static_cast<int>(i) : kPositions;
  };
  Range range[kPanelRows];
  Block b{start, seen, clip(panel.first), clip(panel.last), panel.n_rows, 0, range};
  for (int r = 0; r < panel.n_rows; ++r) {
    range[r] = {clip(a.begin[panel.row + r]), clip(a.end[panel.row + r])};
    if (seen != Seen::kByAll) {
      const bool recent = start >= a.position[panel.row + r] / kKvGroup * kKvGroup;
      if (recent != (seen == Seen::kRecent)) range[r] = {0, 0};
    }
    if (range[r].lo >= range[r].hi) continue;
    b.first_row = r < b.first_row ? r : b.first_row;
    b.last_row = r + 1;
  }
  if (b.first_row >= b.last_row) return;
  Bias bias{nullptr, nullptr, start};
  if (a.slope != nullptr) bias.slope = a.slope + panel.row;
  if (a.position != nullptr) bias.position = a.position + panel.row;

  const int n = b.last_row - b.first_row;
  const bool direct = n <= kDirectRows && a.dk == s.ldk && a.dv == s.ldv;
  const Queries rows{q.data + b.first_row * q.ld, q.ld, q.size};
  float* const p = s.p + b.first_row * kPositions;
  const bool tiled_keys = in_tiles(a.k_type, seen);
  if (tiled_keys) {
    score_tiles(a, s, panel, q, b);
  } else if (direct) {
    score_rows(rows, n, halves_of(a, true, b), p);
  } else {
    score_rows(rows, n, convert(halves_of(a, true, b), a.dk, s.ldk, s.keys), p);
  }
  for (int r = b.first_row; r < b.last_row; ++r) {
    if (range[r].lo < range[r].hi) softmax_row(a, s, bias, r, range[r].lo, range[r].hi);
  }
  if (a.v == a.k && tiled_keys) {
    widen_keys(tiles_at(a.k_type, true, a.k, start, a.dk), b.from, b.to, s.ldv, s.values);
    add_rows<float>(s, b, {s.values, s.ldv, b.from, b.to});
  } else if (in_tiles(a.v_type, seen)) {
    add_tiles(a, s, b);
  } else if (direct) {
    add_rows(s, b, halves_of(a, false, b));
  } else if (a.v == a.k && a.v_stride == a.dk) {
    add_rows<float>(s, b, {s.keys, s.ldk, b.from, b.to});
  } else {
    add_rows(s, b, convert(halves_of(a, false, b), a.dv, s.ldv, s.values));
  }
}

// The panel's queries, padded where their size is no multiple of lanes.
Queries load_queries(const AttentionArgs& a, const AttentionState& s, const Panel& panel) {
  const float* q = a.q + panel.row * a.q_stride;
  if (a.dk == s.ldk) return {q, a.q_stride, a.dk};
  for (int r = 0; r < panel.n_rows; ++r) {
    for (int32_t d = 0; d < a.dk; d += kLanes) {
      const int n = a.dk - d < kLanes ? a.dk - d : kLanes;
      store(s.q + r * s.ldk + d, load_n(q + r * a.q_stride + d, n));
    }
  }
  return {s.q, s.ldk, s.ldk};
}

void attend_panel(const AttentionArgs& a, const AttentionState& s, Panel panel) {
  for (int r = 0; r < panel.n_rows; ++r) {
    s.total_max[r] = kNegativeInfinity;
    s.total_sum[r] = 0;
    zero(a.out + (panel.row + r) * a.out_stride, a.dv);
  }
  const Queries q = load_queries(a, s, panel);
  const bool once = a.k_type == KvType::kQ8_0 || a.k_type == KvType::kQ4_0;
  for (int r = 0; once && r < panel.n_rows; ++r) {
    quantize_token(q.data + r * q.ld, a.dk, s.q8 + r * kv_tiles(a.dk));
  }
  for (int64_t split = panel.first / kAttentionSplit * kAttentionSplit; split < panel.last;
       split += kAttentionSplit) {
    const int64_t end = split + kAttentionSplit < panel.last ? split + kAttentionSplit : panel.last;
    for (int r = 0; r < panel.n_rows; ++r) s.max[r] = kNegativeInfinity;
    zero(s.sum, int64_t{panel.n_rows} * kLanes);
    zero(s.acc, int64_t{panel.n_rows} * s.ldv);
    int64_t start = panel.first > split ? panel.first / kPositions * kPositions : split;
    for (; start < end; start += kPositions) {
      attend_block(a, s, panel, q, start, has_recent(a) ? Seen::kQuantized : Seen::kByAll);
      if (has_recent(a)) attend_block(a, s, panel, q, start, Seen::kRecent);
    }
    for (int r = 0; r < panel.n_rows; ++r) {
      const Folded total =
          fold({s.total_max[r], s.total_sum[r]}, s.max[r], reduce_add(load(s.sum + r * kLanes)),
               s.acc + r * s.ldv, a.dv, a.out + (panel.row + r) * a.out_stride);
      s.total_max[r] = total.max;
      s.total_sum[r] = total.sum;
    }
  }
  for (int r = 0; r < panel.n_rows; ++r) {
    if (a.partial_max != nullptr && a.partial_sum != nullptr) {
      a.partial_max[panel.row + r] = s.total_max[r];
      a.partial_sum[panel.row + r] = s.total_sum[r];
    } else {
      normalise({s.total_max[r], s.total_sum[r]},
                a.sink != nullptr ? a.sink[panel.row + r] : kNoSink, a.dv,
                a.out + (panel.row + r) * a.out_stride);
    }
  }
}

void attention(const AttentionArgs& a) {
  const AttentionState state = lay_out(a.scratch, a.n_rows, a.dk, a.dv, nullptr);
  for (int32_t row = 0; row < a.n_rows; row += kPanelRows) {
    Panel panel{row, a.n_rows - row < kPanelRows ? a.n_rows - row : kPanelRows, INT64_MAX, 0};
    for (int32_t r = row; r < row + panel.n_rows; ++r) {
      if (a.begin[r] >= a.end[r]) continue;
      if (a.begin[r] < panel.first) panel.first = a.begin[r];
      if (a.end[r] > panel.last) panel.last = a.end[r];
    }
    attend_panel(a, state, panel);
  }
}

void attention_merge(const float* partial, int64_t stride, const float* part_max,
                     const float* part_sum, int32_t n_parts, int32_t dv, float sink, float* out) {
  Folded total;
  zero(out, dv);
  for (int32_t i = 0; i < n_parts; ++i) {
    total = fold(total, part_max[i], part_sum[i], partial + i * stride, dv, out);
  }
  normalise(total, sink, dv, out);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
