// Attention of many query rows over one KV head, in one pass over the positions.
//
// Positions come in blocks that start at absolute multiples of kPositions. Rows are processed in
// register tiles: scores, online softmax (Milakov, Gimelshein 2018), weighted values. The KV cache,
// f16 or quantized, becomes f32 in a tile's registers if there are only a few rows, otherwise once
// in scratch, which stays in L1. A row's arithmetic is a fixed chain over components, positions,
// blocks and splits; tiles only decide which chains run side by side. So a row has the same bits
// alone and among others. Transposing the keys, for scores without horizontal sums, was slower
// below eight rows.
#pragma once

#include "kernels/generic/attention_rows.h"
#include "kernels/generic/vector_math.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kPanelRows = 64;  // rows that share a converted block; their state stays in cache
// Up to this many rows, tiles convert for themselves; quantized rows only if one tile has them all.
constexpr int kDirectRows = kLanes > 4 ? 8 : 2, kQuantizedRows = 1 << kScoreLog2;
constexpr int kBlockVectors = kPositions / kLanes;

int32_t round_up_to_lanes(int32_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

struct AttentionState {
  uint8_t* q8;    // [kPanelRows] output of quantize_q8, if keys are in lanes
  float* q;       // [kPanelRows][ldk] if dk is not a multiple of lanes, zeros past dk
  float* keys;    // [kPositions][ldk] likewise
  float* values;  // [kPositions][ldv]
  float* p;       // [kPanelRows][kPositions] scores, then weights
  float* sum;     // [kPanelRows][kLanes] sum of weights, by lane
  float* acc;     // [kPanelRows][ldv] weighted values of the current split
  float* max;     // [kPanelRows] maximum score of the current split
  float* total_max;
  float* total_sum;  // [kPanelRows] over the previous splits
  int32_t ldk, ldv;  // dk and dv rounded up to lanes
};

size_t attention_scratch(int32_t, int32_t dk, int32_t dv) {
  const size_t k = static_cast<size_t>(round_up_to_lanes(dk));
  const size_t v = static_cast<size_t>(round_up_to_lanes(dv));
  const size_t floats = (k + v) * kPositions + (k + v + kPositions + kLanes + 3) * kPanelRows;
  return kPanelRows * q8_bytes(dk) + (floats * sizeof(float) + 63) / 64 * 64;
}

AttentionState lay_out(void* scratch, int32_t dk, int32_t dv) {
  AttentionState s;
  s.ldk = round_up_to_lanes(dk);
  s.ldv = round_up_to_lanes(dv);
  s.q8 = static_cast<uint8_t*>(scratch);
  float* next = reinterpret_cast<float*>(s.q8 + kPanelRows * q8_bytes(dk));
  const auto take = [&next](int32_t rows, int32_t cols) {
    float* const taken = next;
    next += int64_t{rows} * cols;
    return taken;
  };
  s.q = take(kPanelRows, s.ldk);
  s.keys = take(kPositions, s.ldk);
  s.values = take(kPositions, s.ldv);
  s.acc = take(kPanelRows, s.ldv);
  s.p = take(kPanelRows, kPositions);
  s.sum = take(kPanelRows, kLanes);
  s.max = take(kPanelRows, 1);
  s.total_max = take(kPanelRows, 1);
  s.total_sum = take(kPanelRows, 1);
  return s;
}

// --- online softmax ------------------------------------------------------------------------------
// -inf in the lanes of positions outside [lo, hi).
SLUICE_INLINE F32 mask_scores(F32 s, int first, int lo, int hi) {
  const F32 position = load(kLaneNumbers) + splat(static_cast<float>(first));
  const F32 outside = splat(kNegativeInfinity);
  s = select(position < splat(static_cast<float>(lo)), outside, s);
  return select(position < splat(static_cast<float>(hi)), s, outside);
}

// What the positions of a block add to the scores of a panel's row r: -slope[r] * |p -
// position[r]|.
struct Bias {
  const float* slope;       // null: no bias
  const int32_t* position;  // null if nothing needs it
  int64_t start;            // of the block

  // For the kLanes positions from `first` of the block. Distances are integers, exact below 2^24.
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

// Turns a row's scores into weights relative to the maximum so far, and rescales its sums when the
// maximum grows. Only positions [lo, hi) of the block belong to the row.
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

struct Range {
  int lo, hi;  // positions of the block that a row sees
};

// Adds the values of rows r .. r + 2^log2. Positions that all of them see share one tile; those
// that only one row sees before and after are done row by row. Unseen positions are skipped rather
// than multiplied by zero, since they may hold infinities.
void value_group(const AttentionState& s, int r, int log2, const Range* range, const Rows& values) {
  const ValueStrip* const strips = value_strips(values.form);
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
    strips[0](p + i * kPositions, from, to, values, s.ldv, acc + i * s.ldv);
  };
  if (lo >= hi) lo = hi = kPositions;  // no common positions
  for (int i = 0; i < n_rows; ++i) alone(i, 0, lo);
  if (lo < hi) strips[log2](p, lo, hi, values, s.ldv, acc);
  for (int i = 0; i < n_rows; ++i) alone(i, hi, kPositions);
}

// --- splits --------------------------------------------------------------------------------------
// Adds one split's unnormalized result to the row's, each relative to its own maximum. attention
// and attention_merge share this chain, so splitting changes no bit.
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

// The last step of a row: divides by the sum of weights, including the sink's.
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
};

