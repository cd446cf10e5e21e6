// Attention of many query rows over one KV head, in one pass over the positions.
//
// Positions are taken in blocks that start at absolute multiples of kPositions. Rows pass in
// register tiles: scores, online softmax (Milakov, Gimelshein 2018), weighted values. A block is
// converted from f16 once: by the one tile that there is, in its registers, or else into scratch.
// A row's arithmetic is a fixed chain over components, positions, blocks and splits: tiles only
// decide which chains run side by side. So a row has the same bits alone and among others.
// Quantized positions are always converted to scratch, which stays in the first cache.
// Transposing the keys instead, for scores without horizontal sums, was slower below eight rows.
#pragma once

#include "kernels/generic/kv_rows.h"
#include "kernels/generic/unroll.h"
#include "kernels/generic/vector_math.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kPositions = 32;  // of a block; whole vectors on every target
constexpr int kPanelRows = 64;  // rows that share a converted block; their state stays in cache
constexpr int kBlockVectors = kPositions / kLanes;
// Register tiles are rows x positions (scores) and rows x vectors (values): with the operands they
// fill 32 registers, or 16.
constexpr int kTileSize = kLanes == 16 ? 16 : 8;
constexpr int kDirectRows = kLanes > 4 ? 8 : 2;

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
  int32_t ldk, ldv;  // dk and dv rounded up to lanes
};

size_t attention_scratch(int32_t, int32_t dk, int32_t dv) {
  const size_t k = static_cast<size_t>(round_up_to_lanes(dk));
  const size_t v = static_cast<size_t>(round_up_to_lanes(dv));
  const size_t floats = (k + v) * kPositions + (k + v + kPositions + kLanes + 3) * kPanelRows;
  return (floats * sizeof(float) + 63) / 64 * 64;
}

AttentionState lay_out(void* scratch, int32_t dk, int32_t dv) {
  AttentionState s;
  s.ldk = round_up_to_lanes(dk);
  s.ldv = round_up_to_lanes(dv);
  float* next = static_cast<float*>(scratch);
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

// --- a block's keys and values -------------------------------------------------------------------
// Rows of a block's positions, in the cache's f16 or converted: row i at data + i * ld. Only rows
// [from, to) may be read: the others may never have been written, or not exist.
template <class T>
struct Rows {
  const T* data;
  int64_t ld;
  int from, to;
};

SLUICE_INLINE F32 load_any(const float* p) {
  return load(p);
}
SLUICE_INLINE F32 load_any(const f16* p) {
  return load_f16(p);
}

// Asks for n values of the same row of the next block while this one is worked on: hardware
// prefetchers lose the thread between blocks, once there is more to do with one than to read it.
// Past the last block it asks for nothing useful.
constexpr int kPrefetchRows = 4;
SLUICE_INLINE void prefetch_next(const float*, int64_t, int) {}
SLUICE_INLINE void prefetch_next(const f16* p, int64_t ld, int n) {
  for (int i = 0; i < n; i += 32) prefetch(p + kPositions * ld + i);
}

// The first n values of p and zeros.
SLUICE_INLINE F32 load_f16_n(const f16* p, int n) {
  if (n >= kLanes) return load_f16(p);
  f16 padded[kLanes] = {};
  memcpy(padded, p, static_cast<size_t>(n) * sizeof(f16));
  return load_f16(padded);
}

SLUICE_NOINLINE Rows<float> convert(const Rows<f16>& in, int32_t cols, int32_t ld, float* out) {
  for (int i = in.from; i < in.to; ++i) {
    for (int32_t c = 0; c < cols; c += kLanes) {
      store(out + i * ld + c, load_f16_n(in.data + i * in.ld + c, cols - c));
    }
  }
  return {out, ld, in.from, in.to};
}

// --- scores --------------------------------------------------------------------------------------
struct Queries {
  const float* data;
  int64_t ld;
  int32_t size;  // multiple of lanes
};

// Scores of kRows queries with the positions first .. first + kCount of a block. Positions that
// may not be read are computed from the nearest one that may; their scores are masked later.
template <int kRows, int kCount, class T>
SLUICE_INLINE void score_tile(const Queries& q, const Rows<T>& keys, int first, bool ahead,
                              float* p) {
  constexpr int kStep = kCount < 4 ? kCount : 4;  // positions side by side: pointers are registers
  F32 s[kRows * kCount];
  unroll<kRows * kCount>([&](auto i) SLUICE_INLINE_LAMBDA { s[i] = splat(0.0f); });
  unroll<kCount / kStep>([&](auto step) SLUICE_INLINE_LAMBDA {
    const T* key[kStep];
    unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA {
      int i = first + step * kStep + j;
      i = i < keys.from ? keys.from : i;
      i = i < keys.to ? i : keys.to - 1;
      key[j] = keys.data + i * keys.ld;
    });
    if (ahead) {
      unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA { prefetch_next(key[j], keys.ld, q.size); });
    }
    for (int32_t d = 0; d < q.size; d += kLanes) {
      F32 x[kStep];
      unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA { x[j] = load_any(key[j] + d); });
      unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
        const F32 qr = load(q.data + r * q.ld + d);
        unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA {
          constexpr int kIndex = r * kCount + step * kStep + j;
          s[kIndex] = mul_add(qr, x[j], s[kIndex]);
        });
      });
    }
  });
  // Sums of kLanes vectors at a time, [row][position] in order.
  float sums[kRows * kCount];
  unroll<kRows * kCount / kLanes>([&](auto i) SLUICE_INLINE_LAMBDA {
    F32 m[kLanes];
    unroll<kLanes>([&](auto j) SLUICE_INLINE_LAMBDA { m[j] = s[i * kLanes + j]; });
    store(sums + i * kLanes, reduce_add_each(m));
  });
  unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
    memcpy(p + r * kPositions + first, sums + r * kCount, kCount * sizeof(float));
  });
}