void attend_rows(const AttentionArgs& a, const AttentionState& s, const Queries& q,
                 const Bias& bias, int first_row, int last_row, const Range* range,
                 const Rows& keys, const Rows& values) {
  score_rows(q.from(first_row), last_row - first_row, keys, s.p + first_row * kPositions);
  for (int r = first_row; r < last_row; ++r) {
    if (range[r].lo < range[r].hi) softmax_row(a, s, bias, r, range[r].lo, range[r].hi);
  }
  for (int r = first_row; r < last_row;) {
    const int log2 = tile_log2(last_row - r, kValueLog2);
    value_group(s, r, log2, range, values);
    r += 1 << log2;
  }
}

// Which rows a block is for. Where its layout depends on the row, the rows that see one layout.
enum class Seen { kByAll, kQuantized, kRecent };

bool has_recent(const AttentionArgs& a) {
  return kv_grouped(a.k_type) || kv_grouped(a.v_type);
}

// One side of the cache, its keys or its values.
struct Side {
  KvType type;
  const void* data;
  const f16* recent;
  int64_t stride;  // in values, between positions
};
// Positions [from, to) of the block that begins at `start`, in the cache's layout.
Rows rows_of(const AttentionArgs& a, const Side& side, Seen seen, int64_t start, int from, int to) {
  const bool in_ring = kv_grouped(side.type) && seen == Seen::kRecent;
  const KvType type = in_ring ? KvType::kF16 : side.type;
  const int64_t place = in_ring ? (start + a.recent_shift) % a.recent_size : start;
  const int64_t bytes = kv_row_bytes(type, side.stride);
  const void* const data = in_ring ? side.recent : side.data;
  const uint8_t* const at = static_cast<const uint8_t*>(data) + place * bytes;
  if (type == KvType::kQ2 && side.data == a.k) {
    const int64_t first = start % kKvGroup, padded = bytes / 20 * 64;
    const uint8_t* const group = at - first * bytes;
    const uint8_t* const codes = group + 4 * padded + first * (padded / 4);
    return {Form::kQ2Channels, from, to, codes, padded / 4, group, 2 * padded};
  }
  if (type == KvType::kQ4_0 && side.data == a.k) {
    return {Form::kQ4Lanes, from, to, at, kKvRun * bytes, nullptr, 0};
  }
  constexpr Form kForms[] = {Form::kF16, Form::kQ8, Form::kQ4, Form::kQ2};
  return {kForms[static_cast<int>(type)], from, to, at, bytes, nullptr, 0};
}

void attend_block(const AttentionArgs& a, const AttentionState& s, const Panel& panel,
                  const Queries& q, int64_t start, Seen seen) {
  const auto clip = [start](int64_t position) {
    const int64_t i = position - start;
    return i < 0 ? 0 : i < kPositions ? static_cast<int>(i) : kPositions;
  };
  Range range[kPanelRows];
  int first_row = panel.n_rows, last_row = 0;
  for (int r = 0; r < panel.n_rows; ++r) {
    range[r] = {clip(a.begin[panel.row + r]), clip(a.end[panel.row + r])};
    if (seen != Seen::kByAll) {
      const bool recent = start >= a.position[panel.row + r] / kKvGroup * kKvGroup;
      if (recent != (seen == Seen::kRecent)) range[r] = {0, 0};
    }
    if (range[r].lo >= range[r].hi) continue;
    first_row = r < first_row ? r : first_row;
    last_row = r + 1;
  }
  if (first_row >= last_row) return;
  const int from = clip(panel.first), to = clip(panel.last);
  const int64_t v_stride = a.v_stride == 0 ? a.dv : a.v_stride;
  Bias bias{nullptr, nullptr, start};
  if (a.slope != nullptr) bias.slope = a.slope + panel.row;
  if (a.position != nullptr) bias.position = a.position + panel.row;
  const int n = last_row - first_row;
  const bool shared = a.v == a.k && v_stride == a.dk;
  const auto ready = [&](const Rows& rows, int32_t cols, int32_t ld, float* scratch) {
    if (rows.form == Form::kQ4Lanes) return rows;
    const bool half = rows.form == Form::kF16;
    const bool few = n <= (half ? kDirectRows : kQuantizedRows) && (half || !shared);
    return few && tiles_load(rows.form, cols) ? rows : widen(rows, cols, ld, scratch);
  };
  const Side k{a.k_type, a.k, a.recent_k, a.dk}, v{a.v_type, a.v, a.recent_v, v_stride};
  const Rows keys = ready(rows_of(a, k, seen, start, from, to), a.dk, s.ldk, s.keys);
  const Rows values = !shared ? ready(rows_of(a, v, seen, start, from, to), a.dv, s.ldv, s.values)
                      : keys.form == Form::kQ4Lanes ? widen(keys, a.dv, s.ldv, s.values)
                                                    : keys;
  attend_rows(a, s, q, bias, first_row, last_row, range, keys, values);
}

// The panel's queries, padded if their size is not a multiple of lanes. For keys in lanes each is
// also quantized by itself.
Queries load_queries(const AttentionArgs& a, const AttentionState& s, const Panel& panel) {
  const float* q = a.q + panel.row * a.q_stride;
  const size_t q8_stride = q8_bytes(a.dk);
  if (a.k_type == KvType::kQ4_0) {
    for (int r = 0; r < panel.n_rows; ++r) {
      quantize_q8(q + r * a.q_stride, 0, a.dk, 1, s.q8 + static_cast<size_t>(r) * q8_stride);
    }
  }
  if (a.dk == s.ldk) return {q, a.q_stride, a.dk, s.q8, q8_stride};
  for (int r = 0; r < panel.n_rows; ++r) {
    for (int32_t d = 0; d < a.dk; d += kLanes) {
      const int n = a.dk - d < kLanes ? a.dk - d : kLanes;
      store(s.q + r * s.ldk + d, load_n(q + r * a.q_stride + d, n));
    }
  }
  return {s.q, s.ldk, s.ldk, s.q8, q8_stride};
}

void attend_panel(const AttentionArgs& a, const AttentionState& s, const Panel& panel) {
  for (int r = 0; r < panel.n_rows; ++r) {
    s.total_max[r] = kNegativeInfinity;
    s.total_sum[r] = 0;
    zero(a.out + (panel.row + r) * a.out_stride, a.dv);
  }
  const Queries q = load_queries(a, s, panel);
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
  const AttentionState state = lay_out(a.scratch, a.dk, a.dv);
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