template <int kRows, class T>
SLUICE_NOINLINE void score_strip(const Queries& q, const Rows<T>& keys, bool ahead, float* p) {
  constexpr int kCount = kTileSize / kRows > kLanes ? kLanes : kTileSize / kRows;
  for (int i = keys.from / kCount * kCount; i < keys.to; i += kCount) {
    score_tile<kRows, kCount>(q, keys, i, ahead, p);
  }
}

// Tiles of 1, 2, 4 .. rows are called through tables. Were they inlined into one function, which
// compilers and wasm-opt love to do, they would spill each other's registers: V8 allocates those
// of a whole function at once, and that costs it a third of the speed.
template <class T>
struct ScoreStrips {
  static constexpr int kMaxLog2 = kTileSize == 16 ? 2 : 1;
  using Strip = void (*)(const Queries&, const Rows<T>&, bool, float*);
  template <int kLog2>
  static constexpr Strip strip() {
    if constexpr (kLog2 <= kMaxLog2) return score_strip<1 << kLog2, T>;
    return nullptr;
  }
  static constexpr Strip kStrips[3] = {strip<0>(), strip<1>(), strip<2>()};
};

// The tallest tile of at most n_rows.
int tile_log2(int n_rows, int max_log2) {
  int i = 0;
  while (i < max_log2 && 2 << i <= n_rows) ++i;
  return i;
}

template <class T>
void score_rows(Queries q, int n_rows, const Rows<T>& keys, float* p) {
  bool ahead = n_rows >= kPrefetchRows;
  while (n_rows > 0) {
    const int i = tile_log2(n_rows, ScoreStrips<T>::kMaxLog2);
    ScoreStrips<T>::kStrips[i](q, keys, ahead, p);
    ahead = false;
    q.data += q.ld << i;
    p += kPositions << i;
    n_rows -= 1 << i;
  }
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
// acc[r][c ..] += p[r][position] * values[position][c ..] over positions [lo, hi).
template <int kRows, int kVectors, class T>
SLUICE_INLINE void value_tile(const float* p, int lo, int hi, const Rows<T>& values, int32_t c,
                              int32_t ldv, float* acc) {
  F32 sum[kRows][kVectors];
  acc += c;
  unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
    unroll<kVectors>([&](auto j)
                         SLUICE_INLINE_LAMBDA { sum[r][j] = load(acc + r * ldv + j * kLanes); });
  });
  const T* value = values.data + lo * values.ld + c;
  for (int i = lo; i < hi; ++i, value += values.ld) {
    if constexpr (kRows >= kPrefetchRows) prefetch_next(value, values.ld, kVectors * kLanes);
    F32 x[kVectors];
    unroll<kVectors>([&](auto j) SLUICE_INLINE_LAMBDA { x[j] = load_any(value + j * kLanes); });
    unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
      const F32 weight = splat(p[r * kPositions + i]);
      unroll<kVectors>([&](auto j)
                           SLUICE_INLINE_LAMBDA { sum[r][j] = mul_add(weight, x[j], sum[r][j]); });
    });
  }
  unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
    unroll<kVectors>([&](auto j)
                         SLUICE_INLINE_LAMBDA { store(acc + r * ldv + j * kLanes, sum[r][j]); });
  });
}

template <int kRows, class T>
SLUICE_NOINLINE void value_rows(const float* p, int lo, int hi, const Rows<T>& values, int32_t ldv,
                                float* acc) {
  constexpr int kWide = kTileSize / kRows > 8 ? 8 : kTileSize / kRows;
  int32_t c = 0;
  for (; c + kWide * kLanes <= ldv; c += kWide * kLanes) {
    value_tile<kRows, kWide>(p, lo, hi, values, c, ldv, acc);
  }
  for (; c < ldv; c += kLanes) value_tile<kRows, 1>(p, lo, hi, values, c, ldv, acc);
}

template <class T>
struct ValueStrips {
  static constexpr int kMaxLog2 = 2;
  using Strip = void (*)(const float*, int, int, const Rows<T>&, int32_t, float*);
  template <int kLog2>
  static constexpr Strip strip() {
    if constexpr (kLog2 <= kMaxLog2) return value_rows<1 << kLog2, T>;
    return nullptr;
  }
  static constexpr Strip kStrips[3] = {strip<0>(), strip<1>(), strip<2>()};
};

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
};

template <class K, class V>
void attend_rows(const AttentionArgs& a, const AttentionState& s, const Queries& q,
                 const Bias& bias, int first_row, int last_row, const Range* range,
                 const Rows<K>& keys, const Rows<V>& values) {
  score_rows({q.data + first_row * q.ld, q.ld, q.size}, last_row - first_row, keys,
             s.p + first_row * kPositions);
  for (int r = first_row; r < last_row; ++r) {
    if (range[r].lo < range[r].hi) softmax_row(a, s, bias, r, range[r].lo, range[r].hi);
  }
  for (int r = first_row; r < last_row;) {
    const int log2 = tile_log2(last_row - r, ValueStrips<V>::kMaxLog2);
    value_group(s, r, log2, range, values);
    r += 1 << log2;
  }
}

// Which rows a block is for: where its form depends on the row, those that see it in one form.
enum class Seen { kByAll, kQuantized, kRecent };

bool is_f16(const AttentionArgs& a) {
  return a.k_type == KvType::kF16 && a.v_type == KvType::kF16;
}
bool has_recent(const AttentionArgs& a) {
  return kv_grouped(a.k_type) || kv_grouped(a.v_type);
}

// One side of the cache, its keys or its values, from the block that begins at `start`, as f32.
struct Side {
  KvType type;
  const void* data;
  const f16* recent;
  int64_t stride;  // of f16, from position to position
  int32_t cols, ld;
};
Rows<float> widen(const AttentionArgs& a, const Side& side, Seen seen, int64_t start, int from,
                  int to, float* out) {
  const bool in_ring = kv_grouped(side.type) && seen == Seen::kRecent;
  if (in_ring || side.type == KvType::kF16) {
    const f16* rows = in_ring ? side.recent : static_cast<const f16*>(side.data);
    const int64_t place = in_ring ? (start + a.recent_shift) % a.recent_size : start;
    return convert({rows + place * side.stride, side.stride, from, to}, side.cols, side.ld, out);
  }
  const int64_t row_bytes = kv_row_bytes(side.type, side.cols);
  const uint8_t* rows = static_cast<const uint8_t*>(side.data) + start * row_bytes;
  if (side.type == KvType::kQ8_0) {
    widen_q8(rows, row_bytes, from, to, side.ld, out);
  } else if (side.type == KvType::kQ4_0) {
    widen_q4(rows, row_bytes, from, to, side.ld, out);
  } else if (side.data == a.k) {
    const int first = static_cast<int>(start % kKvGroup);
    widen_q2_keys(rows - first * row_bytes, row_bytes, first, from, to, side.ld, out);
  } else {
    widen_q2(rows, row_bytes, from, to, side.ld, out);
  }
  return {out, side.ld, from, to};
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
  if (!is_f16(a)) {
    const Side k{a.k_type, a.k, a.recent_k, a.dk, a.dk, s.ldk};
    const Side v{a.v_type, a.v, a.recent_v, v_stride, a.dv, s.ldv};
    const Rows<float> keys = widen(a, k, seen, start, from, to, s.keys);
    attend_rows(a, s, q, bias, first_row, last_row, range, keys,
                a.v == a.k ? keys : widen(a, v, seen, start, from, to, s.values));
    return;
  }
  const Rows<f16> keys{static_cast<const f16*>(a.k) + start * a.dk, a.dk, from, to};
  const Rows<f16> values{static_cast<const f16*>(a.v) + start * v_stride, v_stride, from, to};
  const int n = last_row - first_row;
  if (n <= kDirectRows && a.dk == s.ldk && a.dv == s.ldv) {
    attend_rows(a, s, q, bias, first_row, last_row, range, keys, values);
  } else {
    const Rows<float> wide = convert(keys, a.dk, s.ldk, s.keys);
    const bool in_keys = a.v == a.k && v_stride == a.dk;
    attend_rows(a, s, q, bias, first_row, last_row, range, wide,
                in_keys ? wide : convert(values, a.dv, s.ldv, s.values));
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
